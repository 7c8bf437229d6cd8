"""What each call of the clients does, against the HTTP server."""

import asyncio
import gc
import threading
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from sluice.client_sdk import AsyncClient, Batch, Client
from sluice.client_sdk import calls as sdk_calls
from sluice.client_sdk.batch import Column as TableColumn
from sluice.client_sdk.calls import Limits, Reply
from sluice.client_sdk.endpoint import error_of
from sluice.protocol import errors
from sluice.protocol.canal.entry_pb2 import QUERY, ROWDATA, Entry, Header, RowChange
from sluice.protocol.canal.packet_pb2 import Messages
from sluice.protocol.position import Position
from tests.proxy import Proxy
from tests.unit.client_sdk.served import MakeClient, ServerThread, calls_of, entry, numbers, position
from tests.waiting import eventually


def test_a_batch_has_rows_positions_and_an_id(client: Any, server: ServerThread) -> None:
    server.source.write(3)
    batch = client.get_without_ack(timeout=5, limits=Limits(max_entries=3))
    while len(numbers(batch)) < 3:
        client.rollback()
        batch = client.get_without_ack(timeout=5, limits=Limits(max_entries=3))
    assert batch
    assert numbers(batch) == [0, 1, 2]
    assert (batch.from_, batch.to) == (position(0), position(3))
    assert [change.table for change in batch.changes()] == ["goods"] * 3
    assert [item.header.tableName for item in batch.entries()] == ["goods"] * 3
    client.ack(batch)
    assert batch.acked
    assert client.status()["marks"] == []


def test_a_range_is_marked_split_read_and_acked(client: Any, server: ServerThread) -> None:
    server.source.write(10)
    whole = client.position(position(0), until=position(10), timeout=5, max_rows=4)
    while whole.rows < 4:  # the first transactions may have come alone
        client.rollback()
        whole = client.position(position(0), until=position(10), timeout=5, max_rows=4)
    assert (whole.from_, whole.to, whole.partial, whole.reached) == (position(0), position(4), False, False)
    assert whole.latest == position(10)
    assert client.position(position(0), until=position(10), max_rows=4) == whole
    parts = client.splits(whole.from_, whole.to, 2)
    assert [(part.from_, part.to, part.rows) for part in parts] == [
        (position(0), position(2), 2),
        (position(2), position(4), 2),
    ]
    assert [numbers(client.rows(part.from_, part.to)) for part in parts] == [[0, 1], [2, 3]]
    stands = client.rows(parts[1].from_, parts[1].to).to_arrow().column("_pos").to_pylist()
    assert stands[0] == {"member": None, "file": 1, "begin": int(parts[1].from_.split(":")[-2]), "n": 0, "row": 0}
    client.ack(whole.to)
    assert client.status()["acked"] == position(4)
    rest = client.position(whole.to, until=position(10), timeout=5, max_rows=100)
    assert (rest.to, rest.rows, rest.reached) == (position(10), 6, True)


def test_a_range_ends_where_told(client: Any, server: ServerThread) -> None:
    server.source.write(10)
    found = client.position(position(0), until=position(3), timeout=5)
    while found.rows < 3:  # the first transactions may have come alone
        client.rollback()
        found = client.position(position(0), until=position(3), timeout=5)
    assert (found.to, found.rows, found.reached) == (position(3), 3, True)
    assert client.position(position(3), until=position(10), timeout=5, max_bytes=1).rows == 1


def test_limits_become_parameters_of_the_call() -> None:
    limits = Limits(batch_size=1, max_entries=2, max_bytes=3, min_bytes=4, linger=0.5)
    given = {"batchSize": 1, "maxEntries": 2, "maxBytes": 3, "minBytes": 4, "linger": 500}
    assert given.items() <= sdk_calls.get_without_ack(5, limits, "text").query.items()
    assert sdk_calls.get_without_ack(5, Limits(), "text").query.keys() & given.keys() == set()


def test_a_range_is_the_same_after_a_restart_of_the_server(client: Any, server: ServerThread) -> None:
    server.source.write(5)
    whole = client.position(position(0), timeout=5, max_rows=1)
    data = client.rows(whole.from_, whole.to).data
    server.stop()
    server.start()
    assert client.rows(whole.from_, whole.to).data == data
    client.ack(whole.to)
    assert client.status()["acked"] == whole.to == position(1)


