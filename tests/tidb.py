"""The captured records of TiDB's secondary binlog; tests/data/README.md says what they hold."""

import base64
import json
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

DATA = Path(__file__).parent / "data" / "tidb"


@dataclass(frozen=True, slots=True)
class Record:
    """A record, and what somebody else has read in it."""

    label: str
    offset: int
    commit_ts: int
    value: bytes
    decoded: dict[str, Any]


@cache
def captured() -> list[Record]:
    """Return the records that Drainer wrote."""
    return [
        Record(it["label"], it["offset"], it["commit_ts"], base64.b64decode(it["value"]), decoded)
        for it, decoded in zip(_lines("kafka_slave"), _lines("kafka_slave_decoded"), strict=True)
    ]


def in_tokyo() -> list[bytes]:
    """Return those of a Drainer whose time zone is Asia/Tokyo."""
    return [base64.b64decode(it["value"]) for it in _lines("kafka_slave_tokyo")]


def _lines(name: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (DATA / f"{name}.jsonl").read_text().splitlines()]
