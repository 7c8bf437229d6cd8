"""The keys that have an effect."""

from ...instance.sources.kinds import CONFIGS
from ..outputs.settings import OutputNames
from .settings import ServerConfig

INSTANCE_KEYS = dict.fromkeys(key for config in CONFIGS.values() for key in config.fields_by_key())
KEYS = (*ServerConfig.fields_by_key(), *INSTANCE_KEYS, *OutputNames.fields_by_key())
"""All keys that have an effect, but those of outputs, which have names of their own."""
