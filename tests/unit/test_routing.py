"""Topics and partitions by Canal's rules; the oracle (tests/compat) compares them with Canal's own producer."""

import pytest

from sluice.protocol.canal.records import Route, hash_partition, java_hash
from sluice.protocol.errors import ConfigError
from sluice.server.outputs.routing import Router, Rules


@pytest.mark.parametrize(
    ("rules", "schema", "table", "topic"),
    [
        ("", "shop", "goods", "all.changes"),
        ("shop.goods", "shop", "goods", "shop_goods"),
        ("shop.goods", "SHOP", "Goods", "shop_goods"),
        ("shop.goods", "shop", "orders", "all_changes"),
        ("shop", "shop", "goods", "shop"),
        ("shop", "shop", "", "all_changes"),
        ("one.topic:shop.goods", "shop", "goods", "one_topic"),
        ("one : shop.goods ", "shop", "goods", "one"),
        (" shop.goods", "shop", "goods", "all_changes"),
        (r"shop\..*", "shop", "Goods", "shop_goods"),
        (r"sh.*", "shop", "goods", "shop"),
        (r"all:.*\..*,one:shop", "shop", "goods", "all"),
        (r"one:shop;two:shop\.goods", "shop", "goods", "two"),
        ("one:shop,two:shop", "shop", "goods", "one"),
        ("one:x:shop", "shop", "goods", "all_changes"),
        (r"(shop|mall)\.goods", "mall", "goods", "mall_goods"),
    ],
)
def test_the_topic_of_a_table(rules: str, schema: str, table: str, topic: str) -> None:
    router = Router(Rules("all.changes", dynamic_topic=rules))
    assert router.topics[router.route(schema, table).topic] == topic


def test_topics_are_numbered_once() -> None:
    router = Router(Rules("all", dynamic_topic=r"b:.*\.b,c:.*\.c"))
    assert [router.route("s", table).topic for table in "abcab"] == [0, 1, 2, 0, 1]
    assert router.topics == ["all", "b", "c"]
    assert router.fixed_topics == ["all", "b", "c"]


def test_a_table_whose_name_no_topic_can_have_is_named() -> None:
    router = Router(Rules("all", dynamic_topic=r".*\..*"))
    assert router.topics[router.route("a", "x-y").topic] == "a_x-y"
    topic = router.topics[router.route("a", "x y;rm").topic]
    assert "no topic can be called 'a_x y;rm', as 'a.x y;rm' would go to: a topic's name has" in router.wrong[topic]
    assert list(router.wrong) == [topic]


def test_a_name_that_no_topic_can_have_is_mapped_as_configured_and_to_one_topic_each() -> None:
    router = Router(Rules("all", dynamic_topic=r".*\..*", maps_names=True))
    names = ["goods", "x y;rm", "订单", "客户", "x_y_rm"]
    topics = [router.topics[router.route("a", name).topic] for name in names]
    assert topics == ["a_goods", "a_x_y_rm-126a13b8", "a___-82ee7b91", "a___-7675000d", "a_x_y_rm"]
    assert router.topics[router.route("A", "X Y;rm").topic] == "a_x_y_rm-126a13b8"
    assert router.wrong == {}


@pytest.mark.parametrize("names", [["x y;rm", "x_y_rm-126a13b8"], ["x_y_rm-126a13b8", "x y;rm"]])
def test_a_mapped_name_that_another_table_has_is_refused(names: list[str]) -> None:
    router = Router(Rules("all", dynamic_topic=r".*\..*", maps_names=True))
    for name in names:
        topic = router.topics[router.route("a", name).topic]
    assert "would have changes of" in router.wrong[topic]
    assert list(router.wrong) == ["a_x_y_rm-126a13b8"]


@pytest.mark.parametrize("rules", [Rules("no topic"), Rules("t", "x y:shop"), Rules("t", ":shop"), Rules("." * 2)])
def test_a_configured_topic_that_cannot_be_is_refused(rules: Rules) -> None:
    with pytest.raises(ConfigError, match="a topic's name has letters, digits"):
        Router(rules)


