"""The settings of a topic of TiCDC as a source."""

from typing import Annotated, ClassVar, Literal

from pydantic import BeforeValidator

from ...config import lower
from ...settings import setting
from ..kafka.config import TopicConfig


class TicdcConfig(TopicConfig):
    """The configuration of a destination whose source is a topic of TiCDC, in its protocol canal-json."""

    source_title: ClassVar[str] = "a topic of TiCDC"

    source: Annotated[Literal["ticdc"], BeforeValidator(lower)] = setting("sluice.instance.source", "ticdc")
    memory: int = setting("sluice.instance.ticdc.memory", 256, ge=1, le=1 << 16, unit="MiB")
    """How much may wait for a watermark of TiCDC. It must hold the largest transactions. If more waits, the destination
    is in error until you raise it."""
