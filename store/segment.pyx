cdef class Segment:
    pass
