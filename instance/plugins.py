"""Kinds of sources, outputs and forms that other packages bring: found by entry points, loaded when one is named.

The folders of Python's path are searched for installed packages whose metadata names such a kind. Nothing of that is
trusted: files and texts have bounds. A package is imported only when a configuration names its kind, in a thread of its
own, so that one that hangs or fails costs the destination that names it and no other.
"""

import configparser
import re
import sys
import threading
import time
from collections.abc import Collection, Iterator, Mapping, Sequence
from importlib.metadata import EntryPoint
from pathlib import Path
from typing import Any, Final, NamedTuple

from ..protocol.errors import ConfigError

SOURCES: Final = "sluice.sources"
OUTPUTS: Final = "sluice.outputs"
FORMS: Final = "sluice.forms"
GROUPS: Final = (SOURCES, OUTPUTS, FORMS)
"""The groups of entry points, one for each kind of thing."""
VERSIONS: Final[Mapping[str, int]] = {SOURCES: 1, OUTPUTS: 1, FORMS: 1}
"""The versions of their interfaces: what a package brings says for which one it is written."""
PATIENCE: Final = 10.0
"""Seconds for which the import of a package is waited for."""
LARGEST: Final = 64 << 10
"""Bytes of a package's ``entry_points.txt``."""
LONGEST: Final = 500
"""Characters of a text of others that an error shows."""
_NAME: Final = re.compile(r"[a-z][a-z0-9-]{0,63}")
_VALUE: Final = re.compile(r"[A-Za-z_][\w.]{0,199}:[A-Za-z_]\w{0,99}", re.ASCII)
_FOLDER: Final = re.compile(r"([^-]+)-([^-]+)\.dist-info")


class PluginError(ConfigError):
    """The package that brings what a configuration names cannot be used."""


class Plugin(NamedTuple):
    """A kind that an installed package brings."""

    group: str
    name: str
    value: str
    """``module:class``."""
    package: str
    """Name and version of the package."""
    file: Path
    """Where the package says so."""
    trouble: str = ""
    """Why it cannot be used, as far as that shows without an import; empty if it can."""

    def __str__(self) -> str:
        entry = f"{self.group}: {self.name} = {self.value} " if self.group else ""
        return f"package {self.package}, {entry}({self.file})"


class _Import:
    """An import that runs, or has ended."""

    def __init__(self, plugin: Plugin) -> None:
        self.plugin = plugin
        self.found: Any = None
        self.error = ""
        self.latest = time.monotonic() + PATIENCE
        """Until when it is waited for: it may never end."""
        self.thread = threading.Thread(target=self._run, name=f"import {plugin.value}", daemon=True)

    def _run(self) -> None:
        try:
            self.found = EntryPoint(self.plugin.name, self.plugin.value, self.plugin.group).load()
        except BaseException as error:  # noqa: BLE001  a package may even ask the process to end
            self.error = f"cannot be imported: {type(error).__name__}: {_short(error)}"


_imports: dict[tuple[str, str], _Import] = {}
_lock = threading.Lock()


def installed(taken: Mapping[str, Collection[str]]) -> list[Plugin]:
    """Return all kinds that installed packages bring, imported or not; ``taken`` has Sluice's own names by group."""
    found = list(_search())
    own = "cannot be used: Sluice has a kind of that name itself"
    return [
        it._replace(trouble=it.trouble or (own if it.name in taken.get(it.group, ()) else _clash(it, found)))
        for it in found
    ]


