"""Print an alert when a price in `shop.goods` changes by more than some percent.

Sluice sends only rows of `shop.goods`. Alerts are printed before the batch is acknowledged: after a crash one may come
twice, and none is lost.

    python examples/price_alerts.py --percent 20
"""

import argparse
import contextlib
from decimal import Decimal

from sluice.client_sdk import Client, Row


def alert(row: Row, percent: Decimal) -> str:
    """Return the text of an alert; empty if the price has not changed that much, or there is nothing to compare."""
    if row.before is None or row.after is None:
        return ""
    before, after = row.before["price"], row.after["price"]
    if not before or after is None:
        return ""
    change = (after - before) * 100 / before
    return f"{row.after['name']}: {before} → {after} ({change:+.0f} %)" if abs(change) > percent else ""


def main() -> None:
    """Print alerts until Ctrl-C."""
    parser = argparse.ArgumentParser(description="Print an alert when a price changes much.")
    parser.add_argument("--percent", type=Decimal, default=Decimal(10), help="alert above this change (10)")
    parser.add_argument("--url", default="http://127.0.0.1:11180", help="address of Sluice")
    parser.add_argument("--destination", default="example")
    parser.add_argument("--client", type=int, default=1104, help="id of this client")
    given = parser.parse_args()
    with Client(given.url, given.destination, given.client) as client:
        client.subscribe(r"shop\.goods")
        for batch in client.batches():  # asking for the next one acknowledges this one
            for row in batch:
                if text := alert(row, given.percent):
                    print(text, flush=True)


if __name__ == "__main__":
    with contextlib.suppress(KeyboardInterrupt):
        main()
