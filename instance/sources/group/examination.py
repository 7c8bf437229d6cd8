"""What the commands ask the members of a group without starting anything."""

from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from typing import Any, Self

from ....protocol.errors import ConfigError, SluiceError, SourceError
from ....store.cursor import Cursor
from ...config import InstanceConfig
from ...quarantine import Item
from ...source import Definition, Examination, Reread, TableReader
from .config import GroupConfig
from .places import places_of


class GroupExamination:
    """Asks each member: see `sluice.instance.source.Examination`."""

    def __init__(self, examine: Callable[[InstanceConfig], Examination], config: GroupConfig) -> None:
        """Connect to all members. Raises SourceError and ConfigError that name the member."""
        self._config = config
        self._stack = ExitStack()
        self._members: dict[str, Examination] = {}
        for name, part in config.parts.items():
            try:
                self._members[name] = self._stack.enter_context(examine(part))
            except SluiceError as error:
                self._stack.close()
                raise type(error)(f"member {name}: {error}") from error

    def _said(self, say: Callable[[Examination], str]) -> str:
        """Return what members say, each with its name; empty when none says anything."""
        return "; ".join(f"member {name}: {text}" for name, it in self._members.items() if (text := say(it)))

    @property
    def exposure(self) -> str:
        """See `sluice.instance.source.Examination.exposure`."""
        return self._said(lambda it: it.exposure)

    @property
    def protection(self) -> str:
        """See `sluice.instance.source.Examination.protection`."""
        return self._said(lambda it: it.protection)

    @property
    def unchecked_tls(self) -> str:
        """See `sluice.instance.source.Examination.unchecked_tls`."""
        return self._said(lambda it: it.unchecked_tls)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    def check(self, *, is_replaced: bool) -> None:
        """See `sluice.instance.source.Examination.check`."""
        wrong = []
        for name, it in self._members.items():
            try:
                it.check(is_replaced=is_replaced)
            except SourceError as error:
                wrong.append(f"member {name}: {error}")
        if wrong:
            raise SourceError("; ".join(wrong))

    def summary(self) -> str:
        """See `sluice.instance.source.Examination.summary`."""
        return self._said(lambda it: it.summary())

    def advice(self) -> list[str]:
        """See `sluice.instance.source.Examination.advice`."""
        return [f"member {name}: {text}" for name, it in self._members.items() for text in it.advice()]

    def tables(self, column: str = "") -> list[tuple[str, str]]:
        """See `sluice.instance.source.Examination.tables`."""
        return sorted({table for it in self._members.values() for table in it.tables(column)})

    def find(self, place: Cursor | None) -> str:
        """See `sluice.instance.source.Examination.find`."""
        return self._said(lambda it: it.find(places_of(self._name(it), [place])[0]))

    def refused(self, places: Sequence[Cursor | None]) -> Mapping[Cursor | None, SluiceError]:
        """See `sluice.instance.source.Examination.refused`: a cut is refused that a member refuses."""
        found: dict[Cursor | None, SluiceError] = {}
        for name, it in self._members.items():
            of_member = {place: places_of(name, [place])[0] for place in places}
            refused = it.refused(list(of_member.values()))
            found |= {place: refused[own] for place, own in of_member.items() if own in refused}
        return found

    def shortage(self, configs: Sequence[Any]) -> str:
        """See `sluice.instance.source.Examination.shortage`: groups need not share their members."""
        del configs
        return ""

    def table_reader(self) -> TableReader:
        """Refuse: a table may be at several members."""
        raise ConfigError(f"{self._config.destination}: rows of tables cannot be read from a group yet")

    def definition(self, schema: str, table: str) -> Definition:
        """Refuse: a table may be at several members."""
        raise ConfigError(f"{self._config.destination}: a group cannot define {schema}.{table} yet")

    def reread(self, item: Item) -> Reread:
        """Refuse: what is in quarantine is of one member, which is asked alone."""
        raise ConfigError(f"{self._config.destination}: {item.position} is of a member, and has to be asked of that")

    def _name(self, member: Examination) -> str:
        return next(name for name, it in self._members.items() if it is member)
