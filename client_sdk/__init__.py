"""What a consumer of changes needs: `Client` and, for asyncio, `AsyncClient`; for several servers `ClusterClient`."""

from sluice.client_sdk.aio import AsyncClient
from sluice.client_sdk.batch import Batch
from sluice.client_sdk.client import Client
from sluice.client_sdk.cluster import AsyncClusterClient, ClusterClient

__all__ = ["AsyncClient", "AsyncClusterClient", "Batch", "Client", "ClusterClient"]
