"""What conditions on rows have said of the entries of a ring.

A condition is judged in threads, on pinned slots, from the oldest slot of the ring on; whatever scans the ring only
looks at the verdicts. They are kept for as long as their slots, each condition once, whoever uses it. An entry of which
only some rows match is encoded again and kept with its verdict: so it is the same whenever it is given, and a condition
takes no more memory than the entries of the ring.
"""

from collections import deque as queue

from cpython.bytes cimport PyBytes_AS_STRING
from libc.stdint cimport int64_t, uint8_t


cdef class Pinned:
    """Slots of a ring on their way through a thread that judges them."""

    def __len__(self):
        return self.entries.size()


cdef class Verdicts:

    def __init__(self, judge, int64_t start):
        """`judge` is a `sluice.store.track.Judge`; `start` is the oldest slot of the ring."""
        self.judge = judge
        self.first = self.next = start
        self.pieces = queue()
        self.errors = queue()

    def take(self, Pinned pinned not None):
        """Takes over what was judged. Slots that were freed meanwhile are passed over."""
        cdef size_t i
        cdef size_t passed = <size_t>max(self.next - pinned.start, 0)
        cdef Verdict verdict
        cdef bint has_cuts = False
        self.is_busy = False
        for i in range(passed, pinned.verdicts.size()):
            verdict = pinned.verdicts[i]
            if verdict.data != NULL:
                verdict.data = <const uint8_t *>PyBytes_AS_STRING(pinned.cuts) + <size_t>verdict.data - 1
                has_cuts = True
            self.verdicts.push_back(verdict)
            self.next += 1
        if has_cuts:
            self.pieces.append((self.next, pinned.cuts))
        self.errors.extend([it for it in pinned.errors if it[0] >= self.first])
        pinned.views = None

    def reach(self, int64_t sequence):
        """The first slot from that one on that is not judged yet, or that cannot be."""
        return next((at for at, _ in self.errors if at >= sequence), self.next)

    def refusal(self, int64_t sequence):
        """Why a slot cannot be judged; None if it can."""
        return next((error for at, error in self.errors if at == sequence), None)

    cdef int release(self, int64_t sequence) except -1:
        """Drops what was said of the slots before a sequence."""
        while self.first < sequence and self.first < self.next:
            self.verdicts.pop_front()
            self.first += 1
        while self.pieces and self.pieces[0][0] <= sequence:
            self.pieces.popleft()
        while self.errors and self.errors[0][0] < sequence:
            self.errors.popleft()
        if self.next < sequence:
            self.first = self.next = sequence
        return 0

    cdef view(self, int64_t sequence):
        """A cut entry, where it is."""
        cdef const Verdict *verdict = verdict_at(self, sequence)
        cdef Py_ssize_t offset
        for stop, piece in self.pieces:
            if sequence < stop:
                offset = verdict.data - <const uint8_t *>PyBytes_AS_STRING(piece)
                return memoryview(piece)[offset:offset + verdict.length]
