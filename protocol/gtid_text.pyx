"""How sets of GTIDs are written: see gtid_text.pxd."""

from libcpp.string cimport string


def mysql_text(runs):
    """The text of (uuid, tag) -> runs, as MySQL prints it, but without the line break after a comma."""
    cdef string text, key, before
    for (uuid, tag), pairs in sorted(runs.items()):
        key = uuid + tag.encode()
        add_source(&text, key, before)
        for first, last in pairs:
            add_run(&text, first, last)
        before = key
    return text.decode()


def mariadb_text(gtids):
    """The text of ((domain, server id), number) of each, in this order."""
    cdef string text
    for (domain, server_id), number in gtids:
        add_mariadb(&text, domain, server_id, number)
    return text.decode()
