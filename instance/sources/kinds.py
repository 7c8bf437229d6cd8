"""The kinds of sources by name, with what can be configured of each. Their parsers are in `registry`: compiled code."""

from collections.abc import Mapping
from typing import Final

from ..config import InstanceConfig
from .files.config import FilesConfig
from .kafka.config import KafkaConfig
from .mysql.config import MysqlConfig

CONFIGS: Final[Mapping[str, type[InstanceConfig]]] = {
    "files": FilesConfig,
    "kafka": KafkaConfig,
    "mysql": MysqlConfig,
}
"""What `sluice.instance.source` can be, each with the settings that a destination then has."""
