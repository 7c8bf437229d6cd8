"""What a consumer of changes needs: `Client` and, for asyncio, `AsyncClient`; for several servers `ClusterClient`.

All that a consumer's program names is here: the errors, the types of arguments and results, and the version.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from .. import __version__
from ..protocol.canal.rows import Change, Row
from ..protocol.canal.types import JSON_NULL
from ..protocol.errors import (
    AckOutOfOrderError,
    BadParameterError,
    BadPositionError,
    BusyError,
    ConnectionLostError,
    DecodeError,
    DestinationStoppedError,
    FencedError,
    FilterError,
    ForbiddenError,
    GapError,
    GoneError,
    LimitError,
    NotConfiguredError,
    NotStoredError,
    NotSubscribedError,
    OwnedError,
    PurgedError,
    QuotaExceededError,
    ReshapedError,
    SchemaMismatchError,
    SluiceError,
    SnapshotRunningError,
    SourceChangedError,
    SourceError,
    StaleSessionError,
    TooManyAttemptsError,
    UnauthorizedError,
    UnknownBatchError,
    UnknownDestinationError,
    UnknownSnapshotError,
    UnknownTableError,
    ZooKeeperError,
)
from ..protocol.position import Position
from ..protocol.xa import Xa
from .batch import Batch, Column, InvalidDates, Part, Range
from .calls import Limits, Snapshot, Start
from .client import Client
from .cluster import ClusterClient
from .keys import Key, ProcessingError

if TYPE_CHECKING:
    from .aio import AsyncClient
    from .aio_cluster import AsyncClusterClient

__all__ = [
    "JSON_NULL",
    "AckOutOfOrderError",
    "AsyncClient",
    "AsyncClusterClient",
    "BadParameterError",
    "BadPositionError",
    "Batch",
    "BusyError",
    "Change",
    "Client",
    "ClusterClient",
    "Column",
    "ConnectionLostError",
    "DecodeError",
    "DestinationStoppedError",
    "FencedError",
    "FilterError",
    "ForbiddenError",
    "GapError",
    "GoneError",
    "InvalidDates",
    "Key",
    "LimitError",
    "Limits",
    "NotConfiguredError",
    "NotStoredError",
    "NotSubscribedError",
    "OwnedError",
    "Part",
    "Position",
    "ProcessingError",
    "PurgedError",
    "QuotaExceededError",
    "Range",
    "ReshapedError",
    "Row",
    "SchemaMismatchError",
    "SluiceError",
    "Snapshot",
    "SnapshotRunningError",
    "SourceChangedError",
    "SourceError",
    "StaleSessionError",
    "Start",
    "TooManyAttemptsError",
    "UnauthorizedError",
    "UnknownBatchError",
    "UnknownDestinationError",
    "UnknownSnapshotError",
    "UnknownTableError",
    "Xa",
    "ZooKeeperError",
    "__version__",
]

_LATER = {"AsyncClient": "aio", "AsyncClusterClient": "aio_cluster"}
"""Modules that are imported when they are asked for: aiohttp takes 0.1 s, and Spark starts many processes."""


def __getattr__(name: str) -> Any:
    if name not in _LATER:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    try:
        return getattr(import_module(f"{__name__}.{_LATER[name]}"), name)
    except ModuleNotFoundError as error:
        if error.name != "aiohttp":
            raise
        raise ImportError(f"{name} needs aiohttp: pip install 'sluice-cdc[aio]'") from error
