"""The forms that there are, Sluice's own and those of other packages."""

from collections.abc import Mapping
from typing import Final

from ....protocol.errors import ConfigError
from ..routing import Router, Rules
from ..settings import Output
from .canal import FlatForm, PacketForm
from .form import Form
from .plugin import open_form
from .settings import OnInvalidTopic, RecordSettings
from .tdsql import TdsqlForm
from .tidb import TidbForm

OWN: Final[Mapping[str, Form]] = {
    "flat": FlatForm(),
    "canal": PacketForm(),
    "tdsql": TdsqlForm(),
    "tidb": TidbForm(),
}
"""Sluice's own, by what `sluice.output.<name>.format` is set to."""


def form_of(name: str) -> Form:
    """Return the form of a name. Raises ConfigError."""
    return OWN[name] if name in OWN else open_form(name)


def configured_form(output: Output, settings: RecordSettings) -> Form:
    """Return the form that an output is configured with. Raises ConfigError, with the key, if there is none."""
    try:
        return form_of(settings.form)
    except ConfigError as error:
        raise type(error)(
            f"sluice.output.{output.name}.format has to be {' or '.join(OWN)}, or what a package brings: {error}"
        ) from None


def check_records(output: Output, settings: RecordSettings) -> Form:
    """Return the form that an output is configured with. Raises ConfigError for settings that it cannot follow."""
    form = configured_form(output, settings)
    Router(rules_of(output, settings))
    form.check(output, settings)
    return form


def rules_of(output: Output, settings: RecordSettings) -> Rules:
    """Return Canal's rules for topics and partitions."""
    return Rules(
        form_of(settings.form).topic(output, settings),
        settings.dynamic_topic,
        settings.partition,
        settings.partitions,
        settings.partition_hash,
        settings.topic_partitions,
        settings.database_hash,
        settings.on_invalid_topic is OnInvalidTopic.MAP,
    )
