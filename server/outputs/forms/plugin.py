"""The forms of other packages."""

from typing import cast

from ....instance.plugins import FORMS, PluginError, load
from ..routing import Router
from ..settings import OnMarker, Output
from . import api
from .encoding import FormError, PluginEncoder, failure
from .form import Form, Subject, asked_placement, refuse_settings
from .settings import RecordSettings


class PluginForm(Form):
    """A form of another package."""

    def __init__(self, name: str, kind: api.FormKind) -> None:
        self._name, self._kind = name, kind

    def check(self, output: Output, settings: RecordSettings) -> None:
        """See `Form.check`: what the form itself decides cannot be configured."""
        super().check(output, settings)
        which = "which itself decides on topics, partitions, keys and records"
        refuse_settings(output, settings, asked_placement(settings), which)

    def encoder(self, settings: RecordSettings, router: Router, limit: int, *, strict: bool) -> PluginEncoder:
        """See `Form.encoder`."""
        del strict
        try:
            form = self._kind()
        except BaseException as error:  # it may even ask the process to end
            raise FormError(failure(f"form {self._name} cannot be made", error)) from error
        return PluginEncoder(self._name, form, router, limit, markers=settings.on_marker is OnMarker.SEND)

    def subject(self, value: bytes) -> Subject:
        """See `Form.subject`: only the form could read it."""
        del value
        return Subject("", "")


def open_form(name: str) -> PluginForm:
    """Return a form of another package. Raises PluginError."""
    kind = load(FORMS, name)
    if not callable(kind) or not callable(getattr(kind, "records", None)):
        raise PluginError(f"form {name} has no `records`: see `FormKind` in sluice.server.outputs.forms.api")
    return PluginForm(name, cast("api.FormKind", kind))
