"""What is configured of every front: of what serves clients over the network."""

from pathlib import Path
from typing import Annotated, ClassVar, Self

from pydantic import AfterValidator

from ..instance.config import is_host
from ..instance.settings import FolderPath, Settings, setting

EVERYWHERE = ("0.0.0.0", "::")  # noqa: S104  nothing is bound here


def _host(value: str) -> str:
    if value and not is_host(value):
        raise ValueError(f"{value[:200]!r} is not the name or address of a host")
    return value


Host = Annotated[str, AfterValidator(_host)]
"""The name or address of a host, or nothing."""


class FrontConfig(Settings):
    """The configuration of a front, which gives ``host`` and ``port`` keys of its own."""

    title: ClassVar[str]
    """What messages call it."""

    host: str
    port: int

    # Access.

    credentials: FolderPath = setting("sluice.http.credentials", Path("credentials.json"))
    """File of the tokens and users, written by `sluice token` and `sluice user`. While it holds none, the API asks for
    none."""
    insecure: bool = setting("sluice.http.insecure", default=False)
    """Listen for other hosts even without a certificate or credentials. This includes the port for Canal's clients.
    Everybody who reaches the server can then read every change."""

    @classmethod
    def key_of(cls, field: str) -> str:
        """Return the key of a field."""
        return cls.model_fields[field].alias or field

    @property
    def is_served(self) -> bool:
        """Whether it listens at all."""
        return True

    def of_process(self, number: int) -> Self:
        """Return what a process of several has: ports of its own, the given one and up."""
        return self.model_copy(update={"port": self.port + number})

    def announcement(self, address: str) -> str:
        """Say that it serves, at an address."""
        return f"the {self.title} is served at {address}"

    def warnings(self) -> list[str]:
        """Name what is configured and should not be."""
        return []
