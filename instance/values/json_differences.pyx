"""What a PARTIAL_UPDATE_ROWS event has in place of JSON documents: the document after it, or Canal's expression.

The image after has, for a JSON column, differences one after the other (`sql/json_diff.cc`):

    operation   1 byte: 0 replace, 1 insert, 2 remove
    path        length packed; text without wildcards: `$.name."any name"[3][last-1]`
    value       length packed, a document in MySQL's binary form; not of remove

Names in quotes are escaped as JSON strings. Keys of an object are in the order of their length, then of their bytes.
"""

from libc.stdint cimport uint8_t, uint64_t
from libc.stdlib cimport calloc, free, malloc, realloc
from libc.string cimport memcmp, memmove, memset, strlen

from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_GET_SIZE

from ...protocol.littleendian cimport length_encoded
from .binary cimport Field, Value, fail
from .json cimport (
    MAX_DEPTH,
    Container,
    Json,
    Output,
    begin,
    finish,
    get_child,
    get_key,
    open_container,
    put,
    put_string,
    put_text,
    put_value,
    take_text,
)

cdef enum:
    REPLACE = 0            # operations of a difference
    INSERT = 1
    REMOVE = 2

    UNREAD = 0             # shapes of a node
    SCALAR = 1
    OBJECT = 2
    ARRAY = 3

cdef const char *BROKEN = b"not differences of a JSON value"
cdef const char *MISFIT = b"the differences of a JSON value do not fit the value before them"
cdef const char *NO_MEMORY = b"out of memory"


cdef struct Difference:
    int operation
    const uint8_t *path
    size_t path_size
    Json value


# --- reading the event ------------------------------------------------------------------------------------------------

cdef const uint8_t *get_packed(const uint8_t *p, const uint8_t *end, size_t *size) noexcept nogil:
    """A packed length; the place after it, or NULL when it or what it counts goes beyond the end."""
    cdef uint64_t length
    p = length_encoded(p, end, &length)
    if p == NULL or length > <uint64_t>(end - p):
        return NULL
    size[0] = <size_t>length
    return p


cdef const uint8_t *get_difference(const uint8_t *p, const uint8_t *end, Difference *difference) noexcept nogil:
    """The place after it, or NULL."""
    cdef size_t size = 0
    difference.operation = p[0]
    if difference.operation > REMOVE:
        return NULL
    p = get_packed(p + 1, end, &difference.path_size)
    if p == NULL:
        return NULL
    difference.path = p
    p += difference.path_size
    if difference.operation == REMOVE:
        return p
    p = get_packed(p, end, &size)
    if p == NULL or size == 0:
        return NULL
    difference.value = Json(p[0], p + 1, p + size)
    return p + size