def test_a_batch_becomes_an_arrow_record_batch(client: Any, server: ServerThread) -> None:
    server.source.write(2)
    batch = next(client.batches(limits=Limits(max_entries=2)))
    rows = batch.to_arrow("shop.goods").to_pylist()
    assert [(row["_op"], row["id"]) for row in rows] == [("INSERT", number) for number in range(len(rows))]
    begin = int(batch.from_.split(":")[-2])
    assert rows[0]["_pos"] == {"member": None, "file": 1, "begin": begin, "n": 0, "row": 0}
    assert [row["_key"] for row in batch.to_arrow().to_pylist()] == [[str(row["id"])] for row in rows]
    assert [row["after"] for row in batch.to_arrow().to_pylist()] == [[("id", str(row["id"]))] for row in rows]
    assert batch.to_arrow("shop.goods", [("id", "bigint unsigned")]).schema.field("id").type == pa.decimal128(20)
    assert batch.to_arrow("shop.other").num_rows == 0


def test_an_empty_batch_is_false_and_needs_no_ack(client: Any) -> None:
    batch = client.get_without_ack()
    assert not batch
    assert batch.rows() == []
    assert batch.to_arrow().num_rows == 0
    client.ack(batch)
    client.ack(batch.batch_id)


def test_a_marker_is_seen(caplog: pytest.LogCaptureFixture) -> None:
    header = Header(logfileName="bin.000001", logfileOffset=4, eventType=QUERY)
    header.props.add(key="sluice.quarantine", value="why")
    change = RowChange(eventType=QUERY, sql="-- sluice.quarantine: why")
    marker = Entry(header=header, entryType=ROWDATA, storeValue=change.SerializeToString())
    data = Messages(messages=[entry(1), marker.SerializeToString(), entry(2)]).SerializeToString()
    batch = Batch(7, "", "", data)
    assert numbers(batch) == [1, 2]
    assert [it.sql for it in batch.markers()] == ["-- sluice.quarantine: why"]
    assert "rows are missing at bin.000001:4" in caplog.text
    caplog.clear()
    assert batch.to_arrow().num_rows == 2
    assert "rows are missing at bin.000001:4" in caplog.text
    assert Batch(8, "", "", Messages(messages=[entry(1)]).SerializeToString()).markers() == []


def test_a_client_is_told_what_invalid_dates_become(make_client: MakeClient, client: Any, server: ServerThread) -> None:
    assert client.get_without_ack().invalid_dates == "text"
    client = make_client(server.url, invalid_dates="null")
    assert client.get_without_ack().invalid_dates == "null"
    assert client.rows(position(0), position(0)).invalid_dates == "null"


def test_get_acks_at_once(client: Any, server: ServerThread) -> None:
    server.source.write(1)
    assert numbers(client.get(timeout=5)) == [0]
    client.rollback()
    assert not client.get()


def test_rollback_gives_batches_again(client: Any, server: ServerThread) -> None:
    server.source.write(2)
    one = Limits(max_entries=1)
    first, second = client.get_without_ack(5, one), client.get_without_ack(5, one)
    client.ack(first.batch_id)
    client.rollback()
    again = client.get_without_ack(5, one)
    assert numbers(again) == numbers(second) == [1]
    assert again.batch_id > second.batch_id
    with pytest.raises(errors.UnknownBatchError):
        client.ack(second)


def test_ack_up_to_a_position(client: Any, server: ServerThread) -> None:
    server.source.write(3)
    got: list[Batch] = []
    while sum(len(batch.rows()) for batch in got) < 3:
        got.append(client.get_without_ack(5, Limits(max_entries=1)))
    client.ack(Position.parse(position(2)), durable=True)
    assert client.status()["marks"] == [got[2].batch_id]
    client.ack(position(2))
    client.ack(got[2])


def test_acks_are_in_order(client: Any, server: ServerThread) -> None:
    server.source.write(2)
    one = Limits(max_entries=1)
    _, second = client.get_without_ack(5, one), client.get_without_ack(5, one)
    with pytest.raises(errors.AckOutOfOrderError):
        client.ack(second)


def test_what_a_client_passes_over_is_told(client: Any, server: ServerThread) -> None:
    server.source.write(2)
    eventually(lambda: client.status()["lag"]["rows"] == 2)
    client.get()
    assert client.moves() == []
    server.source.write(2)
    eventually(lambda: client.status()["lag"]["rows"] == 2)
    passed = client.unsubscribe()
    assert (passed["reason"], passed["rows"], passed["before"]) == ("unsubscribe", 2, position(2))
    assert client.moves() == [passed]


