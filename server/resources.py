"""What a process gives its fronts, and what it asks of them."""

from collections.abc import Collection
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol, TypeVar

from .embedded import EmbeddedServer
from .front import FrontConfig
from .logins import LoginLimiter
from .metrics import Metrics
from .pumps import Pumps
from .waiting import Stopping

F = TypeVar("F", bound=FrontConfig)


class Secrets(Protocol):
    """The files with secrets that the configuration of the server names."""

    @property
    def secrets(self) -> Collection[Path]:
        """The files."""

    def renewed(self, kind: type[F]) -> F:
        """Return the configuration of a front with what these files have now. Raises ConfigError."""


@dataclass(frozen=True, slots=True)
class Resources:
    """What a process gives its fronts."""

    embedded: EmbeddedServer
    metrics: Metrics
    stopping: Stopping
    logins: LoginLimiter
    """Counts failed logins."""
    pumps: Pumps = field(default_factory=list)
    """Where the pump of the process stands, if it has one: its front tells the others."""
    secrets: Secrets | None = None
    """None: there is no file that could change."""


class Serve(Protocol):
    """What the module ``serve`` of a front has."""

    def serving(self, config: FrontConfig, resources: Resources) -> AbstractAsyncContextManager[str]:
        """Serve while the block runs; gives the address.

        When the stop is announced, nothing may wait any more. The end of the block leaves answers under way
        `STOP_SECONDS`. Raises ConfigError when it cannot listen as configured, OSError when it cannot.
        """
