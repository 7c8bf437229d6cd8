"""Remove from a Redis cache what the database has changed.

An application keeps a row of `shop.goods` in the cache as `goods:ID`, and reads it there. This program removes the
entry of each row that changes, so that the application reads it from the database again.

An application that has read a row just before its change may store it just after. So give entries a time to live.

    python examples/cache.py --redis redis://127.0.0.1:6379
"""

import argparse
import contextlib
from collections.abc import Iterator

import redis

from sluice.client_sdk import Batch, Client


def keys(batch: Batch) -> Iterator[str]:
    """Name the entries of the rows that a batch changes; an UPDATE of the key concerns two."""
    for row in batch:
        for image in (row.before, row.after):
            if image is not None:
                yield f"goods:{image['id']}"


def is_emptied(batch: Batch) -> bool:
    """Tell whether a batch has a statement that changes rows without naming them: TRUNCATE, DROP, ALTER …."""
    return any(change.is_ddl for change in batch.changes())


def main() -> None:
    """Remove entries until Ctrl-C."""
    parser = argparse.ArgumentParser(description="Remove from a Redis cache what the database has changed.")
    parser.add_argument("--redis", default="redis://127.0.0.1:6379", help="address of the cache")
    parser.add_argument("--url", default="http://127.0.0.1:11180", help="address of Sluice")
    parser.add_argument("--destination", default="example")
    parser.add_argument("--client", type=int, default=1103, help="id of this client")
    given = parser.parse_args()
    with redis.Redis.from_url(given.redis) as cache, Client(given.url, given.destination, given.client) as client:
        client.subscribe(r"shop\.goods")
        for batch in client.batches():  # asking for the next one acknowledges this one
            gone = set(cache.scan_iter("goods:*", count=1000)) if is_emptied(batch) else set(keys(batch))
            if gone:
                cache.delete(*gone)


if __name__ == "__main__":
    with contextlib.suppress(KeyboardInterrupt):
        main()
