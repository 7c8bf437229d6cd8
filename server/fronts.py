"""The registry of fronts: what serves clients over the network, and whether it may. To add one, see docs/internals.md.

What serves is loaded only where it does (`serving`): compiled code, which reading a configuration does not need.
"""

from collections.abc import Iterable
from importlib import import_module
from typing import Any, Protocol

from .front import FrontConfig
from .grpc.config import PumpConfig
from .http.config import HttpConfig
from .tcp.config import TcpConfig

FRONTS: tuple[type[FrontConfig], ...] = (HttpConfig, TcpConfig, PumpConfig)
"""Each by its configuration, which stands in the front's folder beside two modules: ``checks``, see `Checks`, and
``serve``, see `resources.Serve`."""


class Checks(Protocol):
    """What the module ``checks`` of a front has."""

    def require_safe(self, config: FrontConfig) -> None:
        """Raise ConfigError when it may not be served as configured."""

    def doubts(self, config: FrontConfig) -> list[str]:
        """Say what is unsafe of it, and served all the same."""


def require_safe(fronts: Iterable[FrontConfig]) -> None:
    """Raise ConfigError when a front may not be served as configured."""
    for front in served(fronts):
        checks: Checks = module_of(front, "checks")
        checks.require_safe(front)


def doubts(fronts: Iterable[FrontConfig]) -> list[str]:
    """Say what is unsafe of fronts, and served all the same."""
    found: list[str] = []
    for front in served(fronts):
        checks: Checks = module_of(front, "checks")
        found += checks.doubts(front)
    return found


def served(fronts: Iterable[FrontConfig]) -> list[FrontConfig]:
    """Return those that listen."""
    return [front for front in fronts if front.is_served]


def module_of(front: FrontConfig, name: str) -> Any:
    """Return a module of a front's folder."""
    return import_module(f".{name}", type(front).__module__.rpartition(".")[0])
