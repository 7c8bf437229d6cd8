"""Which server should have which destination."""

from collections.abc import Iterable, Mapping
from hashlib import blake2b


def spread(destinations: Iterable[str], servers: Iterable[str]) -> dict[str, str]:
    """Return for each destination the server that should have it; none without servers.

    Numbers of destinations differ by one at most. All servers that know the same names come to the same result. When
    a server comes or goes few others' destinations move: each prefers servers in an order of its own (rendezvous
    hashing), and takes the first that has room.
    """
    names, hosts = sorted(set(destinations)), sorted(set(servers))
    if not hosts:
        return {}
    least, more = divmod(len(names), len(hosts))
    counts = dict.fromkeys(hosts, 0)
    found: dict[str, str] = {}
    for name in names:
        for server in sorted(hosts, key=lambda it: _weight(name, it)):
            if counts[server] < least or (counts[server] == least and more > 0):
                more -= counts[server] == least
                counts[server] += 1
                found[name] = server
                break
    return found


def misplaced(owners: Mapping[str, str], servers: Iterable[str]) -> dict[str, str]:
    """Return the destinations that another of the servers should have, with that one; ``owners`` is by destination."""
    wanted = spread(owners, servers)
    return {name: server for name, server in wanted.items() if owners[name] != server}


def _weight(destination: str, server: str) -> bytes:
    return blake2b(f"{destination}\0{server}".encode(), digest_size=8).digest()
