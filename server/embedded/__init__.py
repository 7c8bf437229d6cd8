"""Canal's calls - subscribe, get, ack, rollback - on the destinations of this process, without a network."""

from .calls import Calls
from .ranges import Ranges


class EmbeddedServer(Calls, Ranges):
    """The destinations of this process, and all calls on them. All methods belong to one event loop."""
