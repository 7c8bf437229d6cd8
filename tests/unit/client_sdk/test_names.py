"""What `sluice.client_sdk` names: a program of a consumer needs no other module."""

from importlib.metadata import version

from sluice import client_sdk
from sluice.protocol import errors


def test_every_error_that_a_consumer_can_meet_is_there() -> None:
    of_operators = {
        "ConfigError",
        "TargetError",
        "RefusedError",
        "RecordTooLargeError",
        "MarkerError",
        "PartialRowsError",
        "UnfitChangeError",
        "TransactionTooLargeError",
        "HistoryError",
        "LostTransactionsError",
        "SwitchRefusedError",
        "SourceMovedError",
        "UnknownJobError",
    }
    defined = {name for name, it in vars(errors).items() if isinstance(it, type) and issubclass(it, Exception)}
    assert defined - set(client_sdk.__all__) == of_operators


def test_all_names_can_be_imported() -> None:
    assert [name for name in client_sdk.__all__ if not hasattr(client_sdk, name)] == []
    assert client_sdk.__version__ == version("sluice-cdc")
