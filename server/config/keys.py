"""The keys that have an effect."""

from ...instance.sources.kinds import CONFIGS
from ..fronts import FRONTS
from ..outputs.settings import OutputNames
from .settings import ServerConfig

INSTANCE_KEYS = dict.fromkeys(key for config in CONFIGS.values() for key in config.fields_by_key())
SERVER_KEYS = dict.fromkeys(
    [*ServerConfig.fields_by_key(), *(key for front in FRONTS for key in front.fields_by_key())]
)
"""Those that the main file has for the server and its fronts."""
KEYS = (*SERVER_KEYS, *INSTANCE_KEYS, *OutputNames.fields_by_key())
"""All keys that have an effect, but those of outputs, which have names of their own."""
