"""An output to Kafka and a real broker: what arrives, and what each error says."""

import asyncio
import contextlib
import hashlib
import itertools
import json
from collections.abc import AsyncIterator, Callable, Mapping
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import KafkaException, Producer
from confluent_kafka.admin import AdminClient
from confluent_kafka.admin._acl import AclOperation
from confluent_kafka.admin._resource import ResourceType

from sluice.instance import skipped
from sluice.instance.plugins import FORMS
from sluice.instance.properties import Property
from sluice.server.embedded import EmbeddedServer
from sluice.server.outputs import delivery
from sluice.server.outputs.kafka import positions, target, topics
from sluice.server.outputs.kafka.settings import KafkaSettings
from sluice.server.outputs.kafka.target import KafkaTarget
from sluice.server.outputs.outputs import Outputs
from sluice.server.outputs.registry import examine, make
from sluice.server.outputs.settings import Output
from sluice.server.outputs.target import DeliveryError, RejectedError
from sluice.store.moves import Move, MoveState, Reason
from sluice.store.status import ClientStatus
from tests import certificates
from tests.plugins import install, on_path
from tests.servers.kafka import Kafka
from tests.source import Source, start_embedded
from tests.unit.outputs.test_kafka_target import batch
from tests.waiting import soon

NAME = "example"
_numbers = itertools.count(1)


class Findings:
    """Takes what an examination finds."""

    def __init__(self) -> None:
        self.found: list[tuple[str, str]] = []

    def good(self, _what: object, text: object) -> None:
        self.found.append(("ok", str(text)))

    def note(self, _what: object, text: object) -> None:
        self.found.append(("note", str(text)))

    def wrong(self, _what: object, text: object) -> None:
        self.found.append(("FAIL", str(text)))


class Setup:
    """A destination, whose changes are rows with numbers, and a topic."""

    def __init__(self, embedded: EmbeddedServer, source: Source, kafka: Kafka) -> None:
        self.embedded = embedded
        self.source = source
        self.kafka = kafka
        self.topic = f"numbers{next(_numbers)}"
        self.library: dict[str, str] = {"bootstrap.servers": kafka.servers}
        self.folder = Path()
        self.outputs = Outputs(embedded, lambda _: (), lambda it: make(it, lambda: ""))

    def output(self, **settings: Any) -> Output:
        library = {name: Property(value, "test") for name, value in self.library.items()}
        made = KafkaSettings(**{"client_id": 1001, "topic": self.topic, **settings})
        return Output(NAME, "mq", made, shared=False, library=library, folder=self.folder)

    async def restart(self, **settings: Any) -> None:
        """Start the output again, with a new target."""
        await self.outputs.stop(NAME)
        await self.start(**settings)

    async def start(self, **settings: Any) -> None:
        output = self.output(**settings)
        self.outputs = Outputs(self.embedded, lambda _: [output], lambda it: make(it, lambda: ""))
        self.embedded.companions = self.outputs
        await self.outputs.start(NAME)

    def clients(self) -> list[ClientStatus]:
        return self.embedded.destination_status(NAME).clients

    @property
    def error(self) -> str:
        (status,) = self.outputs.status(NAME)
        return f"{status.state}: {status.error}"

    async def fails(self, state: str) -> str:
        await soon(lambda: self.error.startswith(f"{state}: ") and self.error != f"{state}: ")
        return self.error.partition(": ")[2]

    async def delivered(self) -> list[list[int]]:
        """Wait until all is confirmed; return the numbers in each partition."""
        await soon(lambda: not self.clients()[0].lag.entries)
        values = await asyncio.to_thread(self.kafka.read, self.topic)
        return [[int(row["id"]) for it in found for row in json.loads(it)["data"]] for found in values]


@pytest.fixture
async def setup(tmp_path: Path, kafka: Kafka, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Setup]:
    monkeypatch.setattr(delivery, "LONGEST", 0.3)
    embedded, sources = await start_embedded(tmp_path)
    made = Setup(embedded, sources[NAME], kafka)
    yield made
    await embedded.close()


