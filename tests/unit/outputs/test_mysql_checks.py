"""What of the configuration of an output to MySQL or MariaDB is refused before anything is sent."""

from typing import Any

import pytest

from sluice.protocol.errors import ConfigError
from sluice.server.outputs.mysql.checks import complaints
from sluice.server.outputs.mysql.settings import MysqlSettings
from sluice.server.outputs.settings import Output
from sluice.store.snapshot import Selection

URL = "mysql://writer@db/"


def output(output: dict[str, Any] | None = None, **settings: Any) -> Output:
    return Output("shop", "copy", MysqlSettings(**{"url": URL} | settings), shared=False, **output or {})


def test_an_output_begins_with_a_snapshot_unless_it_is_told_otherwise() -> None:
    assert complaints(output()) == ([], [])
    assert output().settings.begin == Selection()
    assert output(start="latest").settings.begin == "latest"


@pytest.mark.parametrize(
    ("settings", "of_output", "message"),
    [
        ({"on_marker": "send"}, {}, r"output\.copy\.onMarker = send cannot be used"),
        ({"late": True}, {}, "late rows would overwrite newer ones"),
        ({"url": "mysql://writer:secret@db/"}, {}, r"output\.copy\.url: the password must not stand"),
        ({"url": "db:3306"}, {}, r"output\.copy\.url: a database is named as mysql://"),
        ({}, {"has_transactions": False}, "transaction.entry = true cannot be used"),
        ({}, {"strict": True}, "strictCanal = true cannot be used"),
        ({}, {"has_shared_filter": True}, "sharedFilter = true cannot be used"),
    ],
)
def test_what_would_make_a_wrong_copy_is_refused(
    settings: dict[str, Any], of_output: dict[str, Any], message: str
) -> None:
    with pytest.raises(ConfigError, match=message) as refused:
        complaints(output(of_output, **settings))
    assert "secret" not in str(refused.value)
