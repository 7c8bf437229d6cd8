"""What is configured of an output to MySQL or MariaDB."""

from enum import StrEnum
from typing import Annotated, Final, Literal

from pydantic import BeforeValidator, SecretStr

from ....instance.settings import names, setting
from ....store.snapshot import Selection
from ..settings import OutputSettings

SNAPSHOT: Final = "snapshot"
"""The start of an output whose tables are filled first."""


class OnDdl(StrEnum):
    """What is done with a DDL."""

    REFUSE = "refuse"
    IGNORE = "ignore"
    APPLY = "apply"


class Existing(StrEnum):
    """What is done with the rows of a table on the target that is to be filled."""

    REFUSE = "refuse"
    MERGE = "merge"
    REPLACE = "replace"


class SafeMode(StrEnum):
    """Whether changes are written so that rows which are there already do no harm."""

    AUTO = "auto"
    ALWAYS = "always"
    NEVER = "never"


class MysqlSettings(OutputSettings):
    """The configuration of an output to MySQL or MariaDB."""

    start: str = setting("sluice.output.<name>.start", SNAPSHOT)

    # The target.

    url: str = setting("sluice.output.<name>.url")
    """The target: `mysql://user@host:3306/?sslMode=VERIFY_IDENTITY`. After the `?` you can set `sslMode`, `sslCa`,
    `sslCert`, `sslKey` and `serverPublicKey`, as in the URLs of Spark jobs. The URL never has a password."""
    password: SecretStr = setting("sluice.output.<name>.password", SecretStr(""))
    """Password of the account on the target."""
    progress: str = setting("sluice.output.<name>.progress", "sluice", min_length=1, max_length=64)
    """Schema on the target for the table `sluice_output`, in which the output stores its place. Sluice creates both if
    they do not exist. Give installations of Sluice that write to one server a schema each."""

    existing: Existing = setting("sluice.output.<name>.existing", Existing.REFUSE)
    """What to do with the rows of a table on the target, if a snapshot is to fill it. `refuse` stops. `merge` keeps
    them, and overwrites those with the same key; of a table without a primary key it deletes them. `replace` deletes
    them first."""

    # What is applied, and where.

    routes: str = setting("sluice.output.<name>.routes", "")
    """Where tables go that have another name on the target: `shop\\.orders_[0-9]+ -> shop.orders; shop\\..* ->
    copy.*`. Before the arrow stand the tables as in a filter, after it the table of the target. `*` keeps the name of
    the schema or the table. The first rule that matches counts. Several tables may go to one."""
    columns: str = setting("sluice.output.<name>.columns", "")
    """Columns that have another name on the target, or are left out: `shop.orders: note -> remark, secret ->`. Nothing
    after the arrow leaves the column out. The first rule that matches a table counts."""
    events: Annotated[tuple[Literal["insert", "update", "delete"], ...], BeforeValidator(names)] = setting(
        "sluice.output.<name>.events", ("insert", "update", "delete"), min_length=1
    )
    """Kinds of changes to apply, of `insert`, `update` and `delete`. The rows of others are left out. An UPDATE that
    changes a key counts as `update`."""
    ddl: OnDdl = setting("sluice.output.<name>.ddl", OnDdl.REFUSE)
    """What to do with a DDL statement. `refuse` stops before it, so that you can decide. `ignore` leaves it out.
    `apply` runs it on the target."""

    workers: int = setting("sluice.output.<name>.workers", 16, ge=1, le=64)
    """Number of sessions that apply transactions at the same time, beside the one that keeps the place. With 1,
    transactions that follow one another are joined to one on the target."""
    preserve_order: bool = setting("sluice.output.<name>.preserveOrder", default=True)
    """Whether transactions are committed in the order of the source, so that the target is always as the source was at
    one moment. If not, only those that change the same rows are."""
    safe_mode: SafeMode = setting("sluice.output.<name>.safeMode", SafeMode.AUTO)
    """What to do if the target already has a row with a key of a new one. `always` replaces it. `never` stops the
    output. `auto` replaces it, and expects such rows for 5 minutes after rows of a snapshot, and after a start without
    a place on the target. While it expects none, it writes tables with several unique keys faster."""

    channel: int | None = setting("sluice.output.<name>.channel", None, ge=1, lt=1 << 31)
    """For databases that feed each other: all outputs between them have the same number here. An output leaves out what
    another one of its channel has applied, and what its target has written by itself. The destination has to have the
    table `retl._drainer_repl_mark`."""

    @property
    def needed(self) -> tuple[tuple[str, str], ...]:
        """See `OutputSettings.needed`."""
        return () if self.channel is None else (("retl", "_drainer_repl_mark"),)

    @property
    def begin(self) -> str | Selection:
        """See `OutputSettings.begin`."""
        return Selection() if self.start == SNAPSHOT else self.start
