"""The numbers that the sources of GTIDs have in a ring."""

from libc.stdint cimport uint32_t
from libc.string cimport memcmp

from .gtid_event cimport UUID_SIZE, Gtid


cdef class GtidSources:
    """The numbers that the sources of GTIDs have in a ring; Python is asked only for one that is not among the last."""

    def __init__(self, registry, member):
        self.registry = registry
        self.member = member

    cdef uint32_t number(self, const Gtid *gtid) except? 0 nogil:
        cdef Gtid *seen
        cdef uint32_t number
        cdef int i
        for i in range(self.count):
            seen = &self.known[i].gtid
            if seen.is_mariadb != gtid.is_mariadb:
                continue
            if seen.is_mariadb:
                if seen.domain != gtid.domain or seen.server_id != gtid.server_id:
                    continue
            elif (
                seen.tag_size != gtid.tag_size or memcmp(seen.uuid, gtid.uuid, UUID_SIZE) != 0
                or memcmp(seen.tag, gtid.tag, seen.tag_size) != 0
            ):
                continue
            return self.known[i].number
        with gil:
            if gtid.is_mariadb:
                key = (int(gtid.domain), int(gtid.server_id))
            else:
                key = (
                    (<const char *>gtid.uuid)[:UUID_SIZE],
                    (<const char *>gtid.tag)[:gtid.tag_size].decode("ascii", "replace"),
                )
            number = self.registry.intern((self.member, key))
        i = self.count % SOURCES_MAX if self.count == SOURCES_MAX else self.count
        if self.count < SOURCES_MAX:
            self.count += 1
        self.known[i].gtid = gtid[0]
        self.known[i].number = number
        return number
