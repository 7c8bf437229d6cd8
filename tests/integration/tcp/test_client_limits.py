"""A client of Canal's protocol with a limit of bytes a second, or a day."""

from sluice.protocol.canal.packet_pb2 import Messages
from tests.canal import CanalClient
from tests.integration.tcp.served import MEGABYTE, Canal, refused
from tests.source import numbers


async def get(client: CanalClient) -> Messages:
    return await client.get(timeout=50)


async def test_a_get_above_the_rate_is_empty_after_its_timeout(canal: Canal, client: CanalClient) -> None:
    await canal.embedded.limit("example", 1001, {"max_rate": 1000})
    canal.source.put(2, size=MEGABYTE)
    assert numbers(await get(client)) == [0]
    assert (await get(client)).batch_id == -1
    await canal.embedded.limit("example", 1001, {"max_rate": None})
    assert numbers(await get(client)) == [1]


async def test_a_quota_that_is_used_up_is_an_error_with_its_name(canal: Canal, client: CanalClient) -> None:
    await canal.embedded.limit("example", 1001, {"quota": 1})
    canal.source.put(1)
    batch = await client.get(timeout=0)
    client.ask()
    code, text = await refused(client)
    assert code == 400
    assert "client 1001 has used up its quota" in text
    client.ack(batch.batch_id)
    await canal.embedded.limit("example", 1001, {"quota": 0})
    canal.source.put(1)
    assert numbers(await client.get(timeout=0)) == [1]
