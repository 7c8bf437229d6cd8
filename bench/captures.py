"""The workloads as binlog files, written by real servers once and kept in the cache; and what they weigh."""

import argparse
import json
import os
import shutil
from dataclasses import dataclass
from pathlib import Path

from bench.measuring import Case, Progress, add_choices, chosen
from bench.sources import SOURCES, source, version_of
from bench.workloads import ROWS, WRITTEN, write

COMPARED = ("mysql97", "mysql97-compressed")
CASES = (*ROWS, *(f"{workload}-{name}" for workload in ROWS for name in COMPARED))
"""Each workload on MariaDB, and on MySQL 9.7 without and with transaction compression."""


@dataclass(frozen=True, slots=True)
class Capture:
    """A binlog file, and what has to be known of its source to decode it."""

    path: Path
    version: str
    charsets: dict[int, str]
    rows: int
    mariadb: bool


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Say what can be chosen."""
    add_choices(parser, CASES, repeats=1)
    parser.add_argument("--rows", type=int, help="row changes; otherwise as many as the workload has")
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> dict[str, object]:
    """Make what is not in the cache; a case tells the bytes of a row change in the binlog, beside those of MariaDB."""
    wanted = [name.partition("-") for name in chosen(arguments)]
    rows = {workload: arguments.rows or ROWS[workload] for workload, _, _ in wanted}
    seconds = sum(5 + rows[workload] / WRITTEN[workload] for workload, _, _ in wanted)
    progress = Progress("workloads", len(wanted), seconds)
    cases: list[Case] = []
    versions = {}
    for workload, _, other in wanted:
        capture = captured(other or "mariadb118", workload, rows[workload])
        versions[other or "mariadb118"] = capture.version
        size = round(capture.path.stat().st_size / capture.rows, 1)
        name = f"{workload}-{other}" if other else workload
        of_mariadb = next((case["ours"] for case in cases if case["case"] == workload), None)
        cases.append(
            {
                "case": name,
                "unit": "bytes/row",
                "ours": size,
                "anchor_name": "MariaDB 11.8" if of_mariadb else None,
                "anchor": of_mariadb,
                "ratio": round(size / of_mariadb, 3) if of_mariadb else None,
                "spread": [size, size],
                "cpu_s_per_mrow": {},
                "peak_mb": {},
                "rows": capture.rows,
            }
        )
        progress.done(f"{name}: {capture.rows} rows, {capture.path.stat().st_size / 1e6:.1f} MB in {capture.path}")
    return {"versions": versions, "cases": cases}


def captured(name: str, workload: str, rows: int) -> Capture:
    """Return the binlog of a source with a workload of ``rows`` row changes."""
    cache = os.environ.get("SLUICE_CACHE") or f"{os.environ.get('XDG_CACHE_HOME') or Path.home() / '.cache'}/sluice"
    folder = Path(cache, "bench", f"{name}-{workload}-{rows}")
    if not (folder / "facts.json").exists():
        folder.mkdir(parents=True, exist_ok=True)
        with source(name) as server:
            written = write(server, workload, rows)
            server.query("FLUSH LOGS")
            shutil.copyfile(server.data / written.file, folder / written.file)
            view = "collation_character_set_applicability" if server.mariadb else "collations"  # MariaDB: more ids
            charsets = dict(server.query(f"SELECT id, character_set_name FROM information_schema.{view}"))
            facts = {"file": written.file, "version": version_of(server), "charsets": charsets}
            (folder / "facts.json").write_text(json.dumps(facts))
    facts = json.loads((folder / "facts.json").read_text())
    charsets = {int(number): charset for number, charset in facts["charsets"].items()}
    return Capture(folder / facts["file"], facts["version"], charsets, rows, SOURCES[name][0].startswith("mariadb"))
