# Used by compiled code only.

from .....store.ring import Registry

class GtidSources:
    def __init__(self, registry: Registry, member: str) -> None: ...
