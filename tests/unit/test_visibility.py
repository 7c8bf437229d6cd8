"""By which answers of a server all transactions before a position are visible."""

import pytest

from sluice.login.visibility import Rows, Visibility
from sluice.protocol.errors import SourceChangedError
from sluice.protocol.position import Position

UUID = "11111111-1111-1111-1111-111111111111"
PLACE = Position(UUID, "bin.000003", 1_700_000_000, 500, 0)
NOTHING: Rows = ()


def mysql(gtid_mode: str = "ON") -> Visibility:
    return Visibility(PLACE, version="9.7.0", source=UUID, gtid_mode=gtid_mode)


def mariadb() -> Visibility:
    place = Position("7", "bin.000003", 1_700_000_000, 500, 0)
    return Visibility(place, version="11.8.2-MariaDB-log", source="7", gtid_mode="")


def owned(*texts: str) -> Rows:
    return [(",\n".join(texts),)]


def innodb(*prepared: int) -> Rows:
    status = "".join(f"---TRANSACTION {number}, ACTIVE (PREPARED) 0 sec\n" for number in prepared)
    return [("InnoDB", "", f"{status}---TRANSACTION 99, ACTIVE 3 sec\n")]


def committed(file: str, offset: int) -> list[Rows]:
    return [NOTHING, [("Binlog_snapshot_file", file), ("Binlog_snapshot_position", str(offset))], NOTHING]


def test_with_gtids_those_that_were_given_out_at_the_first_look_are_waited_for() -> None:
    visibility = mysql()
    assert visibility.questions == ["XA RECOVER", "SELECT @@GLOBAL.gtid_owned"]
    assert not visibility.look([NOTHING, owned(f"{UUID}:5#12", f"{UUID}:tag:7#13#14")])
    assert visibility.left == [f"{UUID}:5", f"{UUID}:tag:7"]
    assert not visibility.look([NOTHING, owned(f"{UUID}:tag:7#13", f"{UUID}:8#15")])
    assert visibility.look([NOTHING, owned(f"{UUID}:8#15:9#16")])


def test_nothing_is_waited_for_when_none_is_committing() -> None:
    assert mysql().look([NOTHING, owned("")])


def test_without_gtids_those_that_innodb_has_prepared_are_waited_for() -> None:
    visibility = mysql("OFF")
    assert visibility.questions == ["XA RECOVER", "SHOW ENGINE INNODB STATUS"]
    assert not visibility.look([NOTHING, innodb(1, 2)])
    assert not visibility.look([NOTHING, innodb(2, 3)])
    assert visibility.look([NOTHING, innodb(3, 4)])


def test_prepared_xa_transactions_are_waited_for() -> None:
    visibility = mysql()
    assert not visibility.look([[(1, 3, 0, b"one")], owned("")])
    assert visibility.left == ["XA one"]
    assert visibility.look([[(1, 3, 0, "two")], owned("")])


@pytest.mark.parametrize(("file", "offset", "is_visible"), [("bin.000003", 499, False), ("bin.000003", 500, True)])
def test_mariadb_says_where_its_last_visible_transaction_ends(file: str, offset: int, *, is_visible: bool) -> None:
    visibility = mariadb()
    assert visibility.questions == [
        "XA RECOVER",
        "START TRANSACTION WITH CONSISTENT SNAPSHOT",
        "SHOW STATUS LIKE 'binlog_snapshot_%'",
        "COMMIT",
    ]
    assert visibility.look([NOTHING, *committed("bin.000002", 9_000)]) is False
    assert visibility.left == [f"some before {Position('7', 'bin.000003', 1_700_000_000, 500, 0)}"]
    assert visibility.look([NOTHING, *committed(file, offset)]) is is_visible


def test_a_position_of_another_server_is_refused() -> None:
    with pytest.raises(SourceChangedError, match="from a replica of it"):
        Visibility(PLACE, version="9.7.0", source="2" + UUID[1:], gtid_mode="ON")
