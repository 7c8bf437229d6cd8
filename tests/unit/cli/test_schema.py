"""The history of tables on the command line."""

import getpass
import json
from collections.abc import Callable
from pathlib import Path

import pytest

from sluice.instance.audit import path_of, read
from sluice.instance.sources.mysql.history.file import FileDatabase
from sluice.instance.sources.mysql.history.tables import Catalog, Column, Database, Table
from sluice.instance.sources.mysql.history.versions import History
from sluice.protocol.position import Position
from sluice.server.cli.command import main
from sluice.server.cli.schema import NOTHING

SOURCE = "canal.instance.master.address = 127.0.0.1:1\ncanal.instance.dbUsername = cdc\n"
FIRST, SECOND, LAST = (f"1/bin.000003@7:{begin}:0" for begin in (100, 200, 300))
Sluice = Callable[..., tuple[int, list[str], str]]


@pytest.fixture
def sluice(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Sluice:
    """Runs `sluice schema` for a destination without any history; gives exit status, lines and errors."""
    (tmp_path / "example").mkdir()
    (tmp_path / "canal.properties").write_text("canal.destinations = example\n")
    (tmp_path / "example" / "instance.properties").write_text(SOURCE)
    monkeypatch.setenv("SLUICE_CONF", str(tmp_path))
    monkeypatch.setenv("COLUMNS", "200")

    def run(*arguments: str) -> tuple[int, list[str], str]:
        with pytest.raises(SystemExit) as exit_:
            main(("schema", arguments[0], "example", *arguments[1:]))
        written = capsys.readouterr()
        assert isinstance(exit_.value.code or 0, int)
        return int(exit_.value.code or 0), written.out.splitlines(), written.err

    return run


@pytest.fixture
def followed(sluice: Sluice, tmp_path: Path) -> Sluice:
    """The same after a stream in which a table got a column, and another one was made."""
    history, catalog = History(FileDatabase(tmp_path / "example", writes=True), writes=True), Catalog()
    orders = Table((Column("id", "bigint"), Column("é", "varchar(9)", "latin1")), ("id",), "latin1")
    catalog.put_database("shop", Database("latin1", {"orders": orders}, is_complete=True))
    history.begin_at(catalog, None)
    history.begin(catalog, Position.parse(FIRST), "")
    catalog.changes.clear()
    more = Table((*orders.columns, Column("total", "int", generated=True, invisible=True)), ("id",), "latin1")
    catalog.put("shop", "orders", more)
    catalog.put("shop", "goods", Table((Column("id", "int"),), (), None))
    history.add(Position.parse(SECOND), "", "a statement", catalog.changes)
    history.cover(Position.parse(LAST), str)
    history.close()
    return sluice


ORDERS = ["shop.orders", "  id bigint key", "  é varchar(9) latin1"]


def test_the_tables_of_a_place_are_shown(followed: Sluice) -> None:
    assert followed("show", "--at", FIRST) == (0, ORDERS, "")
    assert followed("show") == (0, ["shop.goods", "  id int", *ORDERS, "  total int generated invisible"], "")
    assert followed("show", "shop.goods") == (0, ["shop.goods", "  id int"], "")


def test_of_a_group_the_history_of_a_member_is_shown(followed: Sluice, tmp_path: Path) -> None:
    group = SOURCE + "sluice.instance.source = group\nsluice.group.members = a, b\nsluice.group.was = a\n"
    (tmp_path / "example" / "instance.properties").write_text(group)
    assert followed("show", "--at", FIRST, "--member", "a") == (0, ORDERS, "")
    assert followed("show", "--at", f"a/{FIRST},b/{LAST}", "--member", "a") == (0, ORDERS, "")
    assert "is a place of a group, without one of a" in followed("show", "--at", f"b/{LAST}", "--member", "a")[2]
    assert followed("history", "--member", "b") == (0, [NOTHING], "")
    for name in ([], ["--member", "c"]):
        status, _, error = followed("show", *name)
        assert status != 0
        assert "example has a history for each member: --member a or b" in error


def test_a_single_source_has_no_members(followed: Sluice) -> None:
    status, _, error = followed("show", "--member", "a")
    assert status != 0
    assert "example has no members: leave out --member" in error


def test_a_table_that_is_not_there_is_an_error(followed: Sluice) -> None:
    assert followed("show", "shop.goods", "--at", FIRST) == (1, [], "there is no table shop.goods at this place\n")


def test_a_place_that_was_not_passed_is_an_error_that_names_what_is_known(followed: Sluice, sluice: Sluice) -> None:
    status, _, error = followed("show", "--at", "1/bin.000004@9:4:0")
    assert status != 0
    assert f"known; example knows from {FIRST} to {LAST}" in error


def test_without_a_history_it_says_so(sluice: Sluice) -> None:
    status, _, error = sluice("show")
    assert status != 0
    assert "the tables at the end are not known; example knows nowhere: the source says the columns" in error
    assert sluice("history") == (0, [NOTHING], "")


def test_what_has_changed_tables_is_listed_with_its_place(followed: Sluice) -> None:
    status, lines, _ = followed("history")
    assert (status, [it.split("  ")[0] for it in lines if "bin" in it]) == (0, [FIRST, SECOND])
    assert [it for it in lines if "bin" not in it] == [
        "  all tables, as the source had them",
        "  a statement",
        "  → shop.orders, shop.goods",
    ]
    assert len(followed("history", "shop.goods")[1]) == 5
    assert len(followed("history", "shop.others")[1]) == 2


def test_names_and_statements_drive_no_terminal(sluice: Sluice, tmp_path: Path) -> None:
    history, catalog = History(FileDatabase(tmp_path / "example", writes=True), writes=True), Catalog()
    history.begin_at(catalog, None)
    history.begin(catalog, Position.parse(FIRST), "")
    catalog.changes.clear()
    catalog.put("shop", "x\x1b[2J", Table((Column("[red]id\x9b", "int"),), (), None))
    history.add(Position.parse(SECOND), "", "CREATE TABLE `x\x1b[2J`\n(id int)", catalog.changes)
    history.cover(Position.parse(LAST), str)
    history.close()
    assert sluice("show") == (0, ["shop.x\\x1b[2J", "  [red]id\\x9b int"], "")
    assert sluice("history")[1][-2:] == ["  CREATE TABLE `x\\x1b[2J` (id int)", "  → shop.x\\x1b[2J"]
    assert all(line.isprintable() for line in sluice("export")[1])
    assert sluice("show", "x\x1b[2J")[2] == "there is no table x\\x1b[2J at this place\n"
    assert "example\\x1b" in sluice("show", "--at", "example\x1b")[2]


def test_two_places_are_compared(followed: Sluice) -> None:
    expected = ["shop.goods", "  + id int", "shop.orders", "  + total int generated invisible"]
    assert followed("diff", FIRST) == (0, expected, "")
    assert followed("diff", LAST, FIRST)[1] == [it.replace("+", "-") for it in expected]
    assert followed("diff", SECOND, LAST) == (0, [], "")


def test_what_was_exported_can_be_imported_after_a_correction(followed: Sluice, tmp_path: Path) -> None:
    _, lines, _ = followed("export")
    assert followed("import", write(tmp_path, lines))[:2] == (0, ["2 places"])
    (change,) = read(path_of(tmp_path, "example"), 10)
    assert (change.action, change.who, change.detail) == ("schema import", f"user {getpass.getuser()}", "2 places")
    assert followed("export")[1] == lines
    corrected = [line.replace('"goods"', '"wares"').replace('["id", "int"', '["number", "int"') for line in lines]
    assert followed("import", write(tmp_path, corrected))[0] == 0
    assert followed("show", "shop.wares") == (0, ["shop.wares", "  number int"], "")


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("?", "tables.jsonl:2: "),
        ("[]", "tables.jsonl:2: it is not an object"),
        (r'{"sql": "\ud800"}', "tables.jsonl:2: 'utf-8' codec can't encode"),
        ("[" * 100_000, "tables.jsonl:2: maximum recursion depth"),
        ("{}", "object 2 of the history cannot be read: KeyError: 'changes'"),
        ('{"changes": [{"kind": "x", "schema": "", "table": "", "body": null}]}', "'x' is not one of table, charset"),
        ('{"changes": [], "place": "nowhere"}', "object 2 of the history cannot be read"),
    ],
)
def test_a_mistake_is_named_and_changes_nothing(followed: Sluice, tmp_path: Path, line: str, said: str) -> None:
    _, lines, _ = followed("export")
    status, _, error = followed("import", write(tmp_path, [lines[0], line]))
    assert status != 0
    assert said in error
    assert followed("export")[1] == lines


def test_places_that_are_not_in_their_order_are_a_mistake(followed: Sluice, tmp_path: Path) -> None:
    _, (stretch, first, second), _ = followed("export")
    status, _, error = followed("import", write(tmp_path, [stretch, second, first]))
    assert status != 0
    assert "the places of stretch 1 are not in their order" in error


def test_a_place_without_a_stretch_is_a_mistake(followed: Sluice, tmp_path: Path) -> None:
    _, (_, *lines), _ = followed("export")
    assert "object 1 of the history belongs to no stretch" in followed("import", write(tmp_path, lines))[2]


def write(folder: Path, lines: list[str]) -> str:
    path = folder / "tables.jsonl"
    path.write_text("\n".join(lines))
    return str(path)


def test_lines_are_json(followed: Sluice) -> None:
    stretch, *versions = map(json.loads, followed("export")[1])
    assert (stretch["since"], stretch["until"]) == (FIRST, LAST)
    assert [it["place"] for it in versions] == [FIRST, SECOND]