def test_rules_for_partitions_that_do_nothing_are_named() -> None:
    tables = [("shop", "goods"), ("shop", "orders")]
    rules = r"shop\.g.*:id,crm.notes:$pk$,shop.order"
    assert Router(Rules("all", partitions=2, partition_hash=rules)).doubts(tables, lambda _: tables) == [
        "the rule 'crm.notes:$pk$' of partitionHash matches none of the tables that there are",
        "the rule 'shop.order' of partitionHash matches none of the tables that there are",
    ]
    one = "partitionHash has no effect: every topic has one partition (partitionsNum)"
    assert Router(Rules("all", partition_hash="shop.goods:id")).doubts(tables, lambda _: tables) == [one]
    assert (
        Router(Rules("all", partition_hash="shop.goods:id", topic_partitions="all:2")).doubts(tables, lambda _: tables)
        == []
    )
    assert Router(Rules("all", partitions=2, partition_hash="shop.goods:id")).doubts([], lambda _: []) == []
    assert Router(Rules("all")).doubts(tables, lambda _: tables) == []


def test_columns_in_rules_for_partitions_that_no_table_has_are_named() -> None:
    goods, orders = ("shop", "goods"), ("shop", "orders")
    having = {"id": [goods, orders], "total": [orders]}
    rules = r"shop\..*:id^total,shop.goods:id^total^no,shop.orders:$pk$,shop.orders"
    assert Router(Rules("all", partitions=2, partition_hash=rules)).doubts(
        [goods, orders], lambda column: having.get(column, [])
    ) == [
        f"the rule 'shop.goods:id^total^no' of partitionHash names the column {it}, which no table has that it matches"
        for it in ("total", "no")
    ]


def test_without_a_rule_everything_has_one_partition() -> None:
    router = Router(Rules("all", partition=3, partitions=8))
    assert router.route("shop", "goods") == Route(0, 3, 3)
    assert router.partitions("all") == 4
    assert router.is_whole


def test_the_rules_of_partitions() -> None:
    rules = r"shop.goods:id^name,shop.orders:$PK$;shop\.log_.*,shop.empty:"
    router = Router(Rules("all", partition=3, partitions=8, partition_hash=rules))
    seed = java_hash("shop")
    assert router.route("shop", "goods") == Route(0, 0, 0, 8, ("id", "name"), seed)
    assert router.route("SHOP", "Orders") == Route(0, 0, 0, 8, None, java_hash("SHOP"))
    assert router.route("shop", "log_1") == Route(0, hash_partition(java_hash("log_1"), 8), 0)
    assert router.route("shop", "empty") == Route(0, 0, 0, 8, (), seed)
    assert router.route("shop", "others") == Route(0, 0, 0)
    assert router.partitions("all") == 8
    assert not router.is_whole


def test_the_database_counts_in_the_hash_if_asked() -> None:
    router = Router(Rules("all", partitions=8, partition_hash=r".*\..*:$pk$", database_hash=False))
    assert router.route("shop", "goods").seed == 0


def test_a_topic_has_partitions_of_its_own() -> None:
    sizes = "b_topic:5,c.*:7,x:many,d"
    router = Router(
        Rules("all", "b.topic:s.b,cc:s.c,x:s.x", 0, partitions=2, partition_hash=r".*\..*:$pk$", topic_partitions=sizes)
    )
    assert [router.route("s", table).hash_partitions for table in "abcx"] == [2, 5, 7, 2]
    assert [router.partitions(topic) for topic in ("all", "b_topic", "cc")] == [2, 5, 7]


@pytest.mark.parametrize(
    ("rules", "why"),
    [
        (Rules("t", dynamic_topic="a:(b"), r"canal.mq.dynamicTopic: rule 'a:\(b': .*not closed"),
        (Rules("t", partition_hash=r"b\.(x,y):$pk$"), r"canal.mq.partitionHash: rule 'b..\(x': .*not closed"),
        (Rules("t", topic_partitions="[:3"), "canal.mq.dynamicTopicPartitionNum: rule"),
        (Rules("t", partitions=0), "at least 1 partition"),
        (Rules("t", topic_partitions="t:0"), "at least 1 partition"),
        (Rules("t", partition=-1), "counted from 0"),
    ],
)
def test_a_rule_that_cannot_be_read_is_an_error(rules: Rules, why: str) -> None:
    with pytest.raises(ConfigError, match=why):
        Router(rules)
