"""Java's .properties files, their placeholders, and the environment that overrides them (see java.util.Properties)."""

import difflib
import re
from collections.abc import Collection, Iterable, Iterator, Mapping
from functools import lru_cache
from pathlib import Path
from typing import Final, NamedTuple

from ..protocol.errors import ConfigError

LARGEST_FILE: Final = 16 << 20
"""Bytes of a file of properties."""
LONGEST: Final = 1 << 20
"""Characters of a value whose placeholders are replaced."""
DEEPEST: Final = 50
MOST_PLACEHOLDERS: Final = 10_000
LARGEST_SECRET: Final = 64 << 10
"""Bytes of a file that holds a secret."""

_SECRET = re.compile(r"(?i:.*(?:password|passwd|secret))")
_SECRET_FILE = re.compile(rf"({_SECRET.pattern})File")

BLANKS = " \t\f"
ESCAPES = {"t": "\t", "n": "\n", "r": "\r", "f": "\f"}


class Property(NamedTuple):
    """A value as it was written, and where: ``conf/canal.properties:12``, ``environment variable SLUICE_HTTP_PORT``."""

    value: str
    origin: str
    is_file: bool = False
    """Whether the value is the name of a file that holds it."""


def read_properties(path: Path) -> dict[str, Property]:
    """Read a file. It is UTF-8, or Latin-1 if it is not valid UTF-8. Raises ConfigError."""
    try:
        with path.open("rb") as file:
            data = file.read(LARGEST_FILE + 1)
    except OSError as error:
        raise ConfigError(f"cannot read {path}: {error.strerror}") from error
    if len(data) > LARGEST_FILE:
        raise ConfigError(f"{path} has more than {LARGEST_FILE} bytes")
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError:
        text = data.decode("latin-1")
    return parse_properties(text, str(path))


def parse_properties(text: str, name: str) -> dict[str, Property]:
    r"""Parse the text of a file; ``name`` is what the origins call it. The last of several lines with a key counts.

    A line is ``key = value``, ``key : value`` or ``key value``; ``#`` and ``!`` begin comments; a backslash at the end
    of a line continues it; ``\t \n \r \f \uXXXX`` are escapes, and a backslash before any other character drops out,
    which is why those of regular expressions are doubled. Values are trimmed, as Canal does.

    A password or another secret may be in a file of its own: ``dbPasswordFile`` gives that as ``dbPassword``.

    Raises ConfigError.
    """
    properties = {}
    for number, line in _logical_lines(text):
        match = re.match(r"((?:\\.|[^\\=: \t\f])*)[ \t\f]*[=:]?[ \t\f]*(.*)", line, re.DOTALL)
        assert match is not None  # every part may be empty
        origin = f"{name}:{number}"
        properties[_unescape(match[1], origin)] = Property(_unescape(match[2], origin).strip(), origin)
    return _with_secrets(properties)


def _with_secrets(properties: Mapping[str, Property]) -> dict[str, Property]:
    """Give those that name files with secrets the keys of the secrets. Raises ConfigError."""
    found = dict(properties)
    for key, item in properties.items():
        if (match := _SECRET_FILE.fullmatch(key)) is None:
            continue
        del found[key]
        if item.value:
            given = found.get(match[1])
            if given is not None and given.value:
                raise ConfigError(f"{item.origin}: {key} and {match[1]} ({given.origin}) are both given: leave one out")
            found[match[1]] = item._replace(is_file=True)
    return found


def _logical_lines(text: str) -> Iterator[tuple[int, str]]:
    """Yield the lines that are not comments, continued ones joined, each with the number of its first line."""
    lines = enumerate(re.split(r"\r\n|\r|\n", text), 1)
    for number, line in lines:
        logical = line.lstrip(BLANKS)
        if not logical or logical[0] in "#!":
            continue
        pieces = [logical]
        while (len(pieces[-1]) - len(pieces[-1].rstrip("\\"))) % 2:
            pieces[-1] = pieces[-1][:-1]
            pieces.append(next(lines, (0, ""))[1].lstrip(BLANKS))
        yield number, "".join(pieces)


def _unescape(text: str, origin: str) -> str:
    def replace(match: re.Match[str]) -> str:
        if match[1] is not None:
            return chr(int(match[1], 16))
        if match[2] == "u":
            raise ConfigError(
                f"{origin}: \\u has to be followed by four hexadecimal digits; write \\\\ for a backslash"
            )
        return ESCAPES.get(match[2], match[2])

    text = re.sub(r"\\(?:u([0-9A-Fa-f]{4})|(.))", replace, text, flags=re.DOTALL)
    # Characters beyond U+FFFF are written as two escapes, a surrogate pair.
    return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")


@lru_cache(4096)
def environment_name(key: str) -> str:
    """Return the variable that overrides ``key``: ``canal.instance.dbPassword`` is ``SLUICE_INSTANCE_DB_PASSWORD``."""
    words = re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", key.removeprefix("canal.").removeprefix("sluice."))
    return "SLUICE_" + words.replace(".", "_").upper()


@lru_cache(4096)
def variables_of(key: str) -> tuple[tuple[str, bool], ...]:
    """Return the environment variables that give a key, the first wins, and whether each names a file with its value.

    They are that of `environment_name` and, as in Canal, the key itself; of a secret both with ``_FILE`` or ``File``.
    """
    name = environment_name(key)
    files = ((f"{name}_FILE", True), (f"{key}File", True)) if _SECRET.fullmatch(key) else ()
    return ((name, False), (key, False), *files)


