"""The transactions of a batch: where each ends among the bytes, and a name by which it is known when it comes again."""

from cpython.buffer cimport PyBUF_SIMPLE, PyBuffer_Release, PyObject_GetBuffer
from cpython.bytes cimport PyBytes_AS_STRING
from libc.stdint cimport int64_t, uint8_t, uint64_t
from libc.string cimport memcmp
from libcpp.string cimport string
from libcpp.vector cimport vector

from ..wire cimport Span, get_varint, is_same, put_decimal, span_at
from .entry cimport (
    GTID_KEY,
    IMAGE_AFTER,
    Cell,
    Entry,
    Fields,
    Header,
    Prop,
    checked,
    fields_of,
    get_cell,
    get_entry,
    get_header,
    malformed,
    next_column_of,
    next_entry,
    next_header_prop,
    next_row,
)
from .tags cimport ROWDATA, TRANSACTIONBEGIN, TRANSACTIONEND

from .. import props
from ..errors import DecodeError

cdef bytes _MEMBER = props.MEMBER.encode()
cdef Span MEMBER_KEY = span_at(PyBytes_AS_STRING(_MEMBER), len(_MEMBER))


cdef struct Transaction:
    size_t end                                     # bytes up to behind its last entry
    size_t name                                    # bytes of all names up to behind its own
    bint is_begun                                  # its begin is among the entries, too
    bint is_marked                                 # among its changes is one of a mark


cdef inline bint occurs(Span part, Span text) noexcept nogil:
    cdef size_t i
    for i in range(text.size - part.size + 1 if 0 < part.size <= text.size else 0):
        if memcmp(text.data + i, part.data, part.size) == 0:
            return True
    return False


cdef inline void put_text(string *out, Span text) noexcept nogil:
    out.append(<const char *>text.data, text.size)


