"""Whether the source, the output and the form keep their promises: `pytest promises.py`."""

import json
from pathlib import Path

from sluice_example.form import Rows
from sluice_example.output import Journal, JournalSettings, read
from sluice_example.source import JsonLines, JsonLinesSettings

from sluice.server.conformance import form_faults, output_faults, source_faults


def test_the_source(tmp_path: Path) -> None:
    file = tmp_path / "changes.jsonl"
    file.touch()

    def write(first: int, count: int, size: int) -> None:
        with file.open("a") as lines:
            for number in range(first, first + count):
                row = {"id": number, "text": "x" * size}
                lines.write(json.dumps({"schema": "shop", "table": "t", "type": "INSERT", "row": row}) + "\n")

    def spoil() -> None:
        with file.open("a") as lines:
            lines.write("no change\n")

    assert source_faults("json-lines", JsonLines, JsonLinesSettings(file=file), write, spoil) == []


def test_the_output(tmp_path: Path) -> None:
    file = tmp_path / "journal"

    def ids() -> list[int]:
        return [int(json.loads(line)["data"][0]["id"]) for line in read(file).splitlines()]

    assert output_faults(Journal, JournalSettings(file=file), ids) == []


def test_the_form() -> None:
    assert form_faults(Rows) == []
