"""Keep a second table of the orders, whose primary key begins with the seller.

`shop.orders` has the primary key (buyer, id), as if it were divided by buyers. A page that lists the orders of a seller
would have to read all of it. This program writes each order to `shop_copy.orders_by_seller` as well, with the primary
key (seller, buyer, id). It begins with the orders that exist.

A batch is acknowledged after its rows are committed. After a crash it arrives again, and gives the same rows.

    TARGET_PASSWORD=secret python examples/orders_by_seller.py --target 127.0.0.1:3306 --user copy
"""

import argparse
import contextlib
import os

import pymysql

from sluice.client_sdk import Change, Client

CREATE = """
CREATE TABLE IF NOT EXISTS shop_copy.orders_by_seller (
  seller INT NOT NULL,
  buyer INT NOT NULL,
  id INT NOT NULL,
  total DECIMAL(10, 2) NOT NULL,
  PRIMARY KEY (seller, buyer, id)
)"""
REPLACE = "REPLACE INTO shop_copy.orders_by_seller VALUES (%(seller)s, %(buyer)s, %(id)s, %(total)s)"
DELETE = "DELETE FROM shop_copy.orders_by_seller WHERE seller = %(seller)s AND buyer = %(buyer)s AND id = %(id)s"
EMPTY = "DELETE FROM shop_copy.orders_by_seller"  # unlike TRUNCATE a part of the transaction


def apply(cursor: pymysql.cursors.Cursor, change: Change) -> None:
    """Write one change to the second table."""
    if change.type == "TRUNCATE":
        cursor.execute(EMPTY)
    elif change.is_ddl:
        raise SystemExit(f"shop.orders is changed, change the copy by hand: {change.sql}")
    for row in change.rows():
        if row.before is not None:
            cursor.execute(DELETE, row.before)
        if row.after is not None:
            cursor.execute(REPLACE, row.after)


def main() -> None:
    """Copy until Ctrl-C."""
    parser = argparse.ArgumentParser(description="Keep a second table of the orders, by seller.")
    parser.add_argument("--url", default="http://127.0.0.1:11180", help="address of Sluice")
    parser.add_argument("--destination", default="example")
    parser.add_argument("--client", type=int, default=1101, help="id of this client")
    parser.add_argument("--target", required=True, help="host:port of the server that gets the second table")
    parser.add_argument("--user", required=True, help="its user; the password is in TARGET_PASSWORD")
    given = parser.parse_args()
    host, _, port = given.target.rpartition(":")
    password = os.environ.get("TARGET_PASSWORD", "")
    target = pymysql.connect(host=host, port=int(port), user=given.user, password=password)
    with (
        contextlib.closing(target),
        target.cursor() as cursor,
        Client(given.url, given.destination, given.client) as client,
    ):
        cursor.execute(CREATE)
        client.subscribe(r"shop\.orders", start="snapshot")
        for batch in client.batches():  # asking for the next one acknowledges this one
            for change in batch.changes():
                apply(cursor, change)
            target.commit()


if __name__ == "__main__":
    with contextlib.suppress(KeyboardInterrupt):
        main()
