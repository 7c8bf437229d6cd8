"""A front of the tests: whoever connects sends lines, and gets the names of the destinations for each."""

from typing import ClassVar

from sluice.instance.settings import setting
from sluice.server.front import FrontConfig, Host


class LineConfig(FrontConfig):
    title: ClassVar[str] = "protocol of lines"

    host: Host = setting("line.host", "127.0.0.1")
    port: int = setting("line.port", 11190, ge=0, lt=1 << 16)
