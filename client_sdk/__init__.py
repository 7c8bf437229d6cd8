"""What a consumer of changes needs: `Client` and, for asyncio, `AsyncClient`."""

from sluice.client_sdk.aio import AsyncClient
from sluice.client_sdk.batch import Batch
from sluice.client_sdk.client import Client

__all__ = ["AsyncClient", "Batch", "Client"]
