"""The classes of outputs that other packages bring."""

from typing import Any, Final, cast

from ....instance.plugins import OUTPUTS, PluginError, load
from ..api import RECORDS, OutputKind
from ..forms.settings import RecordSettings
from ..settings import PLACE, PREFIX, OutputSettings

CALLS: Final = ("open", "send", "abandon", "close", "check")
SEE: Final = ": see `OutputKind` in sluice.server.outputs.api"


def kind_of(name: str) -> OutputKind:
    """Return the class of a kind of outputs. Raises ConfigError when there is none, or not as the interface asks."""
    return check_kind(name, load(OUTPUTS, name))


def check_kind(name: str, kind: Any) -> OutputKind:
    """Return it as a class of outputs. Raises PluginError when it is not what the interface asks for."""
    wrong = [it for it in CALLS if not callable(getattr(kind, it, None))]
    if not callable(kind) or wrong:
        raise PluginError(f"output {name}: its class has no method {', '.join(wrong)}{SEE}")
    if type(getattr(kind, "exactly_once", None)) is not bool or not isinstance(getattr(kind, "format", None), str):
        raise PluginError(f"output {name}: its class has to say `exactly_once` (a bool) and `format` (a text){SEE}")
    check_settings(name, getattr(kind, "settings", None), RecordSettings if kind.format == RECORDS else OutputSettings)
    return cast("OutputKind", kind)


def check_settings(name: str, settings: object, base: type[OutputSettings]) -> None:
    """Raise PluginError unless a class declares keys of outputs, and none of those that all outputs have."""
    if not isinstance(settings, type) or not issubclass(settings, base):
        raise PluginError(f"output {name}: `settings` of its class has to be a subclass of {base.__name__}{SEE}")
    own = settings.model_fields
    wrong = [key for key in settings.fields_by_key() if not key.startswith(f"{PREFIX}{PLACE}.")]
    for field, inherited in base.model_fields.items():
        if (own[field].alias, own[field].annotation) != (inherited.alias, inherited.annotation):
            wrong.append(field)
    if wrong or len(settings.fields_by_key()) != len(own):
        raise PluginError(
            f"output {name}: `settings` declares {', '.join(wrong) or 'a key twice'}: its own keys begin with"
            f" {PREFIX}{PLACE}. and those of {base.__name__} stay as they are"
        )