def load(group: str, name: str) -> Any:
    """Return what the entry point of a kind names, imported.

    Its attribute ``api`` has to be the version of the interface. Raises PluginError, which names the package and the
    next step, and ConfigError when there is none.
    """
    if _NAME.fullmatch(name) is None:
        raise ConfigError(f"{name[:LONGEST]!r} is not a name of a kind: small letters, digits and '-'")
    with _lock:
        running = _imports.get((group, name))
        if running is None:
            running = _imports[group, name] = _Import(_find(group, name))
            running.thread.start()
    running.thread.join(max(0.0, running.latest - time.monotonic()))
    plugin = running.plugin
    if running.thread.is_alive():
        raise PluginError(
            f"{plugin} is still being imported after {PATIENCE:g} s: see what its module does on import, and restart"
            " Sluice"
        )
    if running.error:
        raise PluginError(f"{plugin} {running.error}. Repair or remove the package, and restart Sluice")
    version = getattr(running.found, "api", None)
    if type(version) is not int or version != VERSIONS[group]:
        raise PluginError(
            f"{plugin} is written for version {_short(version)} of the interface {group}, and this Sluice has version"
            f" {VERSIONS[group]}: install a version of the package for that one, and restart Sluice"
        )
    return running.found


def _find(group: str, name: str) -> Plugin:
    """Find what brings a kind. Raises PluginError, ConfigError."""
    found = list(_search())
    plugin = next((it for it in found if (it.group, it.name) == (group, name)), None)
    if plugin is None:
        unread = "".join(f"; {it} {it.trouble}" for it in found if not it.group)
        raise ConfigError(
            f"no installed package brings {name!r} (entry point {group}): install the package that does for"
            f" {sys.executable}; `sluice plugins` lists those that are there{unread}"
        )
    if trouble := plugin.trouble or _clash(plugin, found):
        raise PluginError(f"{plugin} {trouble}")
    return plugin


def _search() -> Iterator[Plugin]:
    """Find what packages bring; of several packages of one name the first counts, as for Python."""
    known: set[str] = set()
    for folder in map(Path, dict.fromkeys(sys.path)):
        for info in sorted(folder.glob("*.dist-info")) if folder.is_dir() else ():
            match = _FOLDER.fullmatch(info.name)
            package = re.sub(r"[-_.]+", "-", match[1]).lower() if match is not None else ""
            if match is not None and package not in known:
                known.add(package)
                yield from _entries(info / "entry_points.txt", f"{package} {match[2]}")


def _entries(file: Path, package: str) -> Iterator[Plugin]:
    """Read what a package says; a file that cannot be read is one plugin without a group."""
    try:
        with file.open("rb") as opened:
            data = opened.read(LARGEST + 1)
    except (FileNotFoundError, NotADirectoryError):  # most packages have none
        return
    except OSError as error:
        yield Plugin("", "", "", package, file, f"cannot be read: {error.strerror}")
        return
    if not any(group.encode() in data for group in GROUPS):
        return
    parser = configparser.ConfigParser(delimiters=("=",), interpolation=None, strict=False)
    parser.optionxform = str  # type: ignore[assignment,method-assign]
    trouble = f"it has more than {LARGEST} bytes" if len(data) > LARGEST else ""
    try:
        parser.read_string("" if trouble else data.decode())
    except (UnicodeDecodeError, configparser.Error) as error:
        trouble = _short(error)
    if trouble:
        yield Plugin("", "", "", package, file, f"cannot be read: {trouble}")
    for group in filter(parser.has_section, GROUPS):
        for name, value in parser.items(group):
            is_right = _NAME.fullmatch(name) is not None and _VALUE.fullmatch(value) is not None
            wrong = "" if is_right else "cannot be used: it has to be NAME = MODULE:CLASS, NAME of a-z, 0-9 and '-'"
            yield Plugin(group, _short(name), _short(value), package, file, wrong)


def _clash(plugin: Plugin, found: Sequence[Plugin]) -> str:
    """Return why a kind cannot be used that several packages bring."""
    others = [it for it in found if it is not plugin and it[:2] == plugin[:2]]
    return f"cannot be used: {others[0]} brings that name, too. Uninstall one of them" if others else ""


def _short(value: object) -> str:
    """Return a text of others, without what drives terminals, and not long."""
    try:
        text = str(value)
    except Exception as error:  # noqa: BLE001  it is the code of others
        text = type(error).__name__
    return ascii(text[:LONGEST])[1:-1]