cdef Difference *get_differences(const uint8_t *p, size_t size, size_t *count, Value *value) noexcept nogil:
    """All of a value, to be freed; NULL with an error."""
    cdef const uint8_t *end = p + size
    cdef Difference *differences = <Difference *>calloc(size // 2 + 1, sizeof(Difference))  # the shortest has two bytes
    if differences == NULL:
        fail(value, NO_MEMORY)
        return NULL
    count[0] = 0
    while p < end:
        p = get_difference(p, end, &differences[count[0]])
        if p == NULL:
            free(differences)
            fail(value, BROKEN)
            return NULL
        count[0] += 1
    return differences


# --- the document after them ------------------------------------------------------------------------------------------

cdef struct Node:              # a value of the document that changes; read into nodes only along the paths
    Json json                  # as long as it is UNREAD or SCALAR
    const uint8_t *key         # in its object
    size_t key_size
    int shape
    Node *children
    size_t count
    size_t room                # children that there is memory for


cdef struct Leg:               # of a path
    bint is_key
    bint is_from_end           # a cell counts from the last
    size_t cell
    const uint8_t *name
    size_t name_size


cdef void free_children(Node *node) noexcept nogil:
    cdef size_t i
    for i in range(node.count):
        free_children(&node.children[i])
    free(node.children)
    node.children = NULL
    node.count = 0


cdef void set_value(Node *node, const Json *json) noexcept nogil:
    free_children(node)
    node.json = json[0]
    node.shape = UNREAD


cdef const char *read_children(Node *node) noexcept nogil:
    """Give an object or an array its children; NULL or an error."""
    cdef Container container
    cdef Node *child
    cdef size_t i
    if node.shape != UNREAD:
        return NULL
    if open_container(&node.json, &container):
        node.shape = SCALAR    # or broken, which its text will find
        return NULL
    node.shape = OBJECT if container.is_object else ARRAY
    node.room = container.count + 1
    node.children = <Node *>calloc(node.room, sizeof(Node))
    if node.children == NULL:
        return NO_MEMORY
    for i in range(container.count):
        child = &node.children[i]
        if container.is_object:
            child.key = get_key(&container, i, &child.key_size)
            if child.key == NULL:
                return BROKEN
        if get_child(&container, i, &child.json):
            return BROKEN
        node.count += 1
    return NULL


cdef bint find_key(const Node *node, const Leg *leg, size_t *place) noexcept nogil:
    """Whether an object has it; its place, or where it belongs."""
    cdef size_t low = 0
    cdef size_t high = node.count
    cdef const Node *child
    cdef int order
    while low < high:
        place[0] = low + (high - low) // 2
        child = &node.children[place[0]]
        if child.key_size != leg.name_size:
            order = -1 if child.key_size < leg.name_size else 1
        else:
            order = memcmp(child.key, leg.name, leg.name_size)
        if order == 0:
            return True
        if order < 0:
            low = place[0] + 1
        else:
            high = place[0]
    place[0] = low
    return False


cdef bint find_cell(const Node *node, const Leg *leg, size_t *place) noexcept nogil:
    """Whether an array has it; its place, or where it would be inserted."""
    if leg.is_from_end:
        place[0] = node.count - 1 - leg.cell if leg.cell < node.count else 0
        return leg.cell < node.count
    place[0] = min(leg.cell, node.count)
    return leg.cell < node.count


cdef const char *insert_child(Node *node, size_t place, const Leg *leg, const Json *json) noexcept nogil:
    cdef Node *children = node.children
    cdef Node *child
    if node.count == node.room:
        children = <Node *>realloc(children, 2 * node.room * sizeof(Node))
        if children == NULL:
            return NO_MEMORY
        node.children = children
        node.room *= 2
    child = &children[place]
    memmove(child + 1, child, (node.count - place) * sizeof(Node))
    memset(child, 0, sizeof(Node))
    child.json = json[0]
    child.key = leg.name
    child.key_size = leg.name_size
    node.count += 1
    return NULL


cdef void remove_child(Node *node, size_t place) noexcept nogil:
    cdef Node *child = &node.children[place]
    free_children(child)
    node.count -= 1
    memmove(child, child + 1, (node.count - place) * sizeof(Node))


cdef const uint8_t *get_leg(const uint8_t *p, const uint8_t *end, Leg *leg, uint8_t **names) noexcept nogil:
    """The place after it, or NULL. A name in quotes is unescaped to ``names``, which has room for all paths."""
    memset(leg, 0, sizeof(Leg))
    if p[0] == b"[":
        return get_cell(p + 1, end, leg)
    if p[0] != b".":
        return NULL
    p += 1
    leg.is_key = True
    if p < end and p[0] == b'"':
        return get_quoted(p + 1, end, leg, names)
    leg.name = p
    while p < end and p[0] != b"." and p[0] != b"[":
        p += 1
    leg.name_size = p - leg.name
    return p if leg.name_size else NULL


cdef const uint8_t *get_cell(const uint8_t *p, const uint8_t *end, Leg *leg) noexcept nogil:
    """What follows the bracket: `3]`, `last]` or `last-3]`."""
    cdef const uint8_t *digits
    if end - p > 4 and memcmp(p, b"last", 4) == 0:
        leg.is_from_end = True
        p += 4
        if p[0] == b"]":
            return p + 1
        if p[0] != b"-":
            return NULL
        p += 1
    digits = p
    while p < end and 48 <= p[0] <= 57:
        leg.cell = leg.cell * 10 + (p[0] - 48)
        p += 1
    if not 1 <= p - digits <= 10 or p == end or p[0] != b"]":  # a document has less than 2**32 cells
        return NULL
    return p + 1


cdef inline int hex_digit(uint8_t digit) noexcept nogil:
    if 48 <= digit <= 57:
        return digit - 48
    digit |= 0x20
    return digit - 87 if 97 <= digit <= 102 else -1


cdef const uint8_t *get_quoted(const uint8_t *p, const uint8_t *end, Leg *leg, uint8_t **names) noexcept nogil:
    """What follows the first quote. The server writes only control characters as `\\u001f`."""
    cdef uint8_t *out = names[0]
    cdef int high
    cdef int low
    leg.name = out
    while p < end and p[0] != b'"':
        if p[0] != b"\\":
            out[0] = p[0]
        else:
            p += 1
            if p == end:
                return NULL
            if p[0] == b"b":
                out[0] = 8
            elif p[0] == b"f":
                out[0] = 12
            elif p[0] == b"n":
                out[0] = 10
            elif p[0] == b"r":
                out[0] = 13
            elif p[0] == b"t":
                out[0] = 9
            elif p[0] == b"u":
                if end - p < 5 or p[1] != 48 or p[2] != 48:
                    return NULL
                high = hex_digit(p[3])
                low = hex_digit(p[4])
                if not 0 <= high < 8 or low < 0:
                    return NULL
                out[0] = <uint8_t>(high << 4 | low)
                p += 4
            else:
                out[0] = p[0]
        out += 1
        p += 1
    leg.name_size = out - leg.name
    names[0] = out
    return p + 1 if p < end else NULL


cdef const char *apply_difference(Node *root, const Difference *difference, uint8_t **names) noexcept nogil:
    """NULL or an error."""
    cdef const uint8_t *p = difference.path
    cdef const uint8_t *end = p + difference.path_size
    cdef Node *node = root
    cdef Node *parent = NULL
    cdef Leg leg
    cdef const char *error
    cdef size_t place = 0
    cdef int depth = 0
    cdef bint is_insertion
    cdef bint found
    if p == end or p[0] != b"$":
        return BROKEN
    p += 1
    while p < end:
        p = get_leg(p, end, &leg, names)
        depth += 1
        if p == NULL or depth > MAX_DEPTH:
            return BROKEN
        error = read_children(node)
        if error != NULL:
            return error
        is_insertion = p == end and difference.operation == INSERT
        if leg.is_key:
            if node.shape != OBJECT:
                return MISFIT
            found = find_key(node, &leg, &place)
            if found and is_insertion:
                return MISFIT
        elif node.shape == ARRAY:
            found = find_cell(node, &leg, &place)
        elif leg.cell == 0 and not is_insertion:
            continue           # the first cell of what is not an array is the value itself
        else:
            return MISFIT
        if is_insertion:
            return insert_child(node, place, &leg, &difference.value)
        if not found:
            return MISFIT
        parent = node
        node = &node.children[place]
    if difference.operation == REPLACE:
        set_value(node, &difference.value)
        return NULL
    if parent == NULL or difference.operation == INSERT:
        return MISFIT
    remove_child(parent, place)
    return NULL


cdef int put_node(Output *out, const Node *node, int depth) noexcept nogil:
    cdef const Node *child
    cdef size_t i
    if node.shape < OBJECT:
        return put_value(out, &node.json, depth)
    if put(out, b"{" if node.shape == OBJECT else b"[", 1):
        return -1
    for i in range(node.count):
        child = &node.children[i]
        if i and put(out, b", ", 2):
            return -1
        if node.shape == OBJECT and (put_string(out, child.key, child.key_size) or put(out, b": ", 2)):
            return -1
        if put_node(out, child, depth + 1):
            return -1
    return put(out, b"}" if node.shape == OBJECT else b"]", 1)


cdef int changed_document(
    Field *field, const uint8_t *before, size_t before_size, const uint8_t *data, size_t size, Value *value
) noexcept nogil:
    cdef Output out
    cdef Node root
    cdef Difference *differences
    cdef uint8_t *names
    cdef uint8_t *next_name
    cdef const char *error = NULL
    cdef size_t count = 0
    cdef size_t i = 0
    if before_size == 0:
        return fail(value, MISFIT)
    differences = get_differences(data, size, &count, value)
    if differences == NULL:
        return -1
    memset(&root, 0, sizeof(root))
    root.json = Json(before[0], before + 1, before + before_size)
    names = next_name = <uint8_t *>malloc(size + 1)
    if names == NULL:
        error = NO_MEMORY
    while i < count and error == NULL:
        error = apply_difference(&root, &differences[i], &next_name)
        i += 1
    if error != NULL:
        fail(value, error)
    else:
        begin(&out, field, before_size + size, value)
        if put_node(&out, &root, 0):
            error = value.error
    free_children(&root)
    free(names)
    free(differences)
    return finish(&out) if error == NULL else -1


# --- Canal's expression -----------------------------------------------------------------------------------------------

cdef const char *function_of(const Difference *difference) noexcept nogil:
    if difference.operation == REPLACE:
        return b"JSON_REPLACE("
    if difference.operation == REMOVE:
        return b"JSON_REMOVE("
    if difference.path_size and difference.path[difference.path_size - 1] == b"]":
        return b"JSON_ARRAY_INSERT("
    return b"JSON_INSERT("


cdef int put_path(Output *out, const uint8_t *path, size_t size) noexcept nogil:
    """As a string of SQL."""
    cdef const uint8_t *end = path + size
    cdef const uint8_t *run
    if put(out, b"'", 1):
        return -1
    while path < end:
        run = path
        while path < end and path[0] != b"'" and path[0] != b"\\":
            path += 1
        if put_text(out, run, path - run):
            return -1
        if path < end:
            if put(out, b"\\", 1) or put(out, path, 1):
                return -1
            path += 1
    return put(out, b"'", 1)


cdef int put_expression(
    Output *out, Difference *differences, size_t count, const uint8_t *name, size_t name_size
) noexcept nogil:
    """`JSON_REPLACE(JSON_INSERT(name, '$.a', 1), '$.b', 2, '$.c', 3)`.

    The first difference is the innermost call; those of one function that follow each other share a call.
    """
    cdef const char *function
    cdef size_t i = count
    while i > 0:
        i -= 1
        function = function_of(&differences[i])
        if (i == 0 or function_of(&differences[i - 1]) != function) and put(out, function, strlen(function)):
            return -1
    if put(out, name, name_size):
        return -1
    for i in range(count):
        if i and function_of(&differences[i - 1]) != function_of(&differences[i]) and put(out, b")", 1):
            return -1
        if put(out, b", ", 2) or put_path(out, differences[i].path, differences[i].path_size):
            return -1
        if differences[i].operation != REMOVE:
            if put(out, b", ", 2) or put_value(out, &differences[i].value, 0):
                return -1
    return put(out, b")", 1) if count else 0


cdef int differences_expression(
    Field *field, const uint8_t *name, size_t name_size, const uint8_t *data, size_t size, Value *value
) noexcept nogil:
    cdef Output out
    cdef size_t count = 0
    cdef int result
    cdef Difference *differences = get_differences(data, size, &count, value)
    if differences == NULL:
        return -1
    begin(&out, field, size + name_size, value)
    result = put_expression(&out, differences, count, name, name_size)
    free(differences)
    return finish(&out) if result == 0 else -1


# --- for tests and comparisons ----------------------------------------------------------------------------------------

cdef inline const uint8_t *bytes_of(bytes data) noexcept:
    return <const uint8_t *>PyBytes_AS_STRING(data)


def apply(bytes before not None, bytes differences not None):
    """The text of the document after the differences. Raises DecodeError if they do not fit the document before."""
    cdef Field field
    cdef Value value
    memset(&field, 0, sizeof(field))
    field.digits = 1
    memset(&value, 0, sizeof(value))
    return take_text(changed_document(&field, bytes_of(before), PyBytes_GET_SIZE(before), bytes_of(differences),
                                      PyBytes_GET_SIZE(differences), &value), &value)


def express(str name not None, bytes differences not None):
    """Canal's expression of the differences of the column `name`. Raises DecodeError if they are broken."""
    cdef bytes encoded = name.encode()
    cdef Field field
    cdef Value value
    memset(&field, 0, sizeof(field))
    field.digits = 1
    memset(&value, 0, sizeof(value))
    return take_text(differences_expression(&field, bytes_of(encoded), PyBytes_GET_SIZE(encoded), bytes_of(differences),
                                            PyBytes_GET_SIZE(differences), &value), &value)
