"""From a session on the source to the socket from which its binlog is read."""

import ssl
import struct
import uuid
from dataclasses import dataclass
from enum import IntFlag
from typing import Final

from ....login.session import end
from ....protocol.errors import SourceError
from ....protocol.gtid import GtidSet, MariadbGtidSet
from .connection import Connection

COM_BINLOG_DUMP: Final = 0x12
COM_BINLOG_DUMP_GTID: Final = 0x1E
FIRST_EVENT: Final = 4
"""Where the first event of a binlog file starts: after the magic number."""
MAX_DUMP_OFFSET: Final = 0xFFFF_FFFF
"""COM_BINLOG_DUMP has 4 bytes for the offset; what is beyond is reached by a dump of the whole file."""
HEARTBEAT: Final = 5.0
"""Seconds without an event after which the source sends a heartbeat, at most."""
SEND_TIMEOUT: Final = 7200
"""Seconds that the source waits for a replica that does not read (its default is 60): a full ring is not a failure."""


class Flag(IntFlag):
    """Flags of a dump command."""

    NON_BLOCKING = 1  # at the end of the binlog an EOF packet comes instead of waiting
    SEND_ANNOTATE_ROWS = 2  # MariaDB: else the offsets of annotate events would be missing from the sum
    THROUGH_GTID = 4


@dataclass(frozen=True, slots=True)
class FileStart:
    """A dump from an event on; it begins with an artificial ROTATE and FORMAT_DESCRIPTION event."""

    file: str
    offset: int = FIRST_EVENT


@dataclass(frozen=True, slots=True)
class GtidStart:
    """A dump of all transactions that are not in the set."""

    gtids: GtidSet


@dataclass(frozen=True, slots=True)
class Replica:
    """Our identity as a replica. It stays across reconnects, so that the source ends the dump of a dead connection."""

    server_id: int
    uuid: str

    @classmethod
    def unique(cls, server_id: int = 0) -> "Replica":
        """Make a replica with a fresh UUID and, unless a server id is given, a random one above 2**31."""
        identity = uuid.uuid4()
        return cls(server_id or 1 << 31 | identity.int & 0x7FFF_FFFE, str(identity))


def heartbeat_of(timeout: float) -> float:
    """Return the seconds without an event after which the source sends a heartbeat; silence may last ``timeout``."""
    return min(timeout / 2, HEARTBEAT)


class Dump:
    """The socket of a running dump, which delivers raw MySQL packets."""

    def __init__(
        self,
        connection: Connection,
        start: FileStart | GtidStart,
        replica: Replica,
        *,
        timeout: float,
        non_blocking: bool = False,
        heartbeat: float = 0.0,
    ) -> None:
        """Start the dump and take over the connection's socket; the connection cannot be used further.

        The source sends a heartbeat after ``heartbeat`` seconds without an event, by default and at most
        `heartbeat_of`; silence for ``timeout`` seconds means a lost connection. Raises SourceError.
        """
        self.name = connection.name
        _prepare(connection, start, replica, min(heartbeat or timeout, heartbeat_of(timeout)))
        connection.register_replica(replica.server_id)
        flags = Flag.SEND_ANNOTATE_ROWS | (Flag.NON_BLOCKING if non_blocking else 0)
        command = _command(start, flags, replica.server_id)
        self._socket = connection.detach()
        self._timeout = timeout
        self._socket.settimeout(timeout)
        try:
            # A packet: length 3 bytes, sequence number 1 byte, payload; a command is far from the 16 MiB of one packet.
            self._socket.sendall(struct.pack("<I", len(command)) + command)
        except OSError as error:
            self._socket.close()
            raise SourceError(f"{self.name} broke off: {error}") from error

    def receive_into(self, space: memoryview) -> int:
        """Wait for bytes and return their number, 0 when the source or shutdown() ended the stream.

        The kernel tunes its receive buffer itself: a fixed size would only limit it for distant sources. Raises
        SourceError when the connection is lost.
        """
        try:
            size = self._socket.recv_into(space)
            if isinstance(self._socket, ssl.SSLSocket):
                # A TLS record has 16 KiB at most: take what has been deciphered already, without another wait.
                while (pending := self._socket.pending()) and size < len(space):
                    size += self._socket.recv_into(space[size:], min(pending, len(space) - size))
        except TimeoutError as error:
            raise SourceError(f"{self.name} sent nothing, not even a heartbeat, for {self._timeout:g} s") from error
        except (OSError, ValueError) as error:
            raise SourceError(f"the connection to {self.name} is lost: {error}") from error
        return size

    def shutdown(self) -> None:
        """End the stream from any thread: a waiting receive_into() returns 0 or raises at once."""
        end(self._socket)

    def close(self) -> None:
        """Release the socket."""
        self._socket.close()


def _prepare(connection: Connection, start: FileStart | GtidStart, replica: Replica, heartbeat: float) -> None:
    """Set what the source reads from a replica's session; each server ignores the names it does not know.

    Checksum and heartbeat have a new name since MySQL 8.4, and the uuid since 8.0.26; MariaDB sends its own events
    (GTID instead of BEGIN) to a replica of capability 4 only.
    """
    period = int(heartbeat * 1_000_000_000)
    settings = [
        "@master_binlog_checksum = @@global.binlog_checksum",
        "@source_binlog_checksum = @@global.binlog_checksum",
        f"@master_heartbeat_period = {period}",
        f"@source_heartbeat_period = {period}",
        f"@slave_uuid = '{replica.uuid}'",
        f"@replica_uuid = '{replica.uuid}'",
        "@mariadb_slave_capability = 4",
        f"net_write_timeout = {SEND_TIMEOUT}",
    ]
    if isinstance(start, GtidStart) and isinstance(start.gtids, MariadbGtidSet):
        settings += [
            f"@slave_connect_state = '{start.gtids.connect_state()}'",
            "@slave_gtid_strict_mode = 0",
            "@slave_gtid_ignore_duplicates = 0",
        ]
    connection.query("SET " + ", ".join(settings))


def _command(start: FileStart | GtidStart, flags: int, server_id: int) -> bytes:
    """Compose the dump command (sql/rpl_source.cc, com_binlog_dump and com_binlog_dump_gtid).

    COM_BINLOG_DUMP:      offset 4, flags 2, server id 4, file name to the end
    COM_BINLOG_DUMP_GTID: flags 2, server id 4, name length 4, name, offset 8, set length 4, set
    """
    if isinstance(start, FileStart):
        if start.offset > MAX_DUMP_OFFSET:
            raise SourceError(f"a dump cannot start at {start.file}:{start.offset}, beyond 4 GiB")
        header = struct.pack("<BIHI", COM_BINLOG_DUMP, start.offset, flags, server_id)
        return header + start.file.encode()
    if isinstance(start.gtids, MariadbGtidSet):  # the set went ahead as @slave_connect_state
        return struct.pack("<BIHI", COM_BINLOG_DUMP, FIRST_EVENT, flags, server_id)
    gtids = start.gtids.encode()
    header = struct.pack(
        "<BHIIQI", COM_BINLOG_DUMP_GTID, flags | Flag.THROUGH_GTID, server_id, 0, FIRST_EVENT, len(gtids)
    )
    return header + gtids
