"""Which rows of a table were changed, by the keys in the images of the changes.

Keys are compared by the texts that the images have, not by the collation of the columns. A row that was read is that of
one version, and the change that made or ended this version has exactly the same text in its image after or before; two
keys that are equal for the collation alone are of two versions, and each is touched by its own text.
"""

from cpython.buffer cimport PyBUF_SIMPLE, PyBuffer_Release, PyObject_GetBuffer
from libcpp.string cimport string

from ..wire cimport Span, is_same, span_at
from .entry cimport (
    IMAGE_BEFORE,
    Cell,
    Entry,
    Fields,
    Header,
    Marks,
    RowChange,
    checked,
    fields_of,
    get_cell,
    get_entry,
    get_header,
    get_row_change,
    malformed,
    next_column,
    next_entry,
    next_row,
)
from .tags cimport DELETE, INSERT, QUERY, ROWDATA


cdef bint is_same_name(Span name, Span known, bint ignore_case) noexcept nogil:
    cdef unsigned char one, two
    cdef size_t i
    if not ignore_case or name.size != known.size:
        return is_same(name, known)
    for i in range(name.size):
        one, two = name.data[i], known.data[i]
        one += 32 if b"A" <= one <= b"Z" else 0
        two += 32 if b"A" <= two <= b"Z" else 0
        if one != two:
            return False
    return True


cdef class TouchedKeys:
    """Gathers the keys of a table's rows from changes."""

    def __init__(
        self, str schema, str table, indexes, *, str member="", bint ignore_case=False, size_t most=1 << 20
    ):
        """For the columns of the key, by their place in the table from 0 on; with none, all rows are the same.

        `member`: of a merged stream, whose members may have tables of the same name. `ignore_case`: names of tables
        that differ by case only are of one table. With more than `most` keys it is broken.
        """
        cdef size_t size = len(schema.encode())
        cdef size_t both = size + len(table.encode())
        cdef const char *names
        self.names = (schema + table + member).encode()
        names = self.names
        self.schema = span_at(names, size)
        self.table = span_at(names + size, both - size)
        self.member = span_at(names + both, len(self.names) - both)
        self.ignore_case = ignore_case
        self.most = most
        self.broken = ""
        self.is_key.resize(max(indexes, default=-1) + 1, False)
        for index in indexes:
            self.is_key[<size_t>index] = True
        self.key_count = len(indexes)

    def __len__(self):
        return self.keys.size()

    def add(self, data):
        """Add the keys of the rows in framed entries, as of `Messages`. Raises DecodeError.

        After something that does not say which rows it changes, `broken` says what that was: a statement, a marker, or
        rows without their keys.
        """
        cdef Py_buffer view
        cdef Fields batch
        cdef Span entry
        PyObject_GetBuffer(data, &view, PyBUF_SIMPLE)
        try:
            with nogil:
                batch = fields_of(span_at(<const char *>view.buf, view.len))
                while checked(next_entry(&batch, &entry)):
                    self.add_entry(entry)
        finally:
            PyBuffer_Release(&view)

    cdef bint has(self, const string &key) noexcept nogil:
        return self.keys.find(key) != self.keys.end()

    cdef int spoil(self, const char *reason) except -1 nogil:
        with gil:
            self.broken = self.broken or reason.decode()
        return 0

    cdef bint is_ours(self, const Header *header) noexcept nogil:
        return (
            is_same_name(header.schema, self.schema, self.ignore_case)
            and is_same_name(header.table, self.table, self.ignore_case)
        )

    cdef int add_entry(self, Span message) except -1 nogil:
        cdef Entry entry
        cdef Header header
        cdef Marks marks
        cdef RowChange change
        if not get_entry(message, &entry):
            malformed()
        if entry.type != ROWDATA:
            return 0
        if not get_header(&entry, &header, &marks) or not get_row_change(&entry, &change):
            malformed()
        if marks.member.size and not is_same(marks.member, self.member):
            return 0
        if marks.is_marker:
            return self.spoil(b"changes are missing")
        if INSERT <= header.event_type <= DELETE:
            if change.sql.size:
                return self.spoil(b"a change was logged as a statement")
            if not self.is_ours(&header):
                return 0
            if change.absent.size and header.event_type != DELETE:
                return self.spoil(b"a change does not have the whole row")
            return self.add_rows(&entry)
        if change.is_ddl or header.event_type != QUERY:
            return self.spoil(b"tables were changed by a statement")
        return 0

    cdef int add_rows(self, const Entry *entry) except -1 nogil:
        cdef Fields body = fields_of(entry.body)
        cdef Fields columns
        cdef Span row, column
        cdef Cell cell
        cdef string[2] keys
        cdef size_t[2] found
        cdef bint[2] is_there
        cdef int image, i
        while checked(next_row(&body, &row)):
            columns = fields_of(row)
            for i in range(2):
                keys[i].clear()
                found[i] = 0
                is_there[i] = False
            while True:
                image = checked(next_column(&columns, &column))
                if not image:
                    break
                i = 0 if image == IMAGE_BEFORE else 1
                is_there[i] = True
                if not get_cell(column, &cell):
                    malformed()
                if 0 <= cell.index < <long long>self.is_key.size() and self.is_key[<size_t>cell.index]:
                    add_to_key(keys[i], cell.value.data, <uint32_t>cell.value.size)
                    found[i] += 1
            for i in range(2):
                if is_there[i] and found[i] != self.key_count:
                    return self.spoil(b"a change does not have the whole row")
                if is_there[i]:
                    self.keys.insert(keys[i])
            if self.keys.size() > self.most:
                return self.spoil(b"too many rows were changed")
        return 0
