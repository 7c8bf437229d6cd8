"""Canal's filters: what passes, what is refused, and why."""

from collections.abc import Callable
from typing import Any

import pytest

from sluice.instance.sink.filters import TRANSLATED, FieldFilter, TableFilter
from sluice.instance.sink.patterns import translate
from sluice.protocol.errors import FilterError


@pytest.mark.parametrize(
    ("include", "exclude", "table", "accepted"),
    [
        ("", "", "shop.orders", True),
        (r".*\..*", "", "shop.orders", True),
        (r"shop\..*", "", "SHOP.Orders", True),
        (r"SHOP\..*", "", "shop.orders", True),
        (r"shop\.order", "", "shop.orders", False),
        (r"hop\..*", "", "shop.orders", False),
        (r"shop\.a,shop\.b", "", "shop.b", True),
        (r" shop\.a , shop\.b ,", "", "shop.b", True),
        (r"shop\.t{1,2},crm\..*", "", "shop.tt", True),
        (r"shop\.(a,b),crm\..*", "", "crm.x", True),
        (r"shop\.a|crm\.b", "", "crm.b", True),
        (r".*\..*", r"mysql\.slave_.*", "mysql.slave_master_info", False),
        (r".*\..*", r"mysql\.slave_.*", "mysql.user", True),
        (r"schön\..*", "", "SCHÖN.t", True),
    ],
)
def test_a_table_passes_the_include_list_and_not_the_black_list(
    include: str, exclude: str, table: str, accepted: bool
) -> None:
    tables = TableFilter(include, exclude)
    assert tables.accepts(*table.split(".")) is accepted
    assert tables.explain(*table.split(".")).accepted is accepted


def test_the_explanation_names_the_item_that_decided() -> None:
    tables = TableFilter(r"shop\..*,crm\..*", r"crm\.tmp_.*")
    assert r"shop\..*" in tables.explain("shop", "orders").reason
    assert r"crm\.tmp_.*" in tables.explain("crm", "tmp_1").reason
    assert "no item" in tables.explain("hr", "people").reason


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("shop(", "not closed"),
        ("orders", "schema.table"),
        (r"shop\\..*", "double the backslash"),
    ],
)
def test_an_item_that_cannot_work_is_refused(text: str, reason: str) -> None:
    with pytest.raises(FilterError, match=reason):
        TableFilter(text)


@pytest.mark.parametrize("text", [r"crm\..*", r"shop2\.orders", r"crm\.a,hr\.b"])
def test_a_subscriber_cannot_ask_for_what_the_destination_never_passes(text: str) -> None:
    with pytest.raises(FilterError, match="matches nothing"):
        TableFilter(r"shop\..*").narrow(text)


@pytest.mark.parametrize(
    "text",
    [
        *("", r"shop\.orders", r".*\.orders", r"sh.p\..*", r"crm\..*,shop\.a", r"SHOP\.Orders"),
        *(r"crm\.a|shop\.b", r"crm\.?shop.*", r"crm\.*.*\..*", r"(?!crm).*\..*", r"(shop|crm)\.a"),
    ],
)
def test_a_subscriber_may_narrow(text: str) -> None:
    assert TableFilter(r"shop\..*").narrow(text).include.text == text


@pytest.mark.parametrize(("one", "other"), [(r"my-shop\..*", r"my\-shop\.o.*"), (r"my\-shop\..*", r"my-shop\.o.*")])
def test_an_escaped_character_of_a_schema_is_the_same_as_an_unescaped_one(one: str, other: str) -> None:
    assert TableFilter(one).narrow(other).accepts("my-shop", "orders")


def test_fields_are_compared_without_case_and_the_list_of_kept_ones_wins() -> None:
    fields = FieldFilter("shop.orders:id/Name, crm.people:id", "shop.orders:id,hr.pay:amount")
    assert fields.kept("SHOP", "Orders") == frozenset({"ID", "NAME"})
    assert fields.kept("hr", "pay") is None
    assert fields.dropped("hr", "pay") == {"AMOUNT"}
    assert fields.dropped("crm", "people") == frozenset()


@pytest.mark.parametrize("text", ["shop.orders", "orders:id", "shop.orders:"])
def test_a_malformed_field_filter_is_refused(text: str) -> None:
    with pytest.raises(FilterError, match="not a field filter"):
        FieldFilter(text)


def test_a_thread_that_compiles_what_others_send_gives_way_again_and_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """Else the event loop would wait for each turn as long as the interpreter lets a thread compute."""
    steps = ""

    def note(step: str) -> Callable[..., Any]:
        def noting(*arguments: str) -> Any:
            nonlocal steps
            steps += step
            return translate(*arguments) if arguments else None

        return noting

    monkeypatch.setattr("sluice.instance.sink.filters.translate", note("i"))
    for module in ("filters", "patterns"):
        monkeypatch.setattr(f"sluice.instance.sink.{module}.give_way", note(" "))
    TableFilter(",".join(rf"shop\.t_[0-9]{number}" for number in range(1000)), most=20_000)
    turns = steps.split()
    assert sum(map(len, turns)) == 1000
    assert max(map(len, turns)) <= TRANSLATED
    assert steps.endswith(" " * 3), "the programs are compiled in parts"
    steps = ""
    TableFilter(r"shop\.a,shop\.b")
    assert steps == "ii"