def is_service_link(name: str, value: str) -> bool:
    """Whether Kubernetes or Docker has set a variable, for a service whose name begins like ours: not a key's value.

    For a service ``sluice`` that is ``SLUICE_PORT=tcp://10.0.0.1:80``, for ``sluice-http`` ``SLUICE_HTTP_PORT``.
    """
    return name.startswith("SLUICE_") and name.endswith("_PORT") and re.match("(tcp|udp|sctp)://", value) is not None


class Lookup:
    """Finds the value of a key: in the environment, else in the last of the files that has it.

    In the environment a key goes by the name of `environment_name` or, as in Canal, by its own dotted name. A value may
    hold placeholders, ``${key}`` or ``${key:default}``, nested too; a key that is nowhere is empty, as in Canal.

    A password or another secret may stand in a file of its own, which ``dbPasswordFile`` names in place of
    ``dbPassword``, or ``SLUICE_INSTANCE_DB_PASSWORD_FILE`` in the environment. It has no placeholders.
    """

    def __init__(
        self, *files: Mapping[str, Property], environ: Mapping[str, str], secrets: set[Path] | None = None
    ) -> None:
        """``secrets`` gets the files with secrets that are read."""
        self._properties: dict[str, Property] = {}
        for file in files:
            self._properties |= file
        self._environ = environ
        self._secrets = set() if secrets is None else secrets
        self._replaced = 0  # placeholders of the value that is being read

    @property
    def keys(self) -> Collection[str]:
        """The keys that the files have."""
        return self._properties.keys()

    def __call__(self, keys: Iterable[str]) -> dict[str, Property]:
        """Return those of ``keys`` that are given, with placeholders replaced. Raises ConfigError."""
        found = {key: self._find(key) for key in keys}
        return {
            key: Property(self._replace(item, (key,)), item.origin) for key, item in found.items() if item is not None
        }

    def _find(self, key: str) -> Property | None:
        for name, is_file in variables_of(key):
            value = self._environ.get(name, "").strip()
            if value and not is_service_link(name, value):
                return Property(value, f"environment variable {name}", is_file)
        return self._properties.get(key)

    def _replace(self, item: Property, path: tuple[str, ...]) -> str:
        """Return a value with its placeholders replaced; ``path`` are the keys whose values led here."""
        self._replaced = 0
        return self._value(item, path, 0)

    def _value(self, item: Property, path: tuple[str, ...], depth: int) -> str:
        text = self._expand(item.value, item.origin, path, depth)
        if not item.is_file:
            return text
        file = Path(text)
        self._secrets.add(file)
        return read_secret(file, path[-1], item.origin)

    def _expand(self, text: str, origin: str, path: tuple[str, ...], depth: int) -> str:
        """Replace the placeholders in a part of a value, within bounds: a few keys can expand to very much."""
        pieces, begin = [], 0
        while (start := text.find("${", begin)) >= 0:
            self._replaced += 1
            if depth > DEEPEST or self._replaced > MOST_PLACEHOLDERS:
                raise _too_much(origin)
            end = _end_of_placeholder(text, start, origin)
            key, _, default = self._expand(text[start + 2 : end - 1], origin, path, depth + 1).partition(":")
            if key in path:
                raise ConfigError(f"{origin}: the placeholder ${{{key}}} leads back to itself")
            item = self._find(key)
            if item and item.value:
                default = self._value(item, (*path, key), depth + 1)
            pieces += [text[begin:start], default]
            begin = end
        pieces.append(text[begin:])
        if sum(map(len, pieces)) > LONGEST:
            raise ConfigError(f"{origin}: {path[0]} is longer than {LONGEST} characters")
        return "".join(pieces)


def read_secret(file: Path, key: str, origin: str) -> str:
    """Return what a file has for a key, without the end of its line; ``origin`` names it. Raises ConfigError."""
    if not file.is_absolute():
        raise ConfigError(f"{origin}: the file with {key} has to be named by its whole path, not {file}")
    try:
        if file.exists() and not file.is_file():  # a pipe would be waited for
            raise ConfigError(f"{origin}: {file}, which is to hold {key}, is not a file")
        with file.open("rb") as opened:
            data = opened.read(LARGEST_SECRET + 1)
    except OSError as error:
        raise ConfigError(f"{origin}: cannot read {key} from {file}: {error.strerror}") from None
    if len(data) > LARGEST_SECRET:
        raise ConfigError(f"{origin}: {file}, which is to hold {key}, has more than {LARGEST_SECRET} bytes")
    try:
        return data.decode().removesuffix("\n").removesuffix("\r")
    except UnicodeDecodeError:
        raise ConfigError(f"{origin}: {file}, which is to hold {key}, is not UTF-8") from None


def _end_of_placeholder(text: str, start: int, origin: str) -> int:
    """Return where the placeholder that starts there ends, after its brace. Raises ConfigError."""
    depth = 0
    for match in re.compile(r"\$\{|\}").finditer(text, start):
        depth += 1 if match[0] == "${" else -1
        if not depth:
            return match.end()
        if depth > DEEPEST:
            raise _too_much(origin)
    raise ConfigError(f"{origin}: a placeholder is not closed; write ${{key}} or ${{key:default}}")


def _too_much(origin: str) -> ConfigError:
    return ConfigError(
        f"{origin}: a value stands for too much: placeholders may be nested {DEEPEST} deep, and be"
        f" {MOST_PLACEHOLDERS} in all"
    )


def unknown(name: str, known: Collection[str]) -> str:
    """Say that a key is unknown, and which one may be meant."""
    meant = nearest(name, known)
    return f"{name} is unknown" + (f"; is {meant} meant?" if meant else "")


def nearest(name: str, known: Collection[str], alike: float = 0.6) -> str:
    """Return the name that is most like another one, if any is so much like it; else nothing."""
    return next(iter(difflib.get_close_matches(name, known, 1, alike)), "")
