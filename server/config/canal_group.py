"""What Canal's group-instance.xml reads, as settings of a group: a source for each number.

Canal's own file has two sources, with the keys ``canal.instance.master1.address``, ``canal.instance.standby1.address``
and so on; who needs more copies its parts. Source 1 becomes the member ``master1``, with the settings of a destination:
``sluice.group.master1.canal.instance.master.address``.
"""

import re
from typing import Final

from ...instance.properties import Lookup, Property
from ...instance.sources.group.config import MEMBERS_KEY, SOURCE_KEY
from ...protocol.errors import ConfigError
from ...protocol.member import KEYS, MAX_MEMBERS

BEANS: Final = "group-instance.xml"
STORE_KEY: Final = "sluice.instance.store"
_NAMES: Final = ("address", "journal.name", "position", "timestamp", "gtid")
_ROLES: Final = ("master", "standby")
NUMBERED: Final = re.compile(
    rf"canal\.instance\.({'|'.join(_ROLES)})([1-9][0-9]*)\.({'|'.join(map(re.escape, _NAMES))})"
)
"""Its keys."""


def group_settings(lookup: Lookup, origin: str) -> dict[str, Property]:
    """Return the settings of the group; ``origin``: where its file is named.

    Raises ConfigError when there is no source or one too many, and for what could be meant for any of them.
    """
    for key in lookup.keys:
        found = NUMBERED.fullmatch(key)
        if found is not None and int(found[2]) > MAX_MEMBERS:
            raise ConfigError(f"{_place(lookup, key)}: a group has at most {MAX_MEMBERS} sources, numbered from 1 on")
    given = {
        (role, number, name): item
        for role in _ROLES
        for number in range(1, MAX_MEMBERS + 1)
        for name in _NAMES
        for item in lookup([f"canal.instance.{role}{number}.{name}"]).values()
        if item.value
    }
    numbers = sorted({number for role, number, name in given if (role, name) == ("master", "address")})
    if not numbers:
        raise ConfigError(f"{origin}: {BEANS} needs canal.instance.master1.address, canal.instance.master2.address …")
    for (role, number, name), item in given.items():
        if number not in numbers:
            raise ConfigError(
                f"{item.origin}: canal.instance.{role}{number}.{name} needs canal.instance.master{number}.address"
            )
    plain = [
        f"canal.instance.{role}.{name}" for role in _ROLES for name in _NAMES if (role, name) != ("master", "address")
    ]
    for key, item in lookup(plain).items():
        if item.value:
            raise ConfigError(
                f"{item.origin}: {key} is of no source of {BEANS}: write it with the number of one, or leave it out"
            )
    settings = {
        STORE_KEY: Property("mixed", origin),
        SOURCE_KEY: Property("group", origin),
        MEMBERS_KEY: Property(",".join(f"master{number}" for number in numbers), origin),
    }
    for (role, number, name), item in given.items():
        settings[f"{KEYS}master{number}.canal.instance.{role}.{name}"] = item
    return settings


def _place(lookup: Lookup, key: str) -> str:
    return f"{lookup([key])[key].origin}: {key}"
