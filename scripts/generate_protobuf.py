"""Generates *_pb2.py and *_pb2.pyi beside the .proto files in protocol/: python scripts/generate_protobuf.py."""

import sys
from importlib.resources import files
from pathlib import Path
from tempfile import TemporaryDirectory

from grpc_tools import protoc

SOURCES = Path(__file__).resolve().parent.parent / "src"
PROTOCOL = SOURCES / "sluice" / "protocol"


def generate(target: Path) -> None:
    """Write the generated modules into the folder ``target``, in the folders that those of `PROTOCOL` are."""
    with TemporaryDirectory() as scratch:
        # The name of a file in protobuf's registry is its path: sluice/protocol/… meets no other entry.proto.
        root = Path(scratch)
        out = root / "out"
        out.mkdir()
        names = [str(path.relative_to(SOURCES)) for path in sorted(PROTOCOL.glob("*/*.proto"))]
        include = files("grpc_tools") / "_proto"
        plugin = root / "protoc-gen-mypy"  # of this very interpreter, whatever PATH says
        plugin.write_text(f"#!/bin/sh\nexec '{sys.executable}' -m mypy_protobuf.main\n")
        plugin.chmod(0o755)
        arguments = [
            f"-I{SOURCES}",
            f"-I{include}",
            f"--plugin=protoc-gen-mypy={plugin}",
            f"--python_out={out}",
            f"--mypy_out=quiet:{out}",
        ]
        if protoc.main(["protoc", *arguments, *names]):
            sys.exit("protoc failed")
        made = out / PROTOCOL.relative_to(SOURCES)
        for path in made.glob("*/*"):
            place = target / path.relative_to(made)
            place.parent.mkdir(exist_ok=True)
            place.write_bytes(path.read_bytes())


if __name__ == "__main__":
    generate(PROTOCOL)