@pytest.mark.parametrize("how", ["confirm", pytest.param("skip", marks=pytest.mark.extended)])
async def test_a_gap_stops_an_output_until_it_is_confirmed_or_its_marker_is_skipped(setup: Setup, how: str) -> None:
    await setup.start()
    setup.source.put(2)
    assert await setup.delivered() == [[0, 1]]
    (client,) = setup.clients()
    instance = setup.embedded.instances[NAME]
    instance.gate.jump(
        client.client_id, Move(Reason.PURGE, "a", client.acked, "the server", 1, MoveState.OPEN, detail="purged")
    )
    setup.source.put(2)
    error = await setup.fails("error")
    assert "changes from a to" in error
    assert client.acked in error
    if how == "confirm":
        assert await setup.embedded.confirm_gaps(NAME, client.client_id) == 1
    else:
        assert await setup.embedded.skip(NAME, client.client_id, client.acked) is None
    assert await setup.delivered() == [[0, 1, 2, 3]]
    assert bool(setup.embedded.destination_status(NAME).gaps) == (how == "skip")


@pytest.mark.extended
async def test_a_topic_that_was_never_seen_is_made_as_the_brokers_make_topics(setup: Setup) -> None:
    await setup.start()
    setup.source.put(5)
    assert await setup.delivered() == [[0, 1, 2, 3, 4]]


@pytest.mark.parametrize("transactional", [False, pytest.param(True, marks=pytest.mark.extended)])
async def test_rows_are_spread_over_partitions_by_their_keys(setup: Setup, transactional: bool) -> None:
    setup.kafka.create(setup.topic, 3)
    await setup.start(
        partitions=3, partition_hash=r".*\..*:id", transactional=transactional, transactional_id=setup.topic
    )
    setup.source.put(100)
    found = await setup.delivered()
    assert sorted(itertools.chain(*found)) == list(range(100))
    assert all(numbers and numbers == sorted(numbers) for numbers in found)


async def test_a_form_of_a_package_makes_the_records(setup: Setup, tmp_path: Path) -> None:
    install(tmp_path / "site", "example", {FORMS: {"rows": "sluice_example.form:Rows"}})
    with on_path(tmp_path / "site"):
        await setup.start(form="rows", headers=True)
        setup.source.put(2)
        await soon(lambda: not setup.clients()[0].lag.entries)
        values = await asyncio.to_thread(setup.kafka.read, setup.topic)
        headers = await asyncio.to_thread(setup.kafka.read_headers, setup.topic)
        epoch = ("sluice-epoch", str(setup.embedded.epoch(NAME)).encode())
        await setup.outputs.stop(NAME)
    assert [[json.loads(it)["row"]["id"] for it in found] for found in values] == [[0, 1]]
    assert headers == [
        [("table", b"goods"), ("sluice-position", f"101/bin.000001@1700000000:{4 + 100 * it}:0".encode()), epoch]
        for it in (0, 1)
    ]


async def test_headers_say_where_a_record_stands_and_in_which_epoch_it_was_sent(setup: Setup) -> None:
    setup.library["queue.buffering.max.messages"] = "2"  # so that some wait for room
    await setup.start(headers=True)
    setup.source.put(5)
    await setup.delivered()
    epoch = str(setup.embedded.epoch(NAME)).encode()
    assert await asyncio.to_thread(setup.kafka.read_headers, setup.topic) == [
        [("sluice-position", f"101/bin.000001@1700000000:{4 + 100 * number}:0".encode()), ("sluice-epoch", epoch)]
        for number in range(5)
    ]


