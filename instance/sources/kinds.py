"""The kinds of sources by name, with what can be configured of each. Their parsers are in `registry`: compiled code."""

from collections.abc import Mapping
from typing import Final

from ..config import InstanceConfig
from .changes.config import ChangesConfig
from .files.config import FilesConfig
from .group.config import GroupConfig
from .kafka.config import KafkaConfig
from .mysql.config import MysqlConfig
from .plugin.config import config_of as open_config
from .process.config import ProcessConfig
from .pump.config import PumpLogConfig
from .ticdc.config import TicdcConfig

CONFIGS: Final[Mapping[str, type[InstanceConfig]]] = {
    "changes": ChangesConfig,
    "files": FilesConfig,
    "group": GroupConfig,
    "kafka": KafkaConfig,
    "mysql": MysqlConfig,
    "process": ProcessConfig,
    "pump": PumpLogConfig,
    "ticdc": TicdcConfig,
}
"""What `sluice.instance.source` can be, each with the settings that a destination then has; packages bring others."""


def config_of(name: str) -> type[InstanceConfig]:
    """Return the settings of a kind, Sluice's own or that of another package. Raises ConfigError."""
    return CONFIGS[name] if name in CONFIGS else open_config(name)
