"""The OpenAPI document says what the server does: clients generated from it work, errors and batches fit it."""

import asyncio
import json
import os
import re
import sys
from pathlib import Path
from typing import Any

import pytest

from sluice.server.credentials import Credentials, Grant
from sluice.server.http.openapi import FlatBatch, FlatMessage, Problem
from tests.integration.http.served import CLIENT, Api, running

CLIENTS = Path(__file__).parents[2] / "clients" / "openapi"


@pytest.fixture
async def document(api: Api) -> dict[str, Any]:
    return dict((await api.call("GET", "/openapi.json")).json())


def operations(document: dict[str, Any]) -> dict[str, dict[str, Any]]:
    return {operation["operationId"]: operation for path in document["paths"].values() for operation in path.values()}


async def output_of(*command: object, **environ: str) -> str:
    process = await asyncio.create_subprocess_exec(
        *map(str, command), stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE, env=os.environ | environ
    )
    text, complaints = await process.communicate()
    assert process.returncode == 0, complaints.decode()
    return text.decode().strip()


@pytest.mark.extended
@pytest.mark.timeout(600)  # the first time it is downloaded
@pytest.mark.parametrize(
    "generator", ["openapi-python-client", pytest.param("openapi-generator", marks=pytest.mark.extended)]
)
async def test_a_generated_client_works(tmp_path: Path, generator: str) -> None:
    token = Credentials(tmp_path / "credentials.json").issue("generated", Grant(destinations=("example",))).text
    async with running(tmp_path) as api:
        api.source.put(3)
        document = tmp_path / "openapi.json"
        document.write_bytes((await api.call("GET", "/openapi.json")).body)
        python = await output_of(CLIENTS / "generate.sh", generator, sys.executable, document, tmp_path)
        script = CLIENTS / f"with_{generator.replace('-', '_')}.py"
        seen = json.loads(await output_of(python, script, api.base, token, PYTHONPATH=str(tmp_path)))
    assert seen == {
        "health": "ok",
        "destinations": ["example"],
        "forbidden": [403, "forbidden", True],
        "unauthorized": [401, "unauthorized", True],
        "subscribed": r"shop\..*",
        "entry": ["shop", "goods", "INSERT", [{"id": "0"}]],
        "marks": True,
        "unknown": [409, "unknown-batch", True],
        "invalid": [422, "bad-parameter", True],
        "repeated": [{"id": "1"}, {"id": "1"}],
        "stream": [["data", "database"], ["batchId", "from", "to"]],
        "unsubscribed": 200,
        "gone": [409, "not-subscribed", True],
    }


async def test_operations_have_the_names_that_the_calls_have(document: dict[str, Any]) -> None:
    assert set(operations(document)) == {
        *(
            "subscribe",
            "unsubscribe",
            "openSession",
            "getWithoutAck",
            "ack",
            "rollback",
            "protect",
            "limitClient",
            "seek",
            "skip",
            "streamBatches",
            "getClient",
        ),
        *("markRange", "splitRange", "splitLongRange", "readRange", "readLongRange"),
        *("startSnapshot", "listSnapshots", "getSnapshot", "pauseSnapshot", "resumeSnapshot", "cancelSnapshot"),
        *("listDestinations", "getDestination", "startDestination", "stopDestination"),
        *("listQuarantine", "retryQuarantine", "getSourceEnd", "listTables", "getTable"),
        *("listLog", "pruneLog", "switchSource", "listMoves", "confirmGaps", "listAudit"),
        *("createToken", "getHealth", "getReadiness", "getMetrics", "listPumps"),
    }


async def test_every_error_is_a_problem(document: dict[str, Any]) -> None:
    for name, operation in operations(document).items():
        refusals = {status: it for status, it in operation["responses"].items() if status >= "400"}
        assert {"400", "408", "414", "431", "500"} <= set(refusals), name
        assert ("401" in refusals) == ("security" in operation or name == "createToken")
        if name == "getReadiness":  # whose 503 is an answer
            del refusals["503"]
        for answer in refusals.values():
            assert answer["content"]["application/problem+json"]["schema"] == {"$ref": "#/components/schemas/Problem"}


@pytest.mark.parametrize(
    ("name", "status", "problem"),
    [
        ("getSourceEnd", "409", "source-changed"),
        ("getTable", "409", "filter-matches-nothing"),
        ("startDestination", "500", "bad-configuration"),
    ],
)
async def test_errors_of_a_single_call_are_named(
    document: dict[str, Any], name: str, status: str, problem: str
) -> None:
    assert f"`{problem}`: " in operations(document)[name]["responses"][status]["description"]


async def test_problems_and_batches_fit_their_schemas(api: Api) -> None:
    api.source.put(2)
    batch = FlatBatch.model_validate_json((await api.post("getWithoutAck")).body, strict=True)
    assert [it.data for it in batch.entries] == [[{"id": "0"}], [{"id": "1"}]]
    written = (await api.call("POST", f"{CLIENT}/ack?durable=perhaps", json={}, status=422)).body
    problem = Problem.model_validate_json(written, strict=True)
    assert [it.parameter for it in problem.errors or ()] == ["durable", "body"]
    assert problem.model_dump(exclude_unset=True, by_alias=True) == json.loads(written)


def test_every_key_of_a_flat_message_has_a_schema() -> None:
    codec = (Path(__file__).parents[3] / "protocol" / "canal" / "flat.pyx").read_text()
    assert set(re.findall(r"""b'[,{]?"(\w+)":""", codec)) == set(FlatMessage.model_fields)


async def test_a_line_of_a_stream_has_a_schema(document: dict[str, Any]) -> None:
    for name in ("getWithoutAck", "readRange", "streamBatches"):
        content = operations(document)[name]["responses"]["200"]["content"]["application/x-ndjson"]
        assert content["x-itemSchema"] == {"$ref": "#/components/schemas/StreamLine"}
    line = document["components"]["schemas"]["StreamLine"]
    assert [it["$ref"].rpartition("/")[2] for it in line["oneOf"]] == ["FlatMessage", "BatchEnd", "StreamProblem"]
    assert all(it["$ref"].rpartition("/")[2] in document["components"]["schemas"] for it in line["oneOf"])
