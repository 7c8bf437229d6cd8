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
    """Folder with the unchanged binlog files of one MySQL or MariaDB server. Sluice does not need the index file."""
    name: str = setting("sluice.instance.files.name", "", pattern=r"^[^/]*$", max_length=200)
    """Prefix of the file names before the number, such as `mysql-bin`. Empty detects it. You need it if the folder has
    the files of several binlogs."""
    at_end: Annotated[Literal["wait", "end"], BeforeValidator(lower)] = setting("sluice.instance.files.atEnd", "wait")
    """What to do at the end of the last file. `wait` waits for more bytes and more files. `end` finishes: the
    destination is then `finished`, and its clients get the remaining changes."""
    server_uuid: Annotated[str, BeforeValidator(lower), AfterValidator(_uuid)] = setting(
        "sluice.instance.files.serverUuid", ""
    )
    """The `server_uuid` of the MySQL server that wrote the files. It is in `auto.cnf` in its data folder. With it,
    positions and table history are the same as those of a destination that reads the server itself. Without it,
    positions name a MySQL server by its `server_id`, and Sluice rejects a file of another `server_id`. Positions always
    name a MariaDB server by its `server_id`."""
    schema_file: FolderPath | None = setting("sluice.instance.files.schema", None)
    """SQL file with the tables as they were at the start position, as `mysqldump --no-data --databases` writes it. If
    the history knows a table, Sluice uses the history."""

    @property
    def place(self) -> str:
        """See `InstanceConfig.place`."""
        return f"binlog files in {self.folder}"
