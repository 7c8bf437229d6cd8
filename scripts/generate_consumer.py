"""Makes `client_sdk/consumer.py` of `client_sdk/aio_consumer.py`: the same calls without asyncio.

``python -m scripts.generate_consumer`` writes it; with ``--check`` it says whether it is as it would be written.
"""

import subprocess
import sys
from pathlib import Path
from tempfile import TemporaryDirectory

import unasync  # type: ignore[import-untyped]

FOLDER = Path(__file__).parents[1] / "client_sdk"
TEXTS = {
    "`consumer` is made from this by `scripts/generate_consumer.py`.": "Made from `aio_consumer`; do not edit it.",
    " A get that is cancelled loses nothing: all that is not acked comes again.": "",
}


def generate() -> str:
    """Return the text of the module without asyncio."""
    with TemporaryDirectory() as name:
        source, target = Path(name, "aio", "consumer.py"), Path(name, "plain", "consumer.py")
        source.parent.mkdir()
        source.write_text((FOLDER / "aio_consumer.py").read_text())
        unasync.unasync_files([str(source)], [unasync.Rule("/aio/", "/plain/", {"AsyncConsumer": "Consumer"})])
        text = target.read_text()
    for told, instead in TEXTS.items():
        assert told in text, told
        text = text.replace(told, instead)
    ruff = ["ruff", "format", "--stdin-filename", str(FOLDER / "consumer.py"), "-"]
    return subprocess.run(ruff, input=text, capture_output=True, text=True, check=True).stdout


def main() -> None:
    """Write the module, or check it."""
    file = FOLDER / "consumer.py"
    text = generate()
    if "--check" not in sys.argv:
        file.write_text(text)
    elif text != file.read_text():
        sys.exit(f"{file} is not what {FOLDER / 'aio_consumer.py'} makes of it: python -m scripts.generate_consumer")


if __name__ == "__main__":
    main()
