"""Which transactions have to wait for which, so that others can be applied at the same time. Without I/O.

A transaction is the set of keys that it touches: 64-bit digests of a unique index of a table and the values of a row in
it, before and after its change. Two that have a key in common are applied in the order in which they came. One that has
none in common with those that are not done can be applied at once, whatever else waits. It waits only for the last one
before it of each of its keys, for this waits for those before in its turn. Equal digests of different keys only make
one wait that need not.

A barrier is a transaction that waits for all before it, and that all after it wait for: a DDL.
"""

from cpython.buffer cimport PyBUF_SIMPLE, PyBuffer_Release, PyObject_GetBuffer
from libc.stdint cimport int32_t, int64_t, uint64_t
from libcpp.deque cimport deque
from libcpp.unordered_map cimport unordered_map
from libcpp.vector cimport vector


cdef extern from *:
    """
    #include <cstdint>
    #include <functional>
    #include <queue>
    #include <vector>

    typedef std::priority_queue<int64_t, std::vector<int64_t>, std::greater<int64_t>> sluice_lowest;
    """
    cdef cppclass Lowest "sluice_lowest":
        bint empty() noexcept nogil
        int64_t top() noexcept nogil
        void pop() noexcept nogil
        void push(int64_t number) noexcept nogil


cdef struct Transaction:
    vector[uint64_t] keys
    vector[int64_t] waiting                        # those that wait for it
    int64_t waits                                  # how many it waits for
    bint is_taken
    bint is_done


cdef class Dependencies:
    """The transactions that are not done yet, by numbers from 0 on in the order in which they came.

    `take` gives those that can be applied now, and `done` takes them back. The caller limits how many are added, and
    makes another one after a failure.
    """
    cdef deque[Transaction] open                   # from low_water on
    cdef unordered_map[uint64_t, int64_t] last     # the last transaction of a key that is not done
    cdef Lowest ready
    cdef int64_t barrier                           # the last one, -1 before the first
    cdef readonly int64_t low_water                # all before it are done

    def __cinit__(self):
        self.barrier = -1

    def __len__(self):
        """Those that are not done, and those after the first of them."""
        return self.open.size()

    def add(self, ends, keys):
        """Add transactions, and return the number of the first.

        ``keys``: digests, 64 bits each; ``ends``: 32-bit numbers, where the keys of each transaction end among them.
        """
        cdef Py_buffer end_view, key_view
        cdef int64_t first = self.low_water + <int64_t>self.open.size()
        cdef int64_t begin = 0
        cdef const int32_t *end
        cdef const uint64_t *key
        cdef Py_ssize_t i
        cdef bint fits = True
        PyObject_GetBuffer(ends, &end_view, PyBUF_SIMPLE)
        try:
            PyObject_GetBuffer(keys, &key_view, PyBUF_SIMPLE)
            try:
                end = <const int32_t *>end_view.buf
                key = <const uint64_t *>key_view.buf
                for i in range(end_view.len // 4):
                    fits = fits and begin <= end[i] <= key_view.len // 8
                    begin = end[i]
                if not fits:
                    raise ValueError("the ends do not fit the keys")
                with nogil:
                    begin = 0
                    for i in range(end_view.len // 4):
                        self.add_one(key + begin, end[i] - begin)
                        begin = end[i]
            finally:
                PyBuffer_Release(&key_view)
        finally:
            PyBuffer_Release(&end_view)
        return first

    def add_barrier(self):
        """Add a barrier, and return its number."""
        cdef int64_t number = self.low_water + <int64_t>self.open.size()
        cdef size_t i
        cdef Transaction *added = self.append()
        for i in range(self.open.size() - 1):
            if not self.open[i].is_done:
                self.open[i].waiting.push_back(number)
                added.waits += 1
        if not added.waits:
            self.ready.push(number)
        self.barrier = number
        return number

    def take(self, int64_t most):
        """Return up to ``most`` transactions that can be applied now, in the order in which they came."""
        cdef list found = []
        while <int64_t>len(found) < most and not self.ready.empty():
            found.append(self.ready.top())
            self.open[self.ready.top() - self.low_water].is_taken = True
            self.ready.pop()
        return found

    def done(self, numbers):
        """Note that transactions are applied, which were taken. Raises ValueError for others."""
        cdef int64_t number, place
        for number in numbers:
            place = number - self.low_water
            if not 0 <= place < <int64_t>self.open.size() or not self.open[place].is_taken or self.open[place].is_done:
                raise ValueError(f"transaction {number} was not taken, or is done")
            self.end(number)
        while not self.open.empty() and self.open.front().is_done:
            self.open.pop_front()
            self.low_water += 1

    cdef Transaction *append(self) noexcept nogil:
        cdef Transaction added
        added.waits = 0
        added.is_taken = added.is_done = False
        self.open.push_back(added)
        return &self.open[self.open.size() - 1]

    cdef void add_one(self, const uint64_t *keys, int64_t count) noexcept nogil:
        cdef int64_t number = self.low_water + <int64_t>self.open.size()
        cdef Transaction *added = self.append()
        cdef int64_t i
        cdef unordered_map[uint64_t, int64_t].iterator found
        if self.barrier >= self.low_water:
            self.wait_for(self.barrier, number)
        for i in range(count):
            found = self.last.find(keys[i])
            if found == self.last.end():
                self.last[keys[i]] = number
            elif self.last[keys[i]] == number:
                continue
            else:
                self.wait_for(self.last[keys[i]], number)
                self.last[keys[i]] = number
            added.keys.push_back(keys[i])
        if not added.waits:
            self.ready.push(number)

    cdef void wait_for(self, int64_t other, int64_t number) noexcept nogil:
        cdef Transaction *before = &self.open[other - self.low_water]
        if before.is_done or (not before.waiting.empty() and before.waiting.back() == number):
            return
        before.waiting.push_back(number)
        self.open[number - self.low_water].waits += 1

    cdef void end(self, int64_t number) noexcept nogil:
        cdef Transaction *ended = &self.open[number - self.low_water]
        cdef Transaction *other
        cdef size_t i
        ended.is_done = True
        for i in range(ended.waiting.size()):
            other = &self.open[ended.waiting[i] - self.low_water]
            other.waits -= 1
            if not other.waits:
                self.ready.push(ended.waiting[i])
        for i in range(ended.keys.size()):
            if self.last[ended.keys[i]] == number:
                self.last.erase(ended.keys[i])
