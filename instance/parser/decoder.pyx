from sluice.store.segment cimport Segment
def f(Segment s): return s.data != NULL
