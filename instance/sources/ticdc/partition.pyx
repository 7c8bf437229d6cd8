"""What a partition of a topic of TiCDC has brought: which messages are a transaction, and which of them count.

TiCDC sends each row as a message of its own. Rows of several tables, and so of several transactions, are mixed; what
belongs to a commit_ts is complete when a watermark above it comes. Every message may come again after a restart of
TiCDC: up to the last watermark or, not yet released, from before.

So messages are staged by their commit_ts until the partition's watermark has passed it. A message below the watermark
is a repetition, and so is one with the commit_ts, table, key and type of a staged one. In tables without a primary key
two equal rows cannot be told from a repetition: each is kept. What was released is forgotten, so that memory is what
waits for a watermark, and that is limited. A statement counts only in the first partition, to which TiCDC sends
statements, also when it sends them to all.

Several partitions are members of a `sluice.instance.merge.merger.Merger` with exact keys: what `release` gives is a
run for `Merger.add`, the stamps of which are the commit_ts, and then `watermark` a `Merger.heartbeat`: nothing with a
lesser commit_ts comes. So the merger releases a commit_ts when the watermarks of all partitions have passed it, and the
transactions of one commit_ts one after the other, in the order of the partitions.
"""

from cython.operator cimport dereference, preincrement
from libc.stdint cimport int64_t
from libcpp.map cimport map
from libcpp.pair cimport pair
from libcpp.string cimport string
from libcpp.unordered_set cimport unordered_set

from ....protocol.tidb.canal_json cimport STATEMENT, WATERMARK, Message, put_identity, read_message
from ....protocol.wire cimport span_at

from ....protocol.errors import DecodeError, SourceError

cdef enum:
    ENTRY_SIZE = 128               # bytes that what is known of a message takes, about, beside its text


ctypedef pair[int64_t, string] Staged  # the offset of the first message of a commit_ts, and all messages


cdef class Partition:
    """Not locked: one thread at a time calls it."""
    cdef readonly int64_t watermark
    cdef readonly int64_t size
    cdef readonly long long repeated
    cdef int number
    cdef int64_t memory
    cdef int64_t commit_ts
    cdef map[int64_t, Staged] staged
    cdef map[int64_t, unordered_set[string]] identities
    cdef string identity

    def __init__(self, int number, int64_t memory):
        """`number` in its topic; `memory`: bytes that may be staged."""
        self.number = number
        self.memory = memory

    def begin(self, int64_t commit_ts):
        """Begin after a commit_ts; what was staged is dropped. The reading begins before all that has a greater one."""
        self.staged.clear()
        self.identities.clear()
        self.size = self.watermark = 0
        self.commit_ts = commit_ts

    def receive(self, list records):
        """Stage messages, with their offsets.

        Raises:
            DecodeError: one is not what it should be; those before it are staged. It names the offset.
            SourceError: more is staged than memory allows.
        """
        cdef int64_t offset
        cdef bytes value
        for offset, value in records:
            try:
                self.stage(offset, value, len(value))
            except DecodeError as error:
                raise DecodeError(f"offset {offset}: {error}") from None
            if self.size > self.memory:
                raise SourceError(
                    f"more than {self.memory >> 20} MiB of changes wait for a watermark of TiCDC, up to offset"
                    f" {offset}. If transactions are as large as that, raise sluice.instance.ticdc.memory; else see why"
                    " the checkpoint of the changefeed does not move"
                )

    def release(self):
        """Return the transactions that are complete, in the order of their commit_ts: offset and messages of each."""
        cdef map[int64_t, Staged].iterator first = self.staged.begin()
        found = []
        while first != self.staged.end() and dereference(first).first < self.watermark:
            found.append((dereference(first).second.first, <bytes>dereference(first).second.second))
            self.forget(dereference(first).first)
            first = self.staged.erase(first)
        return found

    cdef int forget(self, int64_t commit_ts) except -1:
        """Give up what is known of a commit_ts, except for its messages."""
        cdef unordered_set[string].iterator it = self.identities[commit_ts].begin()
        while it != self.identities[commit_ts].end():
            self.size -= dereference(it).size() + ENTRY_SIZE
            preincrement(it)
        self.identities.erase(commit_ts)
        self.size -= self.staged[commit_ts].second.size() + ENTRY_SIZE
        return 0

    cdef int stage(self, int64_t offset, const char *data, size_t size) except -1:
        cdef Message message
        cdef Staged *staged
        read_message(span_at(data, size), &message)
        if message.kind == WATERMARK:
            self.watermark = max(self.watermark, message.ts)
            return 0
        if message.ts <= self.commit_ts or (message.kind == STATEMENT and self.number):
            return 0
        if message.ts < self.watermark:
            self.repeated += 1
            return 0
        put_identity(&message, &self.identity)
        if self.identity.size():
            if not self.identities[message.ts].insert(self.identity).second:
                self.repeated += 1
                return 0
            self.size += self.identity.size() + ENTRY_SIZE
        staged = &self.staged[message.ts]
        if staged.second.empty():
            staged.first = offset
            self.size += ENTRY_SIZE
        staged.second.append(data, size)
        self.size += size
        return 0