cdef class Transactions:
    """The transactions that end among framed entries, by numbers from 0 on; the last one may go on behind them.

    ``positions`` are those of the entries, as in `Batch`; without them the names are of no use. The name of a
    transaction is a line: the member, a blank, its file, ``@``, and the offset of its begin. If its GTID is known,
    which is the same at every source, that follows after another blank. ``gtids`` has those that the entries do not
    have, by what is before them in the lines.

    ``mark``: schema, table, column, value, and a part of a GTID. A transaction is marked that gives the column of this
    table the value, or whose GTID has that part. Raises DecodeError.
    """
    cdef vector[Transaction] ended
    cdef string lines
    cdef readonly bint is_open_marked              # what goes on is marked, so far
    cdef object gtids
    cdef Span[5] mark                              # in what the caller keeps; the first has no data: there is none

    def __init__(self, data, bytes positions=None, mark=None, gtids=None):
        cdef Py_buffer view
        cdef const char *places = NULL
        cdef Py_ssize_t size = 0
        if positions is not None:
            places = PyBytes_AS_STRING(positions)
            size = len(positions)
        cdef bytes part
        self.gtids = gtids
        cdef int i
        self.mark[0].data = NULL
        for i, part in enumerate(mark or ()):
            self.mark[i] = span_at(PyBytes_AS_STRING(part), len(part))
        PyObject_GetBuffer(data, &view, PyBUF_SIMPLE)
        try:
            with nogil:
                self.read(span_at(<const char *>view.buf, view.len), span_at(places, size))
        finally:
            PyBuffer_Release(&view)

    cdef int read(self, Span data, Span positions) except -1 nogil:
        cdef Fields batch = fields_of(data)
        cdef const uint8_t *place = positions.data
        cdef const uint8_t *places_end = positions.data + positions.size
        cdef Span message
        cdef Entry entry
        cdef Transaction one
        cdef uint64_t begin = 0
        cdef uint64_t n
        cdef bint is_begun = False
        self.is_open_marked = False
        while checked(next_entry(&batch, &message)):
            if not get_entry(message, &entry):
                malformed()
            if positions.data != NULL:
                place = get_varint(place, places_end, &begin)
                if place != NULL:
                    place = get_varint(place, places_end, &n)
                if place == NULL:
                    with gil:
                        raise DecodeError("a batch has fewer positions than entries")
            if entry.type == TRANSACTIONBEGIN:
                self.add_name(&entry, begin)
                is_begun = True
            elif entry.type == TRANSACTIONEND:
                if not is_begun:
                    self.add_name(&entry, begin)
                one.end = batch.p - data.data
                one.name = self.lines.size()
                one.is_begun = is_begun
                one.is_marked = self.is_open_marked
                self.ended.push_back(one)
                is_begun = self.is_open_marked = False
            elif entry.type == ROWDATA and self.mark[0].data != NULL and not self.is_open_marked:
                self.is_open_marked = self.is_mark(&entry)
        return 0

    cdef bint is_mark(self, const Entry *entry) except -1 nogil:
        """Whether a row of the mark's table is written that has its value."""
        cdef Header header
        cdef Fields body, row
        cdef Span found, column
        cdef Cell cell
        if not get_header(entry, &header, NULL):
            malformed()
        if not (is_same(header.schema, self.mark[0]) and is_same(header.table, self.mark[1])):
            return False
        body = fields_of(entry.body)
        while checked(next_row(&body, &found)):
            row = fields_of(found)
            while checked(next_column_of(&row, IMAGE_AFTER, &column)):
                if not get_cell(column, &cell):
                    malformed()
                if is_same(cell.name, self.mark[2]) and is_same(cell.value, self.mark[3]):
                    return True
        return False

    cdef int add_name(self, const Entry *entry, uint64_t begin) except -1 nogil:
        cdef Header header
        cdef Fields fields
        cdef Prop prop
        cdef Span gtid, member
        cdef uint8_t[20] digits
        cdef size_t first = self.lines.size()
        gtid.size = member.size = 0
        gtid.data = member.data = NULL
        if not get_header(entry, &header, NULL):
            malformed()
        fields = fields_of(entry.header)
        while checked(next_header_prop(&fields, &prop)):
            if is_same(prop.key, GTID_KEY):
                gtid = prop.value
            elif is_same(prop.key, MEMBER_KEY):
                member = prop.value
        put_text(&self.lines, member)
        self.lines.push_back(b" ")
        put_text(&self.lines, header.file)
        self.lines.push_back(b"@")
        self.lines.append(<const char *>digits, put_decimal(digits, begin) - digits)
        if gtid.size:
            self.lines.push_back(b" ")
            put_text(&self.lines, gtid)
            if self.mark[0].data != NULL and occurs(self.mark[4], gtid):
                self.is_open_marked = True
        else:
            with gil:
                if self.gtids:
                    self.look_up(first)
        self.lines.push_back(b"\n")
        return 0

    cdef int look_up(self, size_t first) except -1:
        """Adds the GTID to the last name, which begins there, if it is known."""
        found = self.gtids.get(self.lines.substr(first).decode())
        if found:
            self.lines.append(<string>(" " + found).encode())
        return 0

    def __len__(self):
        return self.ended.size()

    def end(self, int64_t number):
        """Return the bytes up to behind the last entry of a transaction."""
        if not 0 <= number < <int64_t>self.ended.size():
            raise IndexError(number)
        return self.ended[number].end

    def groups(self, int64_t most):
        """Divide them into groups of at most ``most`` bytes, unless one alone has more.

        For each group the number behind its last transaction, whether its entries begin with a transaction, and whether
        all are marked, or none is. What is the end of a transaction is a group by itself.
        """
        cdef size_t i
        cdef int64_t begin = 0
        cdef Transaction *one
        cdef Transaction *next_one
        found = []
        for i in range(self.ended.size()):
            one = &self.ended[i]
            if i + 1 < self.ended.size():
                next_one = &self.ended[i + 1]
                if one.is_begun and next_one.is_marked == one.is_marked and <int64_t>next_one.end - begin <= most:
                    continue
            found.append((i + 1, one.is_begun, one.is_marked))
            begin = one.end
        return found

    def names(self, int64_t first, int64_t last):
        """Return the names of the transactions from one to before another, a line each.

        The one that begins and does not end has the number after the last one.
        """
        cdef int64_t count = self.ended.size()
        if not 0 <= first <= last <= count + 1:
            raise IndexError(first, last)
        cdef size_t begin = self.ended[first - 1].name if first else 0
        cdef size_t end = self.lines.size() if last > count else self.ended[last - 1].name if last else 0
        return self.lines.substr(begin, end - begin).decode()
