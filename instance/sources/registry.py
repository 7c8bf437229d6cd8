"""The parts of each kind of source, by the class of its configuration. To add one, see docs/internals.md."""

from collections.abc import Callable, Mapping, Sequence
from importlib import import_module
from typing import TYPE_CHECKING, Any, Final, TypeVar, cast

from ...protocol.cut import Before
from ...protocol.errors import ConfigError
from ...protocol.position import Position
from ...store.cursor import Cursor
from ...store.ring import Ring
from .. import source
from ..config import InstanceConfig
from .changes.config import ChangesConfig
from .changes.examination import ChangesExamination
from .changes.parser import ChangesParser
from .files.config import FilesConfig
from .files.examination import FilesExamination
from .files.parser import FilesParser
from .group.config import GroupConfig
from .group.examination import GroupExamination
from .group.parser import GroupParser
from .kafka.config import KafkaConfig
from .mysql.config import MysqlConfig
from .mysql.examination import Examination
from .mysql.history.archive import Archive
from .mysql.parser import Parser
from .plugin.config import PluginConfig
from .plugin.examination import PluginExamination
from .plugin.parser import PluginParser
from .process.config import ProcessConfig
from .process.examination import ProcessExamination
from .process.parser import ProcessParser
from .pump.config import PumpLogConfig
from .pump.examination import PumpExamination
from .pump.parser import PumpParser
from .ticdc.config import TicdcConfig

if TYPE_CHECKING:
    from .group.member import MakeMember

T = TypeVar("T")


def _of_topic(module: str, name: str) -> Callable[..., Any]:
    """Return what makes a part of a source whose library is an extra."""

    def make(*arguments: Any, **more: Any) -> Any:
        try:
            found = import_module(module, __package__)
        except ModuleNotFoundError as error:
            if error.name != "confluent_kafka":
                raise
            raise ConfigError(
                "a topic as the source (sluice.instance.source) needs confluent-kafka, which is missing:"
                " pip install 'sluice-cdc[kafka]'"
            ) from error
        return getattr(found, name)(*arguments, **more)

    return make


# Each takes a configuration of its own kind.
PARSERS: Final[Mapping[type[InstanceConfig], Callable[..., source.Parser]]] = {
    MysqlConfig: Parser,
    FilesConfig: FilesParser,
    KafkaConfig: _of_topic(".kafka.parser", "KafkaParser"),
    TicdcConfig: _of_topic(".ticdc.parser", "TicdcParser"),
    PumpLogConfig: PumpParser,
    PluginConfig: PluginParser,
    GroupConfig: lambda *given, **more: GroupParser(cast("MakeMember", make_parser), *given, **more),
    ChangesConfig: ChangesParser,
    ProcessConfig: ProcessParser,
}
EXAMINATIONS: Final[Mapping[type[InstanceConfig], Callable[[Any], source.Examination]]] = {
    MysqlConfig: Examination,
    FilesConfig: FilesExamination,
    KafkaConfig: _of_topic(".kafka.examination", "KafkaExamination"),
    TicdcConfig: _of_topic(".ticdc.examination", "TicdcExamination"),
    PumpLogConfig: PumpExamination,
    PluginConfig: PluginExamination,
    GroupConfig: lambda config: GroupExamination(examine, config),
    ChangesConfig: ChangesExamination,
    ProcessConfig: ProcessExamination,
}
ARCHIVES: Final[Mapping[type[InstanceConfig], Callable[[Any], source.SchemaArchive]]] = {
    MysqlConfig: Archive,
    FilesConfig: Archive,
}


def make_parser(
    config: InstanceConfig,
    ring: Ring,
    *,
    start: Cursor | None,
    later: Sequence[Cursor | None] = (),
    on_begin: Callable[[Position | None, Before], None],
    on_state: Callable[[str, str], None],
    epoch: int = 0,
    stop: Position | None = None,
) -> source.Parser:
    """Make the parser of a destination: see `sluice.instance.source.ParserFactory`."""
    make = PARSERS[_kind(config)]
    return make(config, ring, start=start, later=later, on_begin=on_begin, on_state=on_state, epoch=epoch, stop=stop)


def examine(config: InstanceConfig) -> source.Examination:
    """Connect to the source of a destination to ask it.

    Raises SourceError, and ConfigError when nothing can be asked of its kind.
    """
    return _part(EXAMINATIONS, config)(config.main)


def archive(config: InstanceConfig) -> source.SchemaArchive:
    """Return the history of a destination's tables. Raises ConfigError when its kind of source has none."""
    return _part(ARCHIVES, config)(config.main)


def _kind(config: InstanceConfig) -> type[InstanceConfig]:
    return PluginConfig if isinstance(config, PluginConfig) else type(config)


def _part(parts: Mapping[type[InstanceConfig], T], config: InstanceConfig) -> T:
    if _kind(config) not in parts:
        kinds = " or ".join(it.source_title for it in parts if it.source_title)
        raise ConfigError(
            f"{config.destination}: {config.source_title} as a source cannot be asked this, only {kinds} can"
            f" (sluice.instance.source = {config.source})"
        )
    return parts[_kind(config)]
