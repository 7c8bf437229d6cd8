"""The settings of a folder with binlog files as a source."""

import re
from typing import Annotated, ClassVar, Literal

from pydantic import AfterValidator, BeforeValidator

from ...config import lower
from ...settings import FolderPath, setting
from ..mysql.config import BinlogConfig


def _uuid(value: str) -> str:
    if value and not re.fullmatch(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}", value):
        raise ValueError("is not a server_uuid, such as 8a94f357-aab4-11df-86ab-c80aa9429562")
    return value


class FilesConfig(BinlogConfig):
    """The configuration of a destination whose source is a folder with binlog files."""

    source_title: ClassVar[str] = "binlog files in a folder"

    source: Annotated[Literal["files"], BeforeValidator(lower)] = setting("sluice.instance.source", "files")

    # The source.

    folder: FolderPath = setting("sluice.instance.files.folder")
    """Folder with the binlog files of one MySQL or MariaDB server, as it wrote them. The index file is not needed."""
    name: str = setting("sluice.instance.files.name", "", pattern=r"^[^/]*$", max_length=200)
    """What the names of the files have before the number, such as `mysql-bin`. Empty finds it out; it is needed where
    the folder has the files of several binlogs."""
    at_end: Annotated[Literal["wait", "end"], BeforeValidator(lower)] = setting("sluice.instance.files.atEnd", "wait")
    """What happens where the last file ends: `wait` for more bytes and more files, or `end`: the destination is then
    `finished`, and its clients get what is left."""
    server_uuid: Annotated[str, BeforeValidator(lower), AfterValidator(_uuid)] = setting(
        "sluice.instance.files.serverUuid", ""
    )
    """The `server_uuid` of the MySQL that wrote the files (`auto.cnf` in its data folder has it). Positions and the
    history of tables are then those of a destination that reads the server itself. Without it, positions name MySQL by
    its `server_id`, as they always name MariaDB, and a file of another `server_id` is refused."""
    schema_file: FolderPath | None = setting("sluice.instance.files.schema", None)
    """File of SQL with the tables as they were where the destination begins, as `mysqldump --no-data --databases`
    writes it. Of a table that the history has, the history counts."""

    @property
    def place(self) -> str:
        """See `InstanceConfig.place`."""
        return f"binlog files in {self.folder}"
