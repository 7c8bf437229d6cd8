"""Keys of the properties that Sluice adds to Canal's entries, each of which is written here only.

Canal's own keys are plain (``rowsCount``, ``curtGtid``); these begin with ``sluice.``.
"""

from typing import Final

QUARANTINE: Final = "sluice.quarantine"
"""Of Header.props: the entry is a marker in the place of rows that could not be decoded; the value says why."""
GAP: Final = "sluice.gap"
"""Of Header.props: the entry is a marker where changes are missing; the value says why."""
MARKERS: Final = (QUARANTINE, GAP)
SHAPE: Final = "sluice.shape"
"""Of Header.props: the entry is a marker where the configuration of what shapes entries has changed; the value says
what. Nothing is missing there."""
MEMBER: Final = "sluice.member"
"""Of Header.props of every entry of a group; the value is the name of the member that it came from."""
DISORDER: Final = "sluice.disorder"
"""Of Header.props of every entry of a group's transaction that came too late for its place in the order; the value is
``late``."""
XA: Final = "sluice.xa"
"""Of Header.props of every entry of an XA transaction; the value is the text of a `sluice.protocol.xa.Xa`."""
LATE: Final = "sluice.late"
"""Of Header.props: the rows could not be decoded in their place, and come out of their order; the value is the position
where they belong."""
SNAPSHOT: Final = "sluice.snapshot"
"""Of Header.props: the rows were read from the table and are no change; the value is the id of the snapshot."""
SCHEMA: Final = "sluice.schema"
"""Of Header.props: a remark about the names and types of the columns; see `FROM_THE_FUTURE`."""
FROM_THE_FUTURE: Final = "from-the-future"
"""They were asked for after a later DDL, so they may not be those of the rows."""
TABLE: Final = "sluice.table"
"""Of Header.props: the rows are delivered under the name of another table; the value is schema and name of their
own."""
COMMIT_TS: Final = "sluice.commitTs"
"""Of Header.props of what TiDB has given to a pump: the commit_ts of the transaction or DDL, in decimal."""
KEYS: Final = "sluice.uniqueKeys"
"""Of Header.props of rows that TiDB has given to a pump: JSON, a list of the table's unique keys, each a list of its
name, ``PRIMARY`` for the primary key, and the names of its columns."""
ABSENT: Final = "sluice.absent"
"""Of RowChange.props: JSON, the names of the columns that no row of the entry has in either image."""
WHERE: Final = "sluice.where"
"""Of RowChange.props: a remark about a condition on rows; see `UNJUDGED`. An entry has both where the destination says
UNSPLIT, and a client's condition could not be judged: UNJUDGED is the last, which readers by name find."""
UNJUDGED: Final = "unjudged"
"""An image of the rows lacks a column of the condition: they came whether it holds or not."""
UNSPLIT: Final = "unsplit"
"""Both images of the rows lack columns: one that came to match the condition is an UPDATE and not an INSERT."""
GTID: Final = "curtGtid"
"""Canal's, of Header.props: the GTID of the transaction."""
