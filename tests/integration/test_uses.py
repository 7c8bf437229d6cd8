"""The programs in examples/: each does for what the database changes what its first lines say."""

import contextlib
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import redis

from scripts.serving import lines_for, started
from tests.delivery import execute
from tests.servers import Server
from tests.servers.server import fetch, free_port
from tests.waiting import eventually

ROOT = Path(__file__).parents[2]
EXAMPLES = ROOT / "examples"

TABLES = [
    "CREATE DATABASE shop",
    "CREATE DATABASE shop_copy",
    "CREATE TABLE shop.orders (buyer INT, id INT, seller INT NOT NULL, total DECIMAL(10, 2), PRIMARY KEY (buyer, id))",
    "CREATE TABLE shop.goods (id INT PRIMARY KEY, name TEXT, description TEXT, price DECIMAL(10, 2))",
]


@pytest.fixture(scope="module")
def shop(mariadb118: Server) -> Iterator[Server]:
    """A server with the schemas that the programs name."""
    execute(mariadb118, TABLES)
    yield mariadb118
    execute(mariadb118, ["DROP DATABASE shop", "DROP DATABASE shop_copy"])


@pytest.fixture(scope="module")
def sluice(shop: Server) -> Iterator[str]:
    """The address of a Sluice that reads it."""
    with started({"example": lines_for(f"{shop.host}:{shop.port}", shop.user, shop.password)}) as server:
        yield server.url


@pytest.fixture
def cache() -> Iterator[redis.Redis]:
    """A Redis server."""
    script = str(ROOT / "tests" / "servers" / "redis.sh")
    fetch("Redis", script, "fetch")
    port = free_port()
    server = subprocess.Popen([script, "run", str(port)], stdout=subprocess.DEVNULL)
    try:
        with redis.Redis(port=port) as client:

            def answers() -> bool:
                with contextlib.suppress(redis.ConnectionError):
                    return bool(client.ping())
                return False

            eventually(answers)
            yield client
    finally:
        server.kill()
        server.wait()


