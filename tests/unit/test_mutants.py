"""What `make mutants` changes, and the list of what no test can notice."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.mutants import compiled, interpreted
from tests.mutants.mutant import ROOT, compiled_mutants, explanations, python_mutants


@pytest.mark.parametrize(
    ("path", "change", "code"),
    [
        ("store/reading.py", "self.marks.clear() -> pass", "self.marks.clear()"),
        ("store/clients.py", "2 -> 3", "return (self.next_id + IDS_PER_EPOCH // 2) // IDS_PER_EPOCH"),
        ("store/reading.py", ">= -> >", "(last := self.track.ring.last_data(self.ack, sequence)) >= 0"),
        ("store/subscriber.py", "<= -> <", "if _order(token) <= _order(self.session):"),
        ("instance/meta/file.py", "os.fsync(file.fileno()) -> pass", "os.fsync(file.fileno())"),
        ("instance/meta/canal.py", "or -> and", "cursor.timestamp or _creation(cursor)"),
        ("server/http/auth.py", "not in -> in", 'not in ("none", "same-origin")'),
        ("server/ha/election.py", "+ -> -", "self._held_off = now + HOLD_OFF"),
        ("server/lag.py", "max -> min", "behind > max(NOTICEABLE, age(client.lag, now))"),
    ],
)
def test_a_mistake_that_once_went_unnoticed_is_made(path: str, change: str, code: str) -> None:
    assert ROOT / path in interpreted.sources()
    made = [it.explanation.split(" | ", 2) for it in python_mutants(ROOT / path)]
    assert any(name == change and code in line for _, name, line in made)


def test_all_that_is_changed_is_another_program() -> None:
    path = ROOT / "store/subscriber.py"
    text = path.read_text()
    changed = {mutant.apply(text) for mutant in python_mutants(path)}
    assert text not in changed
    assert len(changed) > 50
    for mutant in changed:
        compile(mutant, str(path), "exec")


def test_what_is_only_said_is_left_alone(tmp_path: Path) -> None:
    path = tmp_path / "said.py"
    path.write_text(
        'import logging\nlogger = logging.getLogger("x")\n\n\ndef check(rows: "int | None" = None) -> "int | None":\n'
        '    """Say 1 + 1."""\n    logger.info("%d", 1 + 1)\n    text: int | None = None\n'
        '    assert text is None\n    raise ValueError(f"{1 + 1} rows" if rows else "none")\n'
    )
    assert python_mutants(path) == []


def test_what_only_a_type_checker_reads_or_a_model_asserts_is_left_alone(tmp_path: Path) -> None:
    path = tmp_path / "typed.py"
    path.write_text(
        "from typing import TYPE_CHECKING\n\nif TYPE_CHECKING:\n    from collections.abc import Mapping\n\n\n"
        'class Row(Model):\n    config = Config(frozen=True, extra="forbid")\n'
    )
    assert python_mutants(path) == []


def test_what_was_tried_is_tried_again_only_if_its_own_function_has_changed(tmp_path: Path) -> None:
    path = tmp_path / "changed.py"

    def keys(before: str, after: str) -> list[str]:
        path.write_text(f"{before}\n\ndef find(row):\n    if row > 1:\n        return row + 1\n    {after}\n")
        return [it.key for it in python_mutants(path) if it.unit.name == "find"]

    first = keys("MOST = 3", "return row")
    assert len(first) == 4
    assert keys("MOST = 4\nLEAST = 1", "return row") == first
    assert not set(keys("MOST = 3", "return -row")) & set(first)


def run(code: str) -> list[str]:
    """Run a program of its own: it replaces functions, and waits for all of its children."""
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)
    return done.stdout.splitlines()


def test_a_function_does_what_the_mutant_does_wherever_it_was_imported() -> None:
    assert run(
        "from sluice.store.subscriber import _attempt\n"
        "from tests.mutants.interpreted import ROOT, Functions, python_mutants\n"
        "functions = Functions()\n"
        "found = [it for it in python_mutants(ROOT / 'store/subscriber.py') if it.unit.name == '_attempt']\n"
        "print(_attempt('token.7')[1])\n"
        "functions.replace(next(it for it in found if it.old == '0'))\n"
        "print(_attempt('token.7')[1], _attempt('token.x')[1])\n"
    ) == ["7", "7 1"]


def test_a_process_that_waits_too_long_is_ended_and_one_that_computes_is_not() -> None:
    ended = run(
        "import time\n"
        "from tests.mutants.processes import run_all\n"
        "def compute():\n"
        "    end = time.process_time() + 0.5\n"
        "    while time.process_time() < end:\n"
        "        pass\n"
        "    return 3\n"
        "jobs = [('waits', lambda: time.sleep(60), 1.0), ('computes', compute, 1.0), ('fails', lambda: 1 // 0, 1.0)]\n"
        "run_all(jobs, lambda what, code: print(what, code), 2)\n"
    )
    assert sorted(ended) == ["computes 3", "fails 77", "waits -9"]


@pytest.mark.extended
def test_each_explanation_is_of_a_mutant_that_there_is() -> None:
    explained = {it.partition(" | ")[0] for it in explanations()}
    there: set[str] = set()
    for path in (*interpreted.sources(), *compiled.sources()):
        if os.path.relpath(path, ROOT) in explained:
            found = python_mutants(path) if path.suffix == ".py" else compiled_mutants(path)
            there |= {mutant.explanation for mutant in found}
    assert explanations() - there == set()
