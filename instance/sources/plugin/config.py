"""What can be configured of a destination whose source another package brings."""

import functools
from typing import Any, ClassVar, Final, Self

from pydantic import BaseModel, create_model, model_validator

from ...config import InstanceConfig
from ...plugins import SOURCES, PluginError, load
from ...settings import Settings, setting

FILTERS: Final = ("canal.instance.filter.regex", "canal.instance.filter.black.regex")
"""What Sluice does with the entries of any source."""
FORMATS: Final = (
    "canal.instance.parser.strictCanal",
    "sluice.instance.timeZone",
    "sluice.instance.quarantine",
    "canal.instance.filter.table.error",
    "sluice.instance.filter.where.crossing",
)
"""What is without effect here and does no harm."""
LONGEST_TITLE: Final = 100
"""Characters of a title."""


class EntriesConfig(InstanceConfig):
    """The configuration of a destination whose source gives entries as they are to be delivered."""

    skips_gaps: ClassVar[bool] = False
    """Whether it can go on behind what is missing (`canal.auto.reset.latest.pos.mode`)."""
    keeps_log: ClassVar[bool] = False
    """Whether it can have a log on disk."""

    @model_validator(mode="after")
    def _check_entries(self) -> Self:
        allowed = {*FILTERS, *FORMATS}
        fields = {key: name for key, name in InstanceConfig.fields_with("shapes").items() if key not in allowed}
        used = [key for key, it in fields.items() if getattr(self, it) != InstanceConfig.model_fields[it].default]
        used += ["canal.auto.reset.latest.pos.mode"] if self.auto_reset_latest_pos_mode and not self.skips_gaps else []
        used += ["sluice.instance.store"] if self.has_log and not self.keeps_log else []
        if used:
            raise ValueError(
                f"{', '.join(used)}: not with {self.source_title} as the source, whose entries are delivered as they"
                f" come, filtered by tables only{'' if self.keeps_log else ', and from the ring'}"
            )
        return self


class PluginConfig(EntriesConfig):
    """The configuration of a destination whose source another package brings: its own settings, and those of all."""

    kind: ClassVar[Any]
    """The class that the entry point names; see `SourceKind`."""


TAKEN: Final = {*dir(PluginConfig), *PluginConfig.model_fields, *PluginConfig.__class_vars__} - {*dir(BaseModel)}
"""Names of attributes that a field would hide, or that would hide it."""


@functools.cache
def model_of(name: str, kind: Any) -> type[PluginConfig]:
    """Return the configuration of a kind, which is that class. Raises PluginError when that is not as it has to be."""
    see = ": see `SourceKind` in sluice.instance.sources.api"
    settings, title = getattr(kind, "settings", None), getattr(kind, "title", None)
    if not isinstance(settings, type) or not issubclass(settings, Settings) or not isinstance(title, str) or not title:
        raise PluginError(f"source {name}: its class has to say `settings`, a subclass of Settings, and `title`{see}")
    wrong = [it for it in ("history", "oldest", "end", "read", "close") if not callable(getattr(kind, it, None))]
    if wrong or not callable(kind):
        raise PluginError(f"source {name}: its class has no method {', '.join(wrong)}{see}")
    own = f"sluice.instance.{name}."
    foreign = [key for key in settings.fields_by_key() if not key.startswith(own)]
    foreign += sorted(settings.model_fields.keys() & TAKEN)
    if foreign:
        raise PluginError(
            f"source {name}: `settings` declares {', '.join(foreign)}: its own keys begin with {own}, and the names of"
            " fields are not those of attributes of InstanceConfig"
        )
    source: Any = (str, setting("sluice.instance.source", name))
    bases: Any = (PluginConfig, settings)
    model: type[PluginConfig] = create_model(f"Config of {name}", __base__=bases, source=source)
    model.source_title, model.kind = title[:LONGEST_TITLE], kind
    return model


def config_of(name: str) -> type[PluginConfig]:
    """Return the configuration of a kind that a package brings. Raises ConfigError."""
    try:
        return model_of(name, load(SOURCES, name))
    except TypeError as error:  # two classes of settings that do not go together
        raise PluginError(f"source {name}: its settings cannot be used: {error}") from None
