"""The calls of a pump, over its log. Texts and codes of the answers are those of TiDB's own pump."""

import asyncio
import contextlib
import logging
from dataclasses import replace
from typing import Any, NamedTuple, NoReturn

import grpc
import grpc.aio
from google.protobuf.message import DecodeError as MessageError

from ...instance.pump.log import PumpLog, RefusedWriteError
from ...instance.pump.reader import CollectedError
from ...protocol.errors import DecodeError
from ...protocol.tidb.pump_pb2 import Entity, Meta, Pos, PullBinlogReq, PullBinlogResp, WriteBinlogReq, WriteBinlogResp
from ...store.log.errors import LogError
from ..pumps import Served

TOGETHER = 2 << 30
"""Bytes of messages that wait until they are stored."""
STREAMS = 64
"""Streams of transactions that are open at a time."""
ARRIVAL = 30.0
"""Seconds that a message may take to arrive; TiDB itself gives its call up after 15."""
STOPS = "the pump stops"

logger = logging.getLogger("sluice.pump")


class Message(NamedTuple):
    """What a caller of WriteBinlog sends."""

    cluster_id: int
    payload: bytes


def _message(data: Any) -> Message | None:
    """Read a request, None at the end of a call, and keep no second copy of what may have a gigabyte."""
    if data is grpc.aio.EOF:
        return None
    request = WriteBinlogReq.FromString(data)
    return Message(request.clusterID, request.payload)


class Pump:
    """Answers the calls of TiDB and of drainers."""

    def __init__(self, log: PumpLog, cluster_id: int, names: frozenset[str]) -> None:
        """Calls over the network need a certificate with one of ``names``, if there are any."""
        self._log = log
        self._cluster_id = cluster_id
        self._names = names
        self._waiting = 0  # bytes that are being stored
        self._stored = Served()
        self._streams: set[asyncio.Task[Any] | None] = set()
        self._ended = asyncio.Event()

    @property
    def served(self) -> Served:
        """What was answered so far."""
        return replace(self._stored, streams=len(self._streams))

    def handler(self) -> Any:
        """Return what a gRPC server needs to serve the calls."""
        return grpc.method_handlers_generic_handler(
            "binlog.Pump",
            {
                # As a stream of one message: a call whose message was refused for its size is seen, and said.
                "WriteBinlog": grpc.stream_unary_rpc_method_handler(
                    self._write, response_serializer=WriteBinlogResp.SerializeToString
                ),
                "PullBinlogs": grpc.unary_stream_rpc_method_handler(
                    self._pull, response_serializer=PullBinlogResp.SerializeToString
                ),
            },
        )

    def end(self) -> None:
        """End the streams, and open no further one."""
        self._ended.set()
        for task in self._streams:
            assert task is not None
            task.cancel()

    async def _write(self, _messages: object, context: Any) -> WriteBinlogResp:
        """Store a message, and answer when it is on disk."""
        try:
            async with asyncio.timeout(ARRIVAL):
                message = _message(await context.read())
        except MessageError:
            await _abort(context, grpc.StatusCode.INTERNAL, "the request is no WriteBinlogReq")
        except TimeoutError:
            await _abort(context, grpc.StatusCode.DEADLINE_EXCEEDED, f"no message came in {ARRIVAL:g} s")
        if message is None:
            logger.warning(
                "%s: a call has brought no message: it was broken off, or the message was larger than"
                " sluice.pump.maxMessage allows, which then has to be raised before TiDB ends",
                context.peer(),
            )
            await _abort(context, grpc.StatusCode.INVALID_ARGUMENT, "no message")
        await self._admit(context, message.cluster_id)
        size = len(message.payload)
        if not size:  # TiDB asks whether the pump is there
            return WriteBinlogResp()
        if self._waiting + size > TOGETHER:
            text = (
                f"{self._waiting} bytes of messages wait to be stored, and {size} more would be more than the"
                f" {TOGETHER} that may: the disk of the pump is too slow"
            )
            logger.error("%s: %s", context.peer(), text)
            return self._refuse(text)
        self._waiting += size
        try:
            await self._log.append(message.payload)
        except DecodeError:
            await _abort(context, grpc.StatusCode.UNKNOWN, "unexpected EOF")
        except RefusedWriteError as error:
            return self._refuse(str(error))
        finally:
            self._waiting -= size
        self._stored = replace(self._stored, messages=self._stored.messages + 1, bytes=self._stored.bytes + size)
        return WriteBinlogResp()

    def _refuse(self, text: str) -> WriteBinlogResp:
        self._stored = replace(self._stored, refused=self._stored.refused + 1)
        return WriteBinlogResp(errmsg=text)

    async def _pull(self, data: bytes, context: Any) -> None:
        """Send transactions for as long as the caller takes them; what it does not take yet is not read."""
        try:
            request = PullBinlogReq.FromString(data)
        except MessageError:
            await _abort(context, grpc.StatusCode.INTERNAL, "the request is no PullBinlogReq")
        await self._admit(context, request.clusterID)
        if self._ended.is_set():
            await _abort(context, grpc.StatusCode.UNAVAILABLE, STOPS)
        if len(self._streams) >= STREAMS:
            await _abort(context, grpc.StatusCode.RESOURCE_EXHAUSTED, f"{STREAMS} streams are open, the most there may")
        task = asyncio.current_task()
        self._streams.add(task)
        try:
            async with contextlib.aclosing(self._log.read(request.startFrom.offset)) as found:
                async for it in found:
                    meta = Meta(startTs=it.start_ts, commitTs=it.commit_ts)
                    await context.write(PullBinlogResp(entity=Entity(pos=Pos(), payload=it.payload, meta=meta)))
        except CollectedError as error:
            await _abort(context, grpc.StatusCode.OUT_OF_RANGE, str(error))
        except (LogError, OSError) as error:
            logger.error("%s: the stream ends: %s", context.peer(), error)  # noqa: TRY400
            await _abort(context, grpc.StatusCode.INTERNAL, str(error))
        except grpc.aio.BaseError:  # of a write: there is nobody any more who reads
            logger.info("%s: the stream was broken off", context.peer())
        except asyncio.CancelledError:
            if not self._ended.is_set():
                raise
            await _abort(context, grpc.StatusCode.UNAVAILABLE, STOPS)
        finally:
            self._streams.discard(task)

    async def _admit(self, context: Any, cluster_id: int) -> None:
        """Refuse who may not call, and who means another cluster."""
        if self._names and not context.peer().startswith("unix:"):
            found = context.auth_context()
            names = {
                name.decode(errors="replace")
                for kind in ("x509_common_name", "x509_subject_alternative_name")
                for name in found.get(kind, ())
            }
            if not names & self._names:
                logger.warning("%s: refused: sluice.pump.names has none of %s", context.peer(), sorted(names))
                await _abort(context, grpc.StatusCode.PERMISSION_DENIED, "the certificate has no name that may call")
        if cluster_id != self._cluster_id:
            text = f"cluster ID are mismatch, {cluster_id} vs {self._cluster_id}"
            await _abort(context, grpc.StatusCode.UNKNOWN, text)


async def _abort(context: Any, code: grpc.StatusCode, text: str) -> NoReturn:
    """End a call with a code and a text."""
    await context.abort(code, text)
    raise AssertionError(text)  # never reached: `abort` raises
