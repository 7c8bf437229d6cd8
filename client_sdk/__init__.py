"""What a consumer of changes needs: `Client` and, for asyncio, `AsyncClient`; for several servers `ClusterClient`."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from sluice.client_sdk.batch import Batch
from sluice.client_sdk.client import Client
from sluice.client_sdk.cluster import ClusterClient

if TYPE_CHECKING:
    from sluice.client_sdk.aio import AsyncClient
    from sluice.client_sdk.aio_cluster import AsyncClusterClient

__all__ = ["AsyncClient", "AsyncClusterClient", "Batch", "Client", "ClusterClient"]

_LATER = {"AsyncClient": "aio", "AsyncClusterClient": "aio_cluster"}
"""Modules that are imported when they are asked for: aiohttp takes 0.1 s, and Spark starts many processes."""


def __getattr__(name: str) -> Any:
    if name not in _LATER:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_LATER[name]}"), name)
