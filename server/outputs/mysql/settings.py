"""What is configured of an output to MySQL or MariaDB."""

from enum import StrEnum
from typing import Final

from pydantic import SecretStr

from ....instance.settings import setting
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
    they do not exist."""

    existing: Existing = setting("sluice.output.<name>.existing", Existing.REFUSE)
    """What to do with the rows of a table on the target, if a snapshot is to fill it. `refuse` stops. `merge` keeps
    them, and overwrites those with the same key; of a table without a primary key it deletes them. `replace` deletes
    them first."""

    # What is applied.

    ddl: OnDdl = setting("sluice.output.<name>.ddl", OnDdl.REFUSE)
    """What to do with a DDL statement. `refuse` stops before it, so that you can decide. `ignore` leaves it out.
    `apply` runs it on the target."""

    @property
    def begin(self) -> str | Selection:
        """See `OutputSettings.begin`."""
        return Selection() if self.start == SNAPSHOT else self.start
