"""Split tables that are delivered as one: how they are named, and when their columns agree."""

import pytest

from sluice.instance.agreement import MOST, Agreement
from sluice.instance.columns import SourceColumn
from sluice.instance.sources.mysql.config import MysqlConfig
from sluice.instance.sources.mysql.grouping import Grouping
from sluice.protocol.errors import DecodeError, FilterError

ORDERS = ("shop", "orders")
ID = SourceColumn("id", "bigint", is_key=True)
NAME = SourceColumn("name", "varchar(20)", "utf8mb4")


@pytest.mark.parametrize(
    ("text", "table", "expected"),
    [
        ("shop.orders: orders_[0-9]+", "shop.orders_7", "shop.orders"),
        ("shop.orders: orders_[0-9]+", "SHOP.Orders_7", "shop.orders"),
        ("shop.orders: orders_[0-9]+", "shop.orders_x", None),
        ("shop.orders: orders_[0-9]+", "other.orders_7", None),
        ("shop.orders: orders_a|orders_b", "shop.orders_b", "shop.orders"),
        ("shop.orders: orders_a|orders_b", "other.orders_b", None),
        (r"all.orders: shop_[0-9]+\.orders", "shop_3.orders", "all.orders"),
        ("`my-shop`.`orders`: orders_.*", "my-shop.orders_1", "my-shop.orders"),
        ("shop.a: t_1; shop.b: t_.*", "shop.t_1", "shop.a"),
        ("shop.a: t_1; shop.b: t_.*", "shop.t_2", "shop.b"),
        ("", "shop.orders_7", None),
    ],
)
def test_a_table_is_delivered_under_the_first_name_whose_pattern_matches_it(
    text: str, table: str, expected: str | None
) -> None:
    found = Grouping(text).of(*table.split("."))
    assert (found and ".".join(found)) == expected


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("orders: orders_.*", "names no split table"),
        ("shop.orders", "names no split table"),
        ("shop.orders:", "names no split table"),
        (".orders: a.*", "names no split table"),
        ("a.b.c: d.*", "names no split table"),
        ("shop.orders: a.*; shop.orders: b.*", "shop.orders is there twice"),
        ("shop.orders: orders_(", "orders_"),
        ("'shop'.orders: a", "without quotes"),
    ],
)
def test_what_is_no_rule_is_an_error(text: str, reason: str) -> None:
    with pytest.raises(FilterError, match=reason):
        Grouping(text)


def test_the_name_has_to_pass_the_filter_of_the_destination() -> None:
    keys = {"destination": "d", "master_address": "127.0.0.1:3306", "db_username": "u"}
    keys |= {"group_as": "shop.orders: orders_.*", "filter_regex": r"shop\.orders_.*"}
    with pytest.raises(ValueError, match=r"filter\.regex has to let shop\.orders pass"):
        MysqlConfig.model_validate(keys)
    assert MysqlConfig.model_validate(keys | {"filter_regex": r"shop\.orders(_.*)?"}).grouping().names == [ORDERS]


def test_it_is_part_of_the_shape_of_entries_once_it_is_set() -> None:
    keys = {"destination": "d", "master_address": "127.0.0.1:3306", "db_username": "u"}
    text = "shop.orders: orders_.*"
    assert "sluice.group.as" not in MysqlConfig.model_validate(keys).shape()
    assert MysqlConfig.model_validate(keys | {"group_as": text}).shape()["sluice.group.as"] == text


def test_a_table_that_differs_is_named_with_the_one_that_it_differs_from() -> None:
    agreement = Agreement()
    agreement.check(ORDERS, ("shop", "orders_1"), [ID, NAME])
    agreement.check(ORDERS, ("shop", "orders_2"), [ID, NAME])
    for columns in ([ID], [NAME, ID], [ID, SourceColumn("name", "text")], [SourceColumn("id", "bigint"), NAME]):
        with pytest.raises(DecodeError, match=r"shop\.orders_3 .* are not those of shop\.orders_1 \(id bigint in the"):
            agreement.check(ORDERS, ("shop", "orders_3"), columns)
    agreement.check(("shop", "items"), ("shop", "items_1"), [ID])
    agreement.check(ORDERS, ("shop", "orders_4"), [ID, NAME])


