"""The forms that there are."""

from collections.abc import Mapping
from typing import Final

from .canal import FlatForm, PacketForm
from .form import Form
from .settings import Format
from .tdsql import TdsqlForm
from .tidb import TidbForm

FORMS: Final[Mapping[Format, Form]] = {
    Format.FLAT: FlatForm(),
    Format.CANAL: PacketForm(),
    Format.TDSQL: TdsqlForm(),
    Format.TIDB: TidbForm(),
}
"""By what `sluice.output.<name>.format` is set to."""
