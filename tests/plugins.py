"""Packages that bring sources, outputs and forms, as they look when they are installed."""

import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import pytest

from sluice.instance import plugins

EXAMPLE = Path(__file__).parent / "examples" / "plugin"
"""The package of docs/howto/plugins.md."""


def install(folder: Path, package: str, entries: Mapping[str, Mapping[str, str]], module: str = "") -> None:
    """Put a package into a folder: its metadata, and a module of the same name."""
    info = folder / f"{package}-1.0.dist-info"
    info.mkdir(parents=True)
    lines = []
    for group, named in entries.items():
        lines += [f"[{group}]", *(f"{name} = {value}" for name, value in named.items())]
    (info / "entry_points.txt").write_text("\n".join(lines))
    (folder / f"{package}.py").write_text(module)


@contextmanager
def on_path(*folders: Path) -> Iterator[None]:
    """Let Python find packages there; forget afterwards what was imported."""
    modules = set(sys.modules)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(plugins, "_imports", {})
        for folder in folders:
            patch.syspath_prepend(folder)
        yield
    for name in set(sys.modules) - modules:
        del sys.modules[name]
