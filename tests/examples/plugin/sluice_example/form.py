"""A form that makes a record of each row: a JSON object with its new values, or with its old ones if it was deleted."""

import json
from collections.abc import Iterator

from sluice.server.outputs.forms.api import Record, decode_changes


class Rows:
    """Lays rows out by their keys, so that a topic can be compacted."""

    api = 1

    def records(self, data: bytes) -> Iterator[Record]:
        """Return a record for each row; statements have none."""
        for number, change in enumerate(decode_changes(data)):
            if change.type not in ("INSERT", "UPDATE", "DELETE"):
                continue
            for row in change.rows():
                values = {"table": f"{row.schema}.{row.table}", "type": row.type, "row": row.after or row.before}
                yield Record(
                    json.dumps(values).encode(),
                    key=json.dumps(row.key).encode(),
                    headers=(("table", row.table.encode()),),
                    entry=number,
                )