def test_a_start_by_time_or_position_is_passed_on(client: Any) -> None:
    client.unsubscribe()
    with pytest.raises(errors.NotSubscribedError):
        client.get()
    assert client.subscribe(start=datetime(2000, 1, 1, tzinfo=UTC))["clientId"] == 1001
    client.unsubscribe()
    with pytest.raises(errors.SourceChangedError):
        client.subscribe(start=Position.parse(position(0).replace("7/", "8/")))


def test_conditions_on_rows_are_passed_on(client: Any) -> None:
    where = "shop.goods: name = 'x' AND id > 1"
    assert client.subscribe(where=where)["where"] == client.status()["where"] == where
    assert client.subscribe()["where"] == ""
    with pytest.raises(errors.FilterError, match="is not a condition of a table"):
        client.subscribe(where="id > 1")


def test_errors_have_the_class_of_their_type(make_client: MakeClient, server: ServerThread) -> None:
    with pytest.raises(errors.UnknownDestinationError):
        make_client(server.url, destination="öther ?x").status()
    with pytest.raises(errors.BadParameterError):
        make_client(server.url, client_id=1 << 20).status()


def test_a_newer_session_fences_the_older(make_client: MakeClient, client: Any, server: ServerThread) -> None:
    client.open_session()
    other = make_client(server.url)
    other.open_session()
    with pytest.raises(errors.StaleSessionError):
        client.get()
    other.get()


def test_the_destination_its_end_its_tables_and_their_columns_are_told(client: Any, server: ServerThread) -> None:
    assert client.destination()["capacity"] > 0
    server.source.write(3)
    assert client.latest() == position(3)
    assert client.tables() == ["shop.goods", "shop.orders"]
    assert client.tables(r"shop\.g.*") == ["shop.goods"]
    assert client.columns("shop.ö/d") == [TableColumn("id", "int of shop.ö/d", is_key=True)]


class TestErrors:
    @pytest.mark.parametrize("kind", [errors.GoneError, errors.PurgedError, errors.FencedError, errors.FilterError])
    def test_a_problem_is_an_error_with_detail_and_advice(self, kind: type[errors.SluiceError]) -> None:
        body = b'{"type": "%s", "title": "T", "detail": "What.", "advice": "Do."}' % kind.type.encode()
        error = error_of(Reply(400, {}, body))
        assert type(error) is kind
        assert str(error) == "What. Do."

    def test_a_problem_of_http_alone_is_a_plain_error_with_its_text(self) -> None:
        error = error_of(Reply(414, {}, b'{"type": "url-too-long", "title": "T", "detail": "Long.", "advice": "Do."}'))
        assert type(error) is errors.SluiceError
        assert str(error) == "Long. Do."

    def test_attributes_of_errors_are_kept(self) -> None:
        error = error_of(Reply(429, {"retry-after": "7"}, b'{"type": "too-many-attempts", "title": "T"}'))
        assert isinstance(error, errors.TooManyAttemptsError)
        assert error.retry_after == 7
        error = error_of(Reply(422, {}, b'{"type": "bad-parameter", "detail": "D", "parameter": "filter"}'))
        assert isinstance(error, errors.BadParameterError)
        assert error.parameter == "filter"

    @pytest.mark.parametrize("body", [b"", b"<html>", b"[]", b"{}", b"\xff"])
    def test_anything_else_is_a_general_error(self, body: bytes) -> None:
        error = error_of(Reply(500, {}, body))
        assert type(error) is errors.SluiceError
        assert "500" in str(error)


