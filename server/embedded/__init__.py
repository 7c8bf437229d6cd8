"""Canal's calls - subscribe, get, ack, rollback - on the destinations of this process, without a network."""

from .calls import Calls
from .ranges import Ranges
from .snapshots import Snapshots


class EmbeddedServer(Calls, Ranges, Snapshots):
    """The destinations of this process, and all calls on them. All methods belong to one event loop."""
