"""What the partitions of a topic of TiCDC have brought: which messages are a transaction, and which of them count.

TiCDC sends each row as a message of its own, to one of the partitions. Rows of several tables, and so of several
transactions, are mixed; what belongs to a commit_ts is complete when a watermark above it has come in each partition.
Every message may come again after a restart of TiCDC: up to the last watermark or, not yet released, from before.

So messages are staged by their commit_ts until the watermarks of all partitions have passed it. A message below the
watermark of its partition is a repetition, and so is one with the commit_ts, table, key and type of a staged one, in
whichever partition. In tables without a primary key two equal rows cannot be told from a repetition: each is kept. What
was released is forgotten, so that memory is what waits for watermarks, and that is limited. A statement counts only in
the first partition, to which TiCDC sends statements, also when it sends them to all.

A commit_ts means the same in all partitions. So a place is a commit_ts, however many there are: a transaction has the
messages of the first partition, then those of the next one, each in their order.
"""

from cython.operator cimport dereference, preincrement
from libc.stdint cimport INT64_MAX, int64_t
from libcpp.map cimport map
from libcpp.pair cimport pair
from libcpp.string cimport string
from libcpp.unordered_set cimport unordered_set
from libcpp.vector cimport vector

from ....protocol.tidb.canal_json cimport STATEMENT, WATERMARK, Message, put_identity, read_message
from ....protocol.wire cimport span_at

from ....protocol.errors import DecodeError, SourceError

cdef enum:
    ENTRY_SIZE = 128               # bytes that what is known of a message takes, about, beside its text


ctypedef pair[int64_t, int] Part        # a commit_ts, and a partition
ctypedef pair[int64_t, string] Staged   # the offset of the first message, and all messages


cdef class Partitions:
    """Not locked: one thread at a time calls it."""
    cdef readonly int64_t size
    cdef readonly long long repeated
    cdef vector[int64_t] watermarks
    cdef int64_t memory
    cdef int64_t commit_ts
    cdef map[Part, Staged] staged
    cdef map[int64_t, unordered_set[string]] identities
    cdef string identity

    def __init__(self, int count, int64_t memory):
        """`count` of the topic; `memory`: bytes that may be staged."""
        if count < 1:
            raise ValueError(f"a topic of {count} partitions")
        self.watermarks.resize(count, 0)
        self.memory = memory

    @property
    def watermark(self):
        """All that has a lesser commit_ts has come; 0 before that is known of each partition."""
        return self.least()

    @property
    def count(self):
        """How many there are."""
        return <int>self.watermarks.size()

    @property
    def newest(self):
        """The greatest watermark of a partition; 0 before there is one."""
        cdef int64_t found = 0
        for watermark in self.watermarks:
            found = max(found, watermark)
        return found

    @property
    def last(self):
        """The partitions that the others wait for: none has a lesser watermark."""
        cdef int64_t least = self.least()
        return [number for number in range(<int>self.watermarks.size()) if self.watermarks[number] == least]

    cdef int64_t least(self) noexcept:
        cdef int64_t found = INT64_MAX
        for watermark in self.watermarks:
            found = min(found, watermark)
        return found

    def begin(self, int64_t commit_ts):
        """Begin after a commit_ts; what was staged is dropped. The reading begins before all that has a greater one."""
        self.staged.clear()
        self.identities.clear()
        self.watermarks.assign(self.watermarks.size(), 0)
        self.size = 0
        self.commit_ts = commit_ts

    def receive(self, int partition, list records):
        """Stage messages of a partition, with their offsets.

        Raises:
            DecodeError: one is not what it should be; those before it are staged. It names partition and offset.
            SourceError: more is staged than memory allows.
        """
        cdef int64_t offset
        cdef bytes value
        if not 0 <= partition < <int>self.watermarks.size():
            raise ValueError(f"partition {partition} of {self.watermarks.size()}")
        for offset, value in records:
            try:
                self.stage(partition, offset, value, len(value))
            except DecodeError as error:
                where = f"partition {partition}, " if self.watermarks.size() > 1 else ""
                raise DecodeError(f"{where}offset {offset}: {error}") from None
            if self.size > self.memory:
                raise SourceError(
                    f"more than {self.memory >> 20} MiB of changes wait for a watermark of TiCDC, up to offset"
                    f" {offset}. If transactions are as large as that, raise sluice.instance.ticdc.memory; else see why"
                    " the checkpoint of the changefeed does not move"
                )

    def release(self):
        """Return the transactions that are complete, in the order of their commit_ts: offset and messages of each."""
        cdef map[Part, Staged].iterator first = self.staged.begin(), part
        cdef int64_t least = self.least(), commit_ts
        found = []
        while first != self.staged.end() and dereference(first).first.first < least:
            commit_ts = dereference(first).first.first
            part = first
            preincrement(part)
            while part != self.staged.end() and dereference(part).first.first == commit_ts:
                dereference(first).second.second.append(dereference(part).second.second)
                self.size -= ENTRY_SIZE
                part = self.staged.erase(part)
            found.append((dereference(first).second.first, <bytes>dereference(first).second.second))
            self.size -= dereference(first).second.second.size() + ENTRY_SIZE
            self.forget(commit_ts)
            first = self.staged.erase(first)
        return found

    cdef int forget(self, int64_t commit_ts) except -1:
        """Give up what is known of the messages of a commit_ts."""
        cdef unordered_set[string].iterator it = self.identities[commit_ts].begin()
        while it != self.identities[commit_ts].end():
            self.size -= dereference(it).size() + ENTRY_SIZE
            preincrement(it)
        self.identities.erase(commit_ts)
        return 0

    cdef int stage(self, int partition, int64_t offset, const char *data, size_t size) except -1:
        cdef Message message
        cdef Staged *staged
        read_message(span_at(data, size), &message)
        if message.kind == WATERMARK:
            self.watermarks[partition] = max(self.watermarks[partition], message.ts)
            return 0
        if message.ts <= self.commit_ts or (message.kind == STATEMENT and partition):
            return 0
        if message.ts < self.watermarks[partition]:
            self.repeated += 1
            return 0
        put_identity(&message, &self.identity)
        if self.identity.size():
            if not self.identities[message.ts].insert(self.identity).second:
                self.repeated += 1
                return 0
            self.size += self.identity.size() + ENTRY_SIZE
        staged = &self.staged[Part(message.ts, partition)]
        if staged.second.empty():
            staged.first = offset
            self.size += ENTRY_SIZE
        staged.second.append(data, size)
        self.size += size
        return 0
