"""The options of the data source."""

import difflib
import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, Self

from sluice.client_sdk.client import Client
from sluice.protocol.errors import BadParameterError


@dataclass(frozen=True, slots=True)
class Options:
    """What the options say; each has the option's name in snake case."""

    url: str = "http://127.0.0.1:11180"
    """Of the server; several of an HA group, comma separated."""
    destination: str = "example"
    client_id: int = 1001
    """Each query needs one of its own."""
    token: str | None = field(default=None, repr=False)
    token_file: Path | None = None
    """File that holds the token, on the driver and on every executor."""
    ca: Path | None = None
    """File of the certificates to trust, on the driver and on every executor."""
    verify: bool = True
    insecure: bool = False
    """Send the token over plain http to another machine."""
    max_rows_per_trigger: int | None = None
    max_bytes_per_trigger: int | None = None
    """Of the encoded entries; half the server's ring at most, and if not given."""
    starting_position: str = "earliest"
    """Where a client that does not exist yet begins: ``earliest``, ``latest``, or a position."""
    partitions: int = field(default_factory=lambda: len(os.sched_getaffinity(0)))
    """At most so many parts of a micro-batch; the number of the driver's cores if not given."""
    from_: str | None = None
    """Of a batch: where it begins."""
    to: str | None = None
    """Of a batch: where it ends."""

    @classmethod
    def parse(cls, options: Mapping[str, str]) -> Self:
        """Read the options that Spark has, whose names it does not tell apart by case.

        Raises:
            BadParameterError: an option is unknown, or its value cannot be used.
        """
        values: dict[str, Any] = {}
        for name, text in options.items():
            option = _OPTIONS.get(name.lower())
            if option is None:
                raise BadParameterError(f"unknown option {name!r}{_similar(name)}", name)
            attribute, read = option
            try:
                values[attribute] = read(text)
            except ValueError as error:
                raise BadParameterError(f"option {_NAMES[name.lower()]}: {error}", name) from None
        if values.get("token") is not None and values.get("token_file") is not None:
            raise BadParameterError("give either token or tokenFile", "token")
        return cls(**values)

    def client(self) -> Client:
        """Make a client of the server; nothing is sent yet."""
        token = self.token
        if self.token_file is not None:
            try:
                token = self.token_file.read_text().strip()
            except OSError as error:
                raise BadParameterError(f"option tokenFile: {error}", "tokenFile") from None
        return Client(
            self.url,
            self.destination,
            self.client_id,
            token=token,
            ca=self.ca,
            verify=self.verify,
            insecure=self.insecure,
        )


def _boolean(text: str) -> bool:
    if text.lower() not in ("true", "false"):
        raise ValueError(f"true or false is expected, not {text!r}")
    return text.lower() == "true"


def _count(text: str) -> int:
    number = _integer(text)
    if number < 1:
        raise ValueError(f"{number} is less than 1")
    return number


def _integer(text: str) -> int:
    try:
        return int(text)
    except ValueError:
        raise ValueError(f"a number is expected, not {text!r}") from None


_READ: Final[Mapping[str, tuple[str, Callable[[str], Any]]]] = {
    "url": ("url", str),
    "destination": ("destination", str),
    "clientId": ("client_id", _integer),
    "token": ("token", str),
    "tokenFile": ("token_file", Path),
    "ca": ("ca", Path),
    "verify": ("verify", _boolean),
    "insecure": ("insecure", _boolean),
    "maxRowsPerTrigger": ("max_rows_per_trigger", _count),
    "maxBytesPerTrigger": ("max_bytes_per_trigger", _count),
    "startingPosition": ("starting_position", str),
    "partitions": ("partitions", _count),
    "from": ("from_", str),
    "to": ("to", str),
}
_NAMES: Final = {name.lower(): name for name in _READ}
_OPTIONS: Final = {name.lower(): option for name, option in _READ.items()}


def _similar(name: str) -> str:
    found = difflib.get_close_matches(name.lower(), _NAMES, 1)
    return f": did you mean {_NAMES[found[0]]}?" if found else ""