async def test_what_the_library_says_of_itself_is_shown_also_while_nothing_is_sent(
    setup: Setup, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(target, "INTERVAL", 100)
    monkeypatch.setattr(delivery, "IDLE", 0.05)
    await setup.start()
    setup.source.put(5)
    await setup.delivered()
    shown: Callable[[], Mapping[str, float]] = lambda: setup.outputs.status(NAME)[0].statistics  # noqa: E731
    await soon(lambda: shown().get("record-send-total") == 5)
    assert shown()["connection-count"] == 1
    assert shown()["outgoing-byte-total"] > 5 * 100
    assert 0 < shown()["buffer-available-bytes"] <= 32 << 20
    assert {"request-latency-avg", "record-queue-time-max", "batch-size-avg"} <= shown().keys()
    assert setup.error == "running: "


async def test_a_topic_that_is_deleted_is_an_error_until_it_exists_again(setup: Setup) -> None:
    setup.library["topic.metadata.propagation.max.ms"] = "1000"
    await setup.start()
    setup.source.put(2)
    assert await setup.delivered() == [[0, 1]]
    setup.kafka.delete(setup.topic)
    setup.source.put(1)
    text = await setup.fails("error")
    assert f"topic {setup.topic}" in text
    assert "what it held is lost: create it again" in text
    await asyncio.sleep(0.5)
    assert await asyncio.to_thread(setup.kafka.read, setup.topic) == [], "nobody makes it"
    setup.kafka.create(setup.topic)
    assert await setup.delivered() == [[2]]


@pytest.mark.extended
@pytest.mark.parametrize("made", [False, True])
async def test_a_topic_that_is_deleted_while_its_output_is_away_is_a_loss_that_is_named(
    setup: Setup, *, made: bool
) -> None:
    await setup.start()
    setup.source.put(2)
    assert await setup.delivered() == [[0, 1]]
    acked = setup.embedded.status(NAME, 1001).acked
    await setup.outputs.stop(NAME)
    setup.kafka.delete(setup.topic)
    if made:
        setup.kafka.create(setup.topic)
    await setup.restart()
    setup.source.put(1)
    if not made:
        text = await setup.fails("error")
        assert f"topic {setup.topic}: the topic is gone, and what it held is lost: create it again" in text
        assert await asyncio.to_thread(setup.kafka.read, setup.topic) == [], "nobody makes it"
        setup.kafka.create(setup.topic)
    assert await setup.delivered() == [[2]]
    (status,) = setup.outputs.status(NAME)
    assert (
        status.lost == f"topic {setup.topic} was deleted and made again: what it held is lost: changes before {acked}"
    )
    await setup.restart()
    setup.source.put(1)
    assert await setup.delivered() == [[2, 3]]
    assert setup.outputs.status(NAME)[0].lost == "", "it is named once"


async def test_a_topic_of_a_table_that_was_deleted_is_an_error_as_soon_as_something_is_to_be_sent_there(
    setup: Setup,
) -> None:
    rules = {"topic": f"{setup.topic}rest", "dynamic_topic": rf"{setup.topic}:shop\.goods"}
    await setup.start(**rules)
    setup.source.put(1)
    assert await setup.delivered() == [[0]]
    await setup.outputs.stop(NAME)
    setup.kafka.delete(setup.topic)
    await setup.start(**rules)
    setup.source.put(1)
    assert f"topic {setup.topic}: the topic is gone" in await setup.fails("error")


async def test_a_record_that_the_broker_refuses_is_named_by_position_table_and_size(
    setup: Setup, caplog: pytest.LogCaptureFixture
) -> None:
    setup.kafka.create(setup.topic)
    await setup.start()
    setup.source.put(1)
    assert await setup.delivered() == [[0]]
    place = setup.embedded.status(NAME, 1001).acked
    setup.kafka.alter(setup.topic, max_message_bytes="10000")
    setup.source.put(1, size=20_000)
    await setup.fails("error")
    (text,) = (it.getMessage() for it in caplog.records if "Message size too large" in it.getMessage())
    assert "(a record of shop.goods, 1 row id=1, 20" in text
    assert "raise max.message.bytes of the topic" in text
    assert text.endswith(f", at {place}"), text


async def test_a_table_whose_name_no_topic_can_have_is_an_error_until_it_is_mapped(setup: Setup) -> None:
    await setup.start(dynamic_topic=r".*\..*")
    setup.source.put(1, table="x y;rm")
    error = await setup.fails("error")
    assert "no topic can be called 'shop_x y;rm'" in error
    assert "or set onInvalidTopic = map" in error
    await setup.restart(dynamic_topic=r".*\..*", on_invalid_topic="map")
    setup.topic = "shop_x_y_rm-9e6f6068"
    assert await setup.delivered() == [[0]]


async def test_a_table_that_is_mapped_to_a_topic_is_there_once_with_transactions(setup: Setup) -> None:
    settings = {"dynamic_topic": r".*\..*", "on_invalid_topic": "map", "transactional": True}
    await setup.start(transactional_id=setup.topic, **settings)
    setup.source.put(2, table="a b;c")
    await soon(lambda: not setup.clients()[0].lag.entries)
    await setup.restart(transactional_id=setup.topic, **settings)
    setup.source.put(1, table="a b;c")
    setup.topic = "shop_a_b_c-" + hashlib.sha256(b"shop.a b;c").hexdigest()[:8]
    assert await setup.delivered() == [[0, 1, 2]]


async def test_an_invalid_topic_is_an_error_whoever_says_so(setup: Setup) -> None:
    found = make(setup.output(), lambda: "")
    assert isinstance(found, KafkaTarget)
    with pytest.raises(RejectedError, match="Invalid topic: correct the topic, or the rule of dynamicTopic"):
        await asyncio.to_thread(found.fit, "x y;rm")


async def test_a_record_without_a_key_that_a_compacted_topic_refuses_is_an_error_with_advice(setup: Setup) -> None:
    setup.kafka.create(setup.topic, cleanup_policy="compact")
    setup.source.put(2)
    setup.source.put(1, keyed=False)
    await setup.start(key="pk")
    assert "A compacted topic needs a key: set key = pk" in await setup.fails("error")


async def test_a_row_that_is_too_large_stops_the_output_after_all_before_it(setup: Setup) -> None:
    setup.library["max.request.size"] = "20000"
    await setup.start()
    setup.source.put(2)
    setup.source.put(1, size=30_000)
    setup.source.put(1)
    text = await setup.fails("error")
    assert "shop.goods" in text
    assert "30" in text
    assert f", at {setup.embedded.status(NAME, 1001).acked}" in text
    values = await asyncio.to_thread(setup.kafka.read, setup.topic)
    assert [len(it) for it in values] == [2]


async def test_a_row_that_is_too_large_is_left_out_and_listed_as_configured(setup: Setup, tmp_path: Path) -> None:
    setup.library["max.request.size"] = "20000"
    await setup.start(on_refused="skip")
    setup.source.put(2)
    setup.source.put(1, size=30_000)
    setup.source.put(1)
    assert await setup.delivered() == [[0, 1, 3]]
    (item,) = skipped.read(skipped.path_of(tmp_path, NAME))
    assert (item.output, item.position) == ("mq", "101/bin.000001@1700000000:204:0")
    assert "shop.goods is too large for a record: 30" in item.reason
    assert setup.outputs.status(NAME)[0].skipped == 1


@pytest.mark.parametrize(
    ("options", "settings", "said"),
    [
        ({"max_message_bytes": "1000"}, {}, "takes requests of 1000 bytes (max.message.bytes)"),
        ({}, {"partitions": 4, "partition_hash": ".*"}, "has 1 partitions, and 4 are configured"),
    ],
)
async def test_a_topic_that_does_not_fit_is_found_by_a_check_and_before_anything_is_sent(
    setup: Setup, options: dict[str, Any], settings: dict[str, Any], said: str
) -> None:
    setup.kafka.create(setup.topic, **options)
    findings = Findings()
    await asyncio.to_thread(examine, setup.output(**settings), findings)
    ((verdict, text),) = findings.found
    assert verdict == "FAIL"
    assert said in text
    await setup.start(**settings)
    setup.source.put(1)
    assert said in await setup.fails("error")


async def test_a_check_says_what_a_topic_takes_and_makes_none(setup: Setup) -> None:
    findings = Findings()
    await asyncio.to_thread(examine, setup.output(), findings)
    await asyncio.to_thread(examine, setup.output(), findings)
    expected = f"topic {setup.topic} does not exist yet: the brokers make it when the output starts, with 1 partitions"
    assert findings.found == [("note", f"{expected} (auto.create.topics.enable)")] * 2
    await asyncio.to_thread(examine, setup.output(partitions=4, partition_hash=".*"), findings)
    assert findings.found.pop()[0] == "FAIL"
    setup.kafka.create(setup.topic)
    await asyncio.to_thread(examine, setup.output(), findings)
    assert findings.found[-1] == ("ok", f"topic {setup.topic} has 1 partitions and takes 1048588 bytes")


async def test_one_client_asks_for_all_topics(setup: Setup, monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[AdminClient] = []

    class Counted(AdminClient):
        def __init__(self, *arguments: Any, **options: Any) -> None:
            super().__init__(*arguments, **options)
            made.append(self)

    monkeypatch.setattr(topics, "AdminClient", Counted)
    names = [f"{setup.topic}{letter}" for letter in "abc"]
    for name in (setup.topic, *names):
        setup.kafka.create(name)
    rules = {"dynamic_topic": ";".join(rf"{name}:shop\.none" for name in names)}
    await setup.start(**rules)
    setup.source.put(1)
    await setup.delivered()
    assert len(made) == 1
    findings = Findings()
    await asyncio.to_thread(examine, setup.output(**rules), findings)
    assert [verdict for verdict, _ in findings.found] == ["ok"] * 4
    assert len(made) == 2


async def test_a_broker_that_does_not_answer_is_waited_for(setup: Setup, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(topics, "ANSWERS", 1)
    setup.library["bootstrap.servers"] = "127.0.0.1:1"
    await setup.start()
    setup.source.put(1)
    await setup.fails("retrying")
    findings = Findings()
    await asyncio.to_thread(examine, setup.output(), findings)
    assert findings.found[0][0] == "FAIL"


async def test_a_setting_that_librdkafka_refuses_is_an_error(setup: Setup) -> None:
    setup.library["compression.type"] = "brotli"
    await setup.start()
    assert "compression" in await setup.fails("error")


@pytest.mark.extended
async def test_a_second_producer_of_the_same_transactions_ends_the_first(setup: Setup, tmp_path: Path) -> None:
    await setup.start(transactional=True, transactional_id=setup.topic)
    setup.source.put(1)
    assert await setup.delivered() == [[0]]
    other = make(setup.output(transactional=True, transactional_id=setup.topic), lambda: "")
    await asyncio.to_thread(other.open, "", "", 1)
    setup.source.put(1)
    retried: Callable[[], bool] = lambda: setup.outputs.status(NAME)[0].retries > 0  # noqa: E731
    await soon(retried)
    assert await setup.delivered() == [[0, 1]]
    other.abandon()
    other.close()


@pytest.mark.extended
async def test_a_producer_that_is_fenced_within_a_transaction_leaves_without_an_alarm(
    setup: Setup, monkeypatch: pytest.MonkeyPatch
) -> None:
    def lose(*_: object) -> None:
        raise DeliveryError("the answer is lost")

    output = setup.output(transactional=True, transactional_id=setup.topic)
    first, second = (make(output, lambda: "") for _ in range(2))
    await asyncio.to_thread(first.open, "", "", 1)
    with monkeypatch.context() as patch:
        patch.setattr(KafkaTarget, "_resume", lose)
        with pytest.raises(DeliveryError, match="lost"):
            await asyncio.to_thread(first.send, [first.prepare(batch())], None)
    await asyncio.to_thread(second.open, "", "", 2)
    for it in (first, second):
        it.abandon()
        await asyncio.to_thread(it.close)


class TestPositions:
    """With transactions the brokers keep the place of an output, with what they have: each change is there once."""

    @pytest.fixture(autouse=True)
    async def keep(self, setup: Setup) -> None:
        """Another client holds all that was put."""
        await setup.embedded.subscribe(NAME, 2000)

    async def start(self, setup: Setup) -> None:
        await setup.restart(transactional=True, transactional_id=setup.topic)

    async def begin(self, setup: Setup, count: int = 2) -> None:
        """Deliver some changes."""
        await self.start(setup)
        setup.source.put(count)
        assert await setup.delivered() == [list(range(count))]

    async def records(self, setup: Setup) -> list[dict[str, Any]]:
        """What the topic has of the output."""
        (values,) = await asyncio.to_thread(setup.kafka.read, positions.TOPIC, key=f"{setup.topic}/{NAME}/mq")
        return [json.loads(it) for it in values]

    async def write(self, setup: Setup, value: bytes) -> None:
        """Write a record of the output."""
        producer = Producer({"bootstrap.servers": setup.kafka.servers})
        producer.produce(positions.TOPIC, value, f"{setup.topic}/{NAME}/mq".encode(), 0)
        assert await asyncio.to_thread(producer.flush, 20) == 0

    async def test_each_transaction_writes_the_place_after_it(self, setup: Setup) -> None:
        for count in (1, 2):
            await self.begin(setup) if count == 1 else setup.source.put(1)
            await setup.delivered()
            cursor = setup.embedded.cursor(NAME, 1001)
            assert cursor is not None
            epoch = setup.embedded.epoch(NAME)
            expected = {"position": str(cursor.position), "gtids": "", "epoch": epoch, "moved": "", "number": count}
            assert (await self.records(setup))[-1] == expected

    @pytest.mark.extended
    async def test_an_output_that_starts_keeps_out_servers_of_earlier_epochs_before_it_sends(
        self, setup: Setup
    ) -> None:
        await self.start(setup)
        await soon(lambda: setup.error == "running: ")
        epoch = setup.embedded.epoch(NAME)
        assert await self.records(setup) == [{"position": "", "gtids": "", "epoch": epoch, "moved": "", "number": 0}]
        former = make(setup.output(transactional=True, transactional_id=setup.topic), lambda: "")
        with pytest.raises(RejectedError, match=f"epoch {epoch}, and this server is in epoch {epoch - 1}"):
            await asyncio.to_thread(former.open, "", "", epoch - 1)
        former.close()
        setup.source.put(1)
        assert await setup.delivered() == [[0]]

    async def test_a_server_of_an_earlier_epoch_is_kept_out_although_the_cursor_was_moved_without_its_knowledge(
        self, setup: Setup
    ) -> None:
        await self.begin(setup)
        before = setup.embedded.memory(NAME, 1001)
        await setup.outputs.stop(NAME)
        await setup.embedded.seek(NAME, 1001, "latest")
        await self.start(setup)
        setup.source.put(1)
        assert await setup.delivered() == [[0, 1, 2]]
        await setup.outputs.stop(NAME)
        epoch = setup.embedded.epoch(NAME)
        former = make(setup.output(transactional=True, transactional_id=setup.topic), lambda: "")
        with pytest.raises(RejectedError, match=f"epoch {epoch}, and this server is in epoch {epoch - 1}"):
            await asyncio.to_thread(former.open, before, "", epoch - 1)
        former.close()

    async def test_the_topic_is_made_compacted_and_a_check_says_so(self, setup: Setup) -> None:
        with contextlib.suppress(KafkaException):
            setup.kafka.delete(positions.TOPIC)
        output = setup.output(transactional=True, transactional_id=setup.topic)
        for expected in (f"topic {positions.TOPIC} does not exist yet: it is made at the start", "is compacted"):
            findings = Findings()
            await asyncio.to_thread(examine, output, findings)
            verdict, text = findings.found[-1]
            assert verdict == "ok"
            assert expected in text
            await self.begin(setup) if "not exist" in text else None

    @pytest.mark.extended
    async def test_what_was_committed_without_an_answer_is_not_sent_again(
        self, setup: Setup, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        await self.begin(setup)
        send, lost = KafkaTarget.send, [DeliveryError("the answer is lost")] * 3

        def lose(*arguments: Any) -> None:
            send(*arguments)
            if lost:
                raise lost.pop()

        monkeypatch.setattr(KafkaTarget, "send", lose)
        for _ in range(4):
            setup.source.put(10)
            found = await setup.delivered()
        assert found == [list(range(42))]
        assert lost == []

    @pytest.mark.extended
    async def test_a_cursor_that_is_lost_is_found_in_the_topic(self, setup: Setup) -> None:
        await self.begin(setup)
        await setup.outputs.stop(NAME)
        await setup.embedded.release(NAME, 1001)
        await setup.embedded.unsubscribe(NAME, 1001)
        await self.start(setup)
        setup.source.put(1)
        assert await setup.delivered() == [[0, 1, 2]]

    @pytest.mark.extended
    async def test_a_cursor_that_is_moved_by_hand_wins_once(
        self, setup: Setup, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        await self.begin(setup)
        await setup.embedded.seek(NAME, 1001, "earliest")
        send = KafkaTarget.send

        def lose(*arguments: Any) -> None:
            send(*arguments)
            monkeypatch.undo()
            raise DeliveryError("the answer is lost")

        monkeypatch.setattr(KafkaTarget, "send", lose)
        await self.start(setup)
        assert await setup.delivered() == [[0, 1, 0, 1]]
        await self.start(setup)
        setup.source.put(1)
        assert await setup.delivered() == [[0, 1, 0, 1, 2]]

    @pytest.mark.extended
    async def test_a_running_output_follows_its_cursor_when_that_is_moved(self, setup: Setup) -> None:
        await self.begin(setup)
        await setup.embedded.seek(NAME, 1001, "earliest")
        await soon(lambda: setup.embedded.status(NAME, 1001).lag.entries == 0)
        setup.source.put(1)
        found = await setup.delivered()
        assert found == [[0, 1, 0, 1, 2]]

    @pytest.mark.extended
    async def test_what_a_running_output_sends_after_a_move_is_noted_as_sent_after_it(self, setup: Setup) -> None:
        """Else it would send that once more, if it ended before the cursor is stored."""
        await self.begin(setup)
        await setup.embedded.seek(NAME, 1001, "earliest")
        move = setup.embedded.moved(NAME, 1001)
        assert await setup.delivered() == [[0, 1, 0, 1]]
        (*_, last) = await self.records(setup)
        assert last["moved"] == move

    @pytest.mark.extended
    async def test_a_record_of_a_later_epoch_stops_the_output_until_the_cursor_is_moved(self, setup: Setup) -> None:
        await self.begin(setup)
        (*_, last) = await self.records(setup)
        await setup.outputs.stop(NAME)
        await self.write(setup, json.dumps({**last, "epoch": 99}).encode())
        await self.start(setup)
        setup.source.put(1)
        text = await setup.fails("error")
        assert "has the place of this output from epoch 99, and this server is in epoch" in text
        await setup.embedded.seek(NAME, 1001, str(last["position"]))
        assert await setup.delivered() == [[0, 1, 2]]

    @pytest.mark.extended
    async def test_a_record_from_before_what_was_confirmed_stops_the_output_until_the_cursor_is_moved(
        self, setup: Setup
    ) -> None:
        """As after the restore of brokers; the cursor alone would pass over what they have lost."""
        await self.begin(setup)
        (*_, backup) = await self.records(setup)
        setup.source.put(1)
        await setup.delivered()
        end = setup.clients()[0].acked
        await setup.outputs.stop(NAME)
        await self.write(setup, json.dumps(backup).encode())
        await self.start(setup)
        text = await setup.fails("error")
        assert "the other side has lost changes that it had confirmed" in text
        assert f"`sluice seek {NAME} 1001 {backup['position']}` sends again what follows" in text
        assert f"`sluice seek {NAME} 1001 {end}` goes on without it" in text
        await setup.embedded.seek(NAME, 1001, str(backup["position"]))
        assert await setup.delivered() == [[0, 1, 2, 2]]

    @pytest.mark.extended
    @pytest.mark.parametrize("value", [b"", b"{}", b"[]", b"?", b'{"position":"x","gtids":"","epoch":1,"moved":""}'])
    async def test_a_record_of_somebody_else_stops_the_output(self, setup: Setup, value: bytes) -> None:
        await self.begin(setup)
        await setup.outputs.stop(NAME)
        await self.write(setup, value)
        await self.start(setup)
        text = await setup.fails("error")
        assert f"the record {setup.topic}/{NAME}/mq at offset " in text
        assert "is not one of Sluice" in text

    @pytest.mark.extended
    @pytest.mark.parametrize("made", [False, True])
    async def test_a_topic_that_has_lost_the_place_stops_the_output(self, setup: Setup, *, made: bool) -> None:
        await self.begin(setup)
        await setup.outputs.stop(NAME)
        setup.kafka.delete(positions.TOPIC)
        if made:
            setup.kafka.create(positions.TOPIC, cleanup_policy="compact")
        await self.start(setup)
        setup.source.put(1)
        text = await setup.fails("error")
        assert ("has no record" if made else "is gone, and with it the place of this output") in text
        assert "say where it goes on with `sluice seek`" in text
        await setup.embedded.seek(NAME, 1001, "latest")
        setup.source.put(1)
        assert await setup.delivered() == [[0, 1, 3]]

    @pytest.mark.extended
    async def test_a_topic_that_is_not_compacted_stops_the_output(self, setup: Setup) -> None:
        await self.begin(setup)
        setup.kafka.alter(positions.TOPIC, cleanup_policy="delete")
        try:
            await self.start(setup)
            assert "loses the positions of outputs, because its cleanup.policy is delete" in await setup.fails("error")
            findings = Findings()
            await asyncio.to_thread(examine, setup.output(transactional=True, transactional_id=setup.topic), findings)
            assert findings.found[-1][0] == "FAIL"
        finally:
            setup.kafka.alter(positions.TOPIC, cleanup_policy="compact")
        setup.source.put(1)
        assert await setup.delivered() == [[0, 1, 2]]

    @pytest.mark.extended
    async def test_a_transaction_of_another_output_that_is_open_hides_no_record(self, setup: Setup) -> None:
        other = Producer({"bootstrap.servers": setup.kafka.servers, "transactional.id": f"{setup.topic}-other"})
        await asyncio.to_thread(other.init_transactions)
        await self.begin(setup)
        other.begin_transaction()
        other.produce(positions.TOPIC, b"", b"other", 0)
        await asyncio.to_thread(other.flush)
        setup.source.put(1)
        await setup.delivered()
        await setup.outputs.stop(NAME)
        await setup.embedded.release(NAME, 1001)
        await setup.embedded.unsubscribe(NAME, 1001)
        await self.start(setup)
        await asyncio.sleep(1)
        assert setup.error == "starting: "
        await asyncio.to_thread(other.abort_transaction)
        setup.source.put(1)
        assert await setup.delivered() == [[0, 1, 2, 3]]


MODULE = "org.apache.kafka.common.security"


@pytest.mark.parametrize(
    "account",
    [
        {"sasl.mechanism": "PLAIN", "sasl.username": Kafka.user, "sasl.password": Kafka.password},
        {
            "sasl.mechanism": "SCRAM-SHA-512",
            "sasl.jaas.config": f'{MODULE}.scram.ScramLoginModule required username="{Kafka.user}"'
            f' password="{Kafka.password}";',
        },
    ],
    ids=["plain", "scram"],
)
async def test_a_broker_is_reached_by_tls_and_a_password_as_javas_settings_say(
    setup: Setup, kafka: Kafka, account: dict[str, str]
) -> None:
    await asyncio.to_thread(kafka.create, setup.topic)
    setup.library = {
        "bootstrap.servers": f"127.0.0.1:{kafka.secure_port}",
        "security.protocol": "SASL_SSL",
        "ssl.truststore.type": "PEM",
        "ssl.truststore.location": str(kafka.certificate),
        **account,
    }
    await setup.start(transactional=True, transactional_id=setup.topic)
    setup.source.put(3)
    assert await setup.delivered() == [[0, 1, 2]]


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        (
            {"sasl.password": "another-secret"},
            "correct kafka.sasl.mechanism, kafka.sasl.username",
        ),
        ({"ssl.ca.location": "other.pem"}, "correct kafka.ssl.ca.location"),
    ],
    ids=["password", "authority"],
)
async def test_a_wrong_password_or_authority_is_an_error_without_secrets(
    setup: Setup, kafka: Kafka, wrong: dict[str, str], said: str, tmp_path: Path
) -> None:
    certificates.make(tmp_path)[0].rename(tmp_path / "other.pem")
    setup.library = {
        "bootstrap.servers": f"127.0.0.1:{kafka.secure_port}",
        "security.protocol": "SASL_SSL",
        "ssl.ca.location": str(kafka.certificate),
        "sasl.mechanism": "SCRAM-SHA-512",
        "sasl.username": Kafka.user,
        "sasl.password": Kafka.password,
        **wrong,
    }
    setup.folder = tmp_path
    await setup.start()
    setup.source.put(1)
    text = await setup.fails("error")
    assert said in text
    assert "secret" not in text


@pytest.mark.extended
async def test_a_record_that_the_user_may_not_write_is_named(setup: Setup, kafka: Kafka) -> None:
    authorizer = "org.apache.kafka.metadata.authorizer.StandardAuthorizer"
    options = {"authorizer.class.name": authorizer, "super.users": "User:ANONYMOUS"}
    with Kafka(options, certificate=kafka.certificate) as broker:
        broker.create(setup.topic)
        broker.allow(AclOperation.DESCRIBE, ResourceType.TOPIC, setup.topic)
        broker.allow(AclOperation.IDEMPOTENT_WRITE, ResourceType.BROKER, "kafka-cluster")
        setup.library = {
            "bootstrap.servers": f"127.0.0.1:{broker.secure_port}",
            "security.protocol": "SASL_SSL",
            "ssl.ca.location": str(kafka.certificate),
            "sasl.mechanism": "PLAIN",
            "sasl.username": Kafka.user,
            "sasl.password": Kafka.password,
        }
        await setup.start()
        await soon(lambda: setup.error == "running: ")
        place = setup.source.end()
        setup.source.put(1)
        text = await setup.fails("error")
        assert f"topic {setup.topic}: " in text
        assert "(a record of shop.goods, 1 row id=0, " in text
        assert "allow the user to WRITE and DESCRIBE the topic" in text
        assert text.endswith(f", at {place}"), text
        await setup.outputs.stop(NAME)
