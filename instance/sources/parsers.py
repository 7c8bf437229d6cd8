"""The parser of each kind of source, by the class of its configuration."""

from collections.abc import Callable, Sequence

from ...protocol.gtid import GtidSet
from ...protocol.position import Position
from ...store.cursor import Cursor
from ...store.ring import Ring
from .. import source
from ..config import InstanceConfig
from .mysql.config import MysqlConfig
from .mysql.parser import Parser


def make_parser(
    config: InstanceConfig,
    ring: Ring,
    *,
    start: Cursor | None,
    later: Sequence[Cursor | None] = (),
    on_begin: Callable[[Position | None, GtidSet | None], None],
    on_state: Callable[[str, str], None],
) -> source.Parser:
    """Make the parser of a destination: see `sluice.instance.source.ParserFactory`."""
    if not isinstance(config, MysqlConfig):
        raise TypeError(f"{type(config).__name__} does not configure a known source")
    return Parser(config, ring, start=start, later=later, on_begin=on_begin, on_state=on_state)