@contextlib.contextmanager
def running(name: str, *arguments: str) -> Iterator["subprocess.Popen[str]"]:
    """Run a program of the examples; at the end it gets Ctrl-C, and must end well."""
    environ = os.environ | {"TARGET_PASSWORD": "cdc", "PYTHONUNBUFFERED": "1"}
    command = [sys.executable, str(EXAMPLES / name), *arguments]
    with subprocess.Popen(command, env=environ, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as program:
        try:
            yield program
            program.send_signal(2)
            _, error = program.communicate(timeout=30)
            assert (program.returncode, error) == (0, "")
        finally:
            program.kill()


def killed(name: str, *arguments: str) -> "subprocess.Popen[bytes]":
    """Start a program of the examples that the test will kill."""
    environ = os.environ | {"TARGET_PASSWORD": "cdc"}
    return subprocess.Popen([sys.executable, str(EXAMPLES / name), *arguments], env=environ)


def test_orders_are_kept_by_seller_although_the_program_is_killed(shop: Server, sluice: str) -> None:
    arguments = ("--url", sluice, "--target", f"{shop.host}:{shop.port}", "--user", shop.user)
    execute(shop, ["INSERT INTO shop.orders VALUES (1, 1, 7, 10.50), (2, 1, 7, 3), (2, 2, 8, 4)"])  # before it starts

    def are_equal() -> bool:
        both = [
            shop.query(f"SELECT seller, buyer, id, total FROM {it} ORDER BY seller, buyer, id")
            for it in ("shop_copy.orders_by_seller", "shop.orders")
        ]
        return both[0] == both[1]

    first = killed("orders_by_seller.py", *arguments)
    eventually(lambda: shop.query("SHOW TABLES IN shop_copy"))
    eventually(are_equal)
    for number in range(100):
        execute(shop, [f"INSERT INTO shop.orders VALUES (3, {number}, {number % 5}, {number})"])
        if number == 50:
            first.kill()
            first.wait()
    execute(shop, ["UPDATE shop.orders SET seller = 9 WHERE seller = 7", "DELETE FROM shop.orders WHERE buyer = 2"])
    with running("orders_by_seller.py", *arguments):
        eventually(are_equal)
    assert shop.query("SELECT COUNT(*) FROM shop_copy.orders_by_seller") == shop.query(
        "SELECT COUNT(*) FROM shop.orders"
    )


@pytest.mark.extended
def test_goods_are_found_as_they_are_now(shop: Server, sluice: str, tmp_path: Path) -> None:
    file = str(tmp_path / "goods.db")

    def search(words: str) -> str:
        command = [sys.executable, str(EXAMPLES / "search_index.py"), file, "--search", words]
        return subprocess.run(command, capture_output=True, text=True, check=True).stdout

    execute(shop, ["INSERT INTO shop.goods VALUES (1, 'tea', 'green, from Uji', 8), (2, 'rake', 'for leaves', 20)"])
    with running("search_index.py", file, "--url", sluice):
        eventually(lambda: search("green"))
        assert search("green") == "1 tea\n"
        execute(
            shop,
            [
                "UPDATE shop.goods SET description = 'black, from Assam' WHERE id = 1",
                "INSERT INTO shop.goods VALUES (3, 'pot', 'for green tea', 30)",
                "DELETE FROM shop.goods WHERE id = 2",
            ],
        )
        eventually(lambda: (search("green"), search("assam"), search("leaves")) == ("3 pot\n", "1 tea\n", ""))
        execute(shop, ["TRUNCATE TABLE shop.goods"])
        eventually(lambda: search("tea") == "")


@pytest.mark.extended
def test_what_is_changed_leaves_the_cache(shop: Server, sluice: str, cache: redis.Redis) -> None:
    execute(shop, ["INSERT INTO shop.goods VALUES (1, 'tea', '', 8), (2, 'rake', '', 20), (3, 'pot', '', 30)"])
    entries = {f"goods:{number}" for number in (1, 2, 3, 4)}
    cache.mset(dict.fromkeys(entries | {"other"}, "kept"))

    def kept() -> set[str]:
        return {key.decode() for key in cache.scan_iter()}

    with running("cache.py", "--url", sluice, "--redis", f"redis://127.0.0.1:{cache.get_connection_kwargs()['port']}"):
        eventually(lambda: len(kept()) == 2)
        assert kept() == {"goods:4", "other"}
        execute(shop, ["INSERT INTO shop.goods VALUES (5, 'cup', '', 3)"])
        cache.mset(dict.fromkeys(entries, "kept"))
        execute(shop, ["UPDATE shop.goods SET id = 4 WHERE id = 1"])
        eventually(lambda: kept() == {"goods:2", "goods:3", "other"})
        execute(shop, ["TRUNCATE TABLE shop.goods"])
        eventually(lambda: kept() == {"other"})


@pytest.mark.extended
def test_an_alert_is_printed_for_each_great_change_of_a_price(shop: Server, sluice: str) -> None:
    with running("price_alerts.py", "--url", sluice, "--percent", "20") as program:
        execute(
            shop,
            [
                "INSERT INTO shop.goods VALUES (11, 'tea', '', 8), (12, 'rake', '', 20), (13, 'gift', '', 0)",
                "UPDATE shop.goods SET price = 9 WHERE id = 11",
                "UPDATE shop.goods SET price = 5, name = 'old rake' WHERE id = 12",
                "UPDATE shop.goods SET price = 1 WHERE id = 13",
                "UPDATE shop.goods SET price = 18 WHERE id = 11",
            ],
        )
        assert program.stdout is not None
        assert program.stdout.readline() == "old rake: 20.00 → 5.00 (-75 %)\n"
        assert program.stdout.readline() == "tea: 9.00 → 18.00 (+100 %)\n"
