"""What importing costs: who needs no asyncio does not load an HTTP library for it."""

import subprocess
import sys

import pytest

from sluice import client_sdk


@pytest.mark.parametrize("module", ["sluice.client_sdk", "sluice.client_sdk.spark"])
def test_the_library_for_asyncio_is_loaded_for_its_clients_only(module: str) -> None:
    code = f"import sys, {module}; print('aiohttp' in sys.modules, end=' '); "
    code += "from sluice.client_sdk import AsyncClient, AsyncClusterClient; print('aiohttp' in sys.modules)"
    shown = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)
    assert shown.stdout == "False True\n"


def test_what_is_not_there_is_an_error() -> None:
    with pytest.raises(AttributeError, match=r"module 'sluice\.client_sdk' has no attribute 'Nothing'"):
        _ = client_sdk.Nothing