class TestAckOfAGet:
    """``get_without_ack(ack=...)``."""

    ONE = Limits(max_entries=1)

    def test_it_is_one_call(self, client: Any, server: ServerThread) -> None:
        server.source.write(3)
        first = client.get_without_ack(5, self.ONE)
        second = client.get_without_ack(5, self.ONE, ack=first, durable=True)
        assert (first.acked, second.acked) == (True, False)
        third = client.get_without_ack(5, self.ONE, ack=second)
        assert [numbers(it) for it in (first, second, third)] == [[0], [1], [2]]
        status = client.status()
        assert (status["acked"], status["marks"]) == (position(2), [third.batch_id])
        assert calls_of(server) == {"getWithoutAck": 3}

    def test_an_empty_batch_or_none_needs_no_ack(self, client: Any, server: ServerThread) -> None:
        batch = None
        for _ in range(2):
            batch = client.get_without_ack(ack=batch)
            assert not batch
        server.source.write(1)
        assert numbers(client.get_without_ack(5, ack=batch)) == [0]

    def test_what_is_refused_raises_and_no_batch_is_lost(self, client: Any, server: ServerThread) -> None:
        server.source.write(3)
        first, second = client.get_without_ack(5, self.ONE), client.get_without_ack(5, self.ONE)
        with pytest.raises(errors.AckOutOfOrderError):
            client.get_without_ack(5, self.ONE, ack=second)
        client.rollback()
        with pytest.raises(errors.UnknownBatchError):
            client.get_without_ack(5, self.ONE, ack=first)
        assert (first.acked, second.acked) == (False, False)
        assert numbers(client.get_without_ack(5, self.ONE)) == [0]

    def test_a_newer_session_fences_it(self, make_client: MakeClient, client: Any, server: ServerThread) -> None:
        server.source.write(2)
        client.open_session()
        first = client.get_without_ack(5, self.ONE)
        newer = make_client(server.url)
        newer.open_session()
        with pytest.raises(errors.StaleSessionError):
            client.get_without_ack(5, self.ONE, ack=first)
        assert newer.status()["marks"] == [first.batch_id]

    @pytest.mark.parametrize("with_session", [False, True])
    def test_when_the_reply_is_lost_it_acks_once_and_loses_nothing(
        self, make_client: MakeClient, client: Any, server: ServerThread, *, with_session: bool
    ) -> None:
        server.source.write(3)
        with Proxy(("127.0.0.1", server.port)) as proxy:
            shaky = make_client(f"http://127.0.0.1:{proxy.port}")
            if with_session:
                shaky.open_session()
            first = shaky.get_without_ack(5, self.ONE)
            proxy.delay = 0.5
            with ThreadPoolExecutor(1) as pool:
                waiting = pool.submit(shaky.get_without_ack, 5, self.ONE, ack=first)
                eventually(lambda: client.status()["marks"] not in ([], [first.batch_id]), client.status)
                proxy.delay = 0.0
                proxy.cut()
                second = waiting.result()
            assert first.acked
            assert [numbers(it) for it in (first, second)] == [[0], [1]]
            status = client.status()
            assert (status["acked"], status["marks"]) == (position(1), [second.batch_id])
            assert numbers(shaky.get_without_ack(5, self.ONE, ack=second)) == [2]

    def test_over_a_restart_of_the_server_it_acks_by_position(self, client: Any, server: ServerThread) -> None:
        server.source.write(2)
        first = client.get_without_ack(5, self.ONE)
        server.stop()
        timer = threading.Timer(0.3, server.start)
        timer.start()
        second = client.get_without_ack(5, self.ONE, ack=first)
        timer.join()
        assert first.acked
        assert numbers(second) == [1]
        assert client.status()["acked"] == position(1)


@pytest.mark.parametrize("tls", [False, True])
@pytest.mark.parametrize("call", ["get", "batches", "stream"])
def test_closing_a_client_ends_what_waits_in_another_thread(
    call: str, tls: bool, tmp_path: Path, certificate: tuple[Path, Path]
) -> None:
    cert, key = certificate
    thread = ServerThread(tmp_path, **({"tls_cert": cert, "tls_key": key} if tls else {}))
    thread.start()
    client = Client(thread.url, ca=cert if tls else None, retry=1)
    pool = ThreadPoolExecutor(1)

    def wait() -> None:
        if call == "get":
            assert client.get(5)
            client.get(60)
        else:
            for _ in getattr(client, call)():
                pass

    try:
        client.subscribe()
        thread.source.write(1)
        waiting = pool.submit(wait)
        eventually(lambda: client.status()["position"] == position(1))
        eventually(lambda: thread.waiting() == 1, "the client to wait for the next batch")
        client.close()
        with pytest.raises(errors.ConnectionLostError, match="the client is closed"):
            waiting.result(10)
        with pytest.raises(errors.ConnectionLostError, match="the client is closed"):
            client.get()
    finally:
        thread.stop()


def test_leaving_an_asynchronous_loop_over_batches_leaves_no_connection_open(tmp_path: Path) -> None:
    thread = ServerThread(tmp_path)
    thread.start()

    async def consume() -> None:
        async with AsyncClient(thread.url) as client:
            await client.subscribe()
            thread.source.write(1)
            async for _ in client.batches():
                break  # the generator lives on, until the loop ends
        with pytest.raises(errors.ConnectionLostError, match="the client is closed"):
            await client.status()

    try:
        asyncio.run(consume())
        gc.collect()  # where a connection that is not closed says so
    finally:
        thread.stop()
