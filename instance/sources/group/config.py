"""The settings of a group: several sources, its members, that become one stream."""

import re
from collections.abc import Collection, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Annotated, Any, ClassVar, Literal, Self

from pydantic import BeforeValidator, PrivateAttr, field_validator, model_validator

from ....protocol.errors import ConfigError
from ....protocol.member import KEYS, MAX_MEMBERS, NAME
from ....store.cursor import Cursor, as_member, place_of
from ...config import InstanceConfig, lower
from ...meta.base import InUse
from ...properties import Lookup, Property
from ...settings import names, setting
from ..files.config import FilesConfig
from ..kafka.config import KafkaConfig
from ..mysql.config import MysqlConfig

SOURCE_KEY = "sluice.instance.source"
MEMBERS_KEY = "sluice.group.members"
KINDS: Mapping[str, type[InstanceConfig]] = {"files": FilesConfig, "kafka": KafkaConfig, "mysql": MysqlConfig}
"""What a member can be."""


class GroupConfig(InstanceConfig):
    """The configuration of a destination whose source is a group.

    A member has the settings of its kind, as a destination of that kind: ``sluice.group.NAME.KEY`` is the key of the
    member, and KEY that of all members that have none. What any destination has, such as filters, is of the group.
    """

    source_title: ClassVar[str] = "a group of sources"

    source: Annotated[Literal["group"], BeforeValidator(lower)] = setting(SOURCE_KEY, "group")
    members: Annotated[tuple[str, ...], BeforeValidator(names)] = setting(
        MEMBERS_KEY, min_length=1, max_length=MAX_MEMBERS
    )
    """Names of the [members](howto/groups.md), separated by commas: up to 64 letters, digits, `_` and `-` each.
    `sluice.group.<name>.<key>` is a key of the member's source. The key without a name is for all members that have
    none of their own."""
    order: str = setting("sluice.group.order", "time", pattern=r"^(time|arrival|column:.+)$")
    """Order of transactions of different members. `time`: of their first events, by corrected clocks. `arrival`: as
    they come. `column:<name>`: by a column of their first rows, a whole number or a time. Those of one member always
    keep their order."""
    window: int = setting("sluice.group.window", 100, ge=10, le=60_000, unit="ms")
    """How long an idle member may delay the others. A transaction that comes later than this out of order is marked as
    late."""
    max_wait: int = setting("sluice.group.maxWait", 0, ge=0, le=31_536_000_000, unit="ms")
    """How long the others wait for a member that cannot be reached. After that they go on without it, and what it
    brings later is marked as late. 0: for ever."""
    pool: int = setting("sluice.group.pool", 16 << 20, ge=1 << 20, le=1 << 40, unit="bytes")
    """Memory for what was read of a member and waits for its turn, outside of the ring. A transaction that exceeds it
    is delivered in parts."""

    _parts: Mapping[str, InstanceConfig] = PrivateAttr(default_factory=lambda: MappingProxyType({}))

    @property
    def parts(self) -> Mapping[str, InstanceConfig]:
        """The configurations of the members, by their names."""
        return self._parts

    @field_validator("members")
    @classmethod
    def _check_members(cls, value: tuple[str, ...]) -> tuple[str, ...]:
        for name in value:
            if not re.fullmatch(NAME, name):
                raise ValueError(f"not the name of a member ({NAME}): {name[:200]!r}")
        if len(set(value)) < len(value):
            raise ValueError("names a member twice")
        return value

    @model_validator(mode="after")
    def _check_group(self) -> Self:
        if self.was and self.was not in self.members:
            raise ValueError(
                f"sluice.group.was = {self.was}: it has to be one of the members, {', '.join(self.members)}"
            )
        return self

    @classmethod
    def keys_in(cls, lookup: Lookup) -> Collection[str]:
        """See `InstanceConfig.keys_in`."""
        keys = [*cls.fields_by_key()]
        for name in _names(lookup):
            own = _own_keys(_kind_of(lookup, name))
            keys += [key for it in own for key in (f"{KEYS}{name}.{it}", it)]
        return keys

    @classmethod
    def read(cls, lookup: Lookup, folder: Path, destination: str) -> Self:
        """See `InstanceConfig.read`."""
        found = super().read(lookup, folder, destination)
        parts, mistakes = dict[str, InstanceConfig](), list[str]()
        for name in found.members:
            try:
                parts[name] = _read_member(found, lookup, folder, name)
            except ConfigError as error:
                mistakes += [f"member {name}: {line}" for line in str(error).splitlines()]
        if mistakes:
            raise ConfigError("\n".join(mistakes))
        return found.with_parts(parts)

    def with_parts(self, parts: Mapping[str, InstanceConfig]) -> Self:
        """Return it with other configurations of its members."""
        copy = self.model_copy()
        copy._parts = MappingProxyType(dict(parts))  # noqa: SLF001  of its own class
        return copy

    def adopt(self, cursor: Cursor) -> Cursor:
        """See `InstanceConfig.adopt`: a place of a single source is that of the member which that was.

        The other members begin where the configuration says.
        """
        if cursor.position is not None and cursor.position.is_merged:
            return cursor
        what = f"a client is at {place_of(cursor)}, a place of a single source, and {self.destination} is a group"
        if not self.was:
            raise ConfigError(
                f"{what}: say which member that source is, by sluice.group.was, or make a destination of another name"
            )
        if cursor.position is None:
            raise ConfigError(
                f"{what}. Canal has written the place, and only its source can say where that is: let Sluice serve the"
                " client from the single source first, until it has confirmed something"
            )
        return as_member(cursor, self.was)

    def using(self, found: InUse | None) -> Self:
        """See `InstanceConfig.using`, of each member; of a single source, of the member which that was."""
        if found is None:
            return self
        chosen = {self.was: found} if found.address else found.members
        return self.with_parts({name: it.using(chosen.get(name)) for name, it in self._parts.items()})

    @property
    def is_merged(self) -> bool:
        """See `InstanceConfig.is_merged`."""
        return True

    @property
    def place(self) -> str:
        """See `InstanceConfig.place`."""
        return "; ".join(f"{name}: {it.place}" for name, it in self._parts.items())

    def sources(self) -> Mapping[str, InstanceConfig]:
        """See `InstanceConfig.sources`."""
        return self._parts

    def with_sources(self, sources: Mapping[str, InstanceConfig]) -> Self:
        """See `InstanceConfig.with_sources`: of a group of these members."""
        return self.with_parts(sources)

    def goes_on_with(self, other: InstanceConfig) -> bool:
        """See `InstanceConfig.goes_on_with`: members come and go, and their servers are read with other settings."""
        if not isinstance(other, GroupConfig):
            return False
        for name in self._parts.keys() & other.parts.keys():
            before, after = self._parts[name], other.parts[name]
            if before != after and (
                type(before) is not type(after) or not before.address[0] or after.address != before.address
            ):
                return False
        mine, its = (it.with_parts({}).model_copy(update={"members": ()}) for it in (self, other))
        return mine == its

    def warnings(self) -> list[str]:
        """See `InstanceConfig.warnings`."""
        return [f"member {name}: {text}" for name, it in self._parts.items() for text in it.warnings()]

    def secrets(self) -> list[str]:
        """See `Settings.secrets`."""
        return [*super().secrets(), *(secret for it in self._parts.values() for secret in it.secrets())]

    def shape(self) -> dict[str, Any]:
        """See `InstanceConfig.shape`."""
        common = super().shape()
        own = {
            f"{KEYS}{name}.{key}": value
            for name, it in self._parts.items()
            for key, value in it.shape().items()
            if key not in common
        }
        return common | own

    def for_reader(self) -> Self:
        """See `InstanceConfig.for_reader`."""
        return super().for_reader().with_parts({name: it.for_reader() for name, it in self._parts.items()})

    def beside(self, folder: Path) -> Self:
        """See `InstanceConfig.beside`."""
        return super().beside(folder).with_parts({name: it.beside(folder) for name, it in self._parts.items()})