def test_a_change_of_all_tables_one_after_the_other_ends_in_agreement() -> None:
    agreement = Agreement()
    tables = [("shop", f"orders_{number}") for number in range(4)]
    for table in tables:
        agreement.check(ORDERS, table, [ID])
    for table in tables[:3]:
        assert agreement.forget(*table)
        with pytest.raises(DecodeError):
            agreement.check(ORDERS, table, [ID, NAME])
    assert agreement.forget("SHOP", "ORDERS_3")
    for table in reversed(tables):
        agreement.check(ORDERS, table, [ID, NAME])


@pytest.mark.parametrize(
    ("schema", "table", "forgets"),
    [("shop", "orders_1", True), ("shop", "", True), ("", "", True), ("shop", "orders_2", False), ("b", "", False)],
)
def test_what_a_statement_changes_is_forgotten(schema: str, table: str, forgets: bool) -> None:
    agreement = Agreement()
    agreement.check(ORDERS, ("shop", "orders_1"), [ID])
    assert agreement.forget(schema, table) is forgets
    if forgets:
        agreement.check(ORDERS, ("shop", "orders_3"), [NAME])


def test_tables_of_the_members_of_a_group_are_compared_with_one_another() -> None:
    agreement, table = Agreement(), ("shop", "orders_1")
    agreement.check(ORDERS, table, [ID], "a")
    with pytest.raises(
        DecodeError, match=r"^shop\.orders_1 of member b .* are not those of shop\.orders_1 of member a \(id bigint"
    ):
        agreement.check(ORDERS, table, [ID, NAME], "b")
    assert not agreement.forget(*table, "b"), "it is not what the others are compared with"
    assert agreement.changes == 0
    assert agreement.forget(*table, "a")
    assert agreement.changes == 1
    agreement.check(ORDERS, table, [ID, NAME], "b")
    agreement.check(ORDERS, table, [ID, NAME], "a")


@pytest.mark.parametrize(
    ("one", "other"), [("int", "int(11)"), ("bigint unsigned", "bigint(20) unsigned"), ("year", "year(4)")]
)
def test_the_display_width_that_mariadb_writes_is_no_difference(one: str, other: str) -> None:
    agreement = Agreement()
    agreement.check(ORDERS, ("shop", "orders_1"), [SourceColumn("id", one)], "mysql")
    agreement.check(ORDERS, ("shop", "orders_1"), [SourceColumn("id", other)], "mariadb")
    with pytest.raises(DecodeError, match="varchar"):
        agreement.check(ORDERS, ("shop", "orders_1"), [SourceColumn("id", "varchar(11)")], "third")


def test_all_tables_of_a_member_that_leaves_are_forgotten() -> None:
    agreement = Agreement()
    agreement.check(ORDERS, ("shop", "orders_1"), [ID], "a")
    agreement.check(ORDERS, ("shop", "orders_2"), [ID], "b")
    assert agreement.forget(member="a")
    with pytest.raises(DecodeError, match=r"those of shop\.orders_2 of member b"):
        agreement.check(ORDERS, ("shop", "orders_3"), [NAME], "b")
    assert agreement.forget(member="b")
    agreement.check(ORDERS, ("shop", "orders_3"), [NAME], "b")


def test_the_tables_that_are_remembered_are_limited() -> None:
    agreement = Agreement()
    for number in range(MOST + 10):
        agreement.check(ORDERS, ("shop", f"orders_{number}"), [ID])
    assert not agreement.forget("shop", "orders_9")
    assert agreement.forget("shop", "orders_10")
    with pytest.raises(DecodeError, match=r"not those of shop\.orders_11 "):
        agreement.check(ORDERS, ("shop", "x"), [NAME])
