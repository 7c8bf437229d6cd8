"""The command ``sluice replay``: files of changes are applied to a server."""

from contextlib import closing
from pathlib import Path
from typing import Any

from .common import Line, add_command, log

SECONDS = 1.0
"""That files may be read before what they had is applied."""


def add_commands(commands: Any) -> None:
    """Add the command to those of the command line."""
    replay = add_command(
        commands,
        "replay",
        replay_command,
        "apply files of changes to a MySQL or MariaDB server",
        "Apply the files that an output of type file has written, with format pb, to a server. Each transaction is\n"
        "applied exactly once, even if the command is killed: pass the same arguments, and it resumes where it\n"
        "stopped. The target stores the progress, in the table sluice_replay. It ends with the last whole file.\n"
        "The password of the target comes from --password-file, else from $SLUICE_TARGET_PASSWORD.",
        "sluice replay /archive/shop --to mysql://copy@db2",
        "sluice replay /archive/shop --to mysql://copy@db2 --after mysql-bin.000017:4711 --until 2026-11-27T14:05:00",
    )
    replay.add_argument(
        "folder", metavar="FOLDER", help="folder with the files, or its URL in an object store (s3://bucket/folder)"
    )
    replay.add_argument(
        "--to",
        required=True,
        metavar="mysql://USER@HOST[:PORT]",
        help="the target; sslMode, sslCa, sslCert and sslKey may follow a ?",
    )
    replay.add_argument("--password-file", type=Path, metavar="FILE", help="file with the password of the target")
    replay.add_argument(
        "--after", metavar="FILE:OFFSET", help="start after this place of the binlog, which a dump names, or position"
    )
    replay.add_argument(
        "--until", metavar="TIME", help="stop before the first transaction of this time, or of a place as in --after"
    )
    replay.add_argument(
        "--job",
        default="",
        metavar="NAME",
        help="name under which the progress is stored (default: that of the folder)",
    )
    replay.add_argument(
        "--progress",
        default="sluice",
        metavar="SCHEMA",
        help="schema on the target that stores the progress; created if missing (default: %(default)s)",
    )
    replay.add_argument(
        "--time-zone",
        default="UTC",
        metavar="ZONE",
        help="time zone of TIMESTAMP values in the files: sluice.instance.timeZone (default: %(default)s)",
    )


def replay_command(options: Any) -> int:
    """Apply files of changes to a server."""
    from ...client_sdk.tidb.mirror import TiDBMirror
    from ...protocol.errors import BadParameterError
    from ...sql.database import Database
    from ...store.archive import folder_of
    from ...store.remote import RemotePath
    from ..replay import Archive, End, Place, batches

    after = Place.parse(options.after) if options.after else None
    end = End.parse(options.until) if options.until else End()
    try:
        folder = folder_of(options.folder)
    except ValueError as error:
        raise BadParameterError(f"{options.folder.partition('?')[0]} {error}", "folder") from None
    archive = Archive(folder if isinstance(folder, RemotePath) else folder.resolve())
    target = Database.of(options.to, password_file=options.password_file, variable="SLUICE_TARGET_PASSWORD")
    job = options.job or archive.folder.name
    mirror = TiDBMirror(
        target,
        job,
        schema=options.progress,
        time_zone=options.time_zone,
        source="the files",
        table="sluice_replay",
    )

    def state() -> str:
        return f"{mirror.count} transactions and DDL statements applied"

    with closing(mirror), Line("starting") as line:
        done = mirror.open()
        archive.check_job(done.commit_ts, done.record)
        messages = archive.transactions(done.commit_ts, after, end)
        try:
            for some in batches(messages, mirror.most_rows, mirror.most_bytes, SECONDS):
                mirror.apply(some)
                line.say(state)
        finally:
            log.print(state())
    if said := archive.ends_before(end):
        log.print(said)
    return 0
