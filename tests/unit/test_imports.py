"""What importing costs: a client that needs no asyncio loads no HTTP library for it, configuration nothing compiled."""

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from sluice import client_sdk
from sluice.client_sdk import tidb as client_sdk_tidb


@pytest.mark.parametrize("module", ["sluice.client_sdk", "sluice.client_sdk.spark"])
def test_the_library_for_asyncio_is_loaded_for_its_clients_only(module: str) -> None:
    code = f"import sys, {module}; print('aiohttp' in sys.modules, end=' '); "
    code += "from sluice.client_sdk import AsyncClient, AsyncClusterClient; print('aiohttp' in sys.modules)"
    shown = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)
    assert shown.stdout == "False True\n"


def test_the_libraries_for_pumps_are_loaded_for_their_clients_only() -> None:
    code = "import sys, sluice.client_sdk.tidb; print('grpc' in sys.modules, 'google.protobuf' in sys.modules); "
    code += "from sluice.client_sdk.tidb import *; print('grpc' in sys.modules, 'google.protobuf' in sys.modules)"
    shown = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)
    assert shown.stdout == "False False\nTrue True\n"


@pytest.mark.parametrize("module", [client_sdk, client_sdk_tidb])
def test_what_is_not_there_is_an_error(module: Any) -> None:
    with pytest.raises(AttributeError, match=rf"module '{module.__name__}' has no attribute 'Nothing'"):
        _ = module.Nothing


def test_modules_go_by_the_places_of_their_files() -> None:
    """In a checkout they are found through links: breakpoints set in the files would not be met under other names."""
    assert Path(client_sdk.__file__) == Path(client_sdk.__file__).resolve()


def test_configuration_loads_nothing_that_is_compiled() -> None:
    code = "import sys, sluice.server.config; "
    code += "print(*(name for name, it in sys.modules.items() if (getattr(it, '__file__', '') or '').endswith('.so')))"
    shown = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)
    assert not [name for name in shown.stdout.split() if name.startswith("sluice.")]