_OF_EACH = ("destination", "source", "route", "file_data_dir", "was")
"""What of `InstanceConfig` a member does not have from the group."""


def _names(lookup: Lookup) -> list[str]:
    """Return the names of the members as they are written."""
    found = lookup([MEMBERS_KEY]).get(MEMBERS_KEY)
    return list(names(found.value)) if found is not None else []


def _kind_of(lookup: Lookup, name: str) -> type[InstanceConfig]:
    """Return what can be configured of a member. Raises ConfigError."""
    key = f"{KEYS}{name}.{SOURCE_KEY}"
    found = lookup([key]).get(key)
    kind = found.value.lower() if found is not None and found.value else "mysql"
    if kind not in KINDS:
        raise ConfigError(f"{key}: has to be {' or '.join(map(repr, KINDS))}, not {kind[:200]!r}")
    return KINDS[kind]


def _own_keys(kind: type[InstanceConfig]) -> dict[str, None]:
    """Return the keys that a member of a kind has for itself."""
    common = InstanceConfig.fields_by_key()
    return dict.fromkeys([SOURCE_KEY, *(key for key in kind.fields_by_key() if key not in common)])


def _read_member(group: GroupConfig, lookup: Lookup, folder: Path, name: str) -> InstanceConfig:
    """Read the settings of a member. Raises ConfigError."""
    kind = _kind_of(lookup, name)
    own, prefix = _own_keys(kind), f"{KEYS}{name}."
    wrong = [key for key in lookup.keys if key.startswith(prefix) and key.removeprefix(prefix) not in own]
    if wrong:
        raise ConfigError(
            f"{', '.join(sorted(wrong))}: a member has the settings of its kind only, {kind.source_title}: what any"
            " destination has is of the group, without the name of a member"
        )
    of_member = {key.removeprefix(prefix): it for key, it in lookup(prefix + key for key in own).items()}
    given = {key: it for key, it in of_member.items() if it.value}
    common = {name: getattr(group, name) for name in InstanceConfig.model_fields if name not in _OF_EACH}
    was_alone = name == group.was  # so it goes on with what it has written, such as the history of its tables
    return kind.fill(
        {**lookup(own), **given, SOURCE_KEY: Property(kind.model_fields["source"].default, "kind of the member")},
        folder,
        **common,
        destination=group.destination if was_alone else f"{group.destination}.{name}",
        file_data_dir=group.file_data_dir if was_alone else group.file_data_dir / group.destination / "members",
    )
