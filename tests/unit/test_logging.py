"""What the logs show, and what they never show."""

import io
import json
import logging
from typing import Any

import pytest

from sluice.instance.context import current_destination
from sluice.protocol.errors import SourceError
from sluice.server.logging import LogFormat, LogLevel, Redactor, configure_logging, one_line, redactor

log = logging.getLogger("sluice.test")


@pytest.fixture
def text() -> io.StringIO:
    stream = io.StringIO()
    configure_logging(LogLevel.INFO, LogFormat.TEXT, stream)
    return stream


@pytest.fixture
def events() -> Any:
    stream = io.StringIO()
    configure_logging(LogLevel.INFO, LogFormat.JSON, stream)
    return lambda: [json.loads(line) for line in stream.getvalue().splitlines()]


@pytest.mark.parametrize(
    ("message", "shown"),
    [
        ("token sluice_0123456789ab_QmFzZTY0-_text sent", "token sluice_0123456789ab_*** sent"),
        ("Authorization: Bearer abc.def", "Authorization: Bearer ***"),
        ("connect mysql://cdc:hunter2@db:3306/", "connect mysql://cdc:***@db:3306/"),
        ("db_password='hun ter2', host=x", "db_password=***, host=x"),
        ("password = hunter2", "password = ***"),
        ('{"password": "hunter2"}', '{"password": ***}'),
        ("CREATE USER a IDENTIFIED BY 'hunter2'", "CREATE USER a IDENTIFIED BY ***"),
        ("canal.instance.dbPassword: has to be given", "canal.instance.dbPassword: has to be given"),
    ],
)
def test_what_looks_like_a_secret_is_hidden(message: str, shown: str) -> None:
    assert Redactor()(message) == shown


def test_a_secret_is_hidden_wherever_it_appears() -> None:
    redact = Redactor()
    redact.hide("pass")
    redact.hide("pass+word")
    redact.hide("x")
    assert redact("x: pass+word, pass") == "x: ***, ***"


@pytest.mark.parametrize("style", LogFormat)
def test_no_password_reaches_the_log_by_any_way(style: LogFormat) -> None:
    stream = io.StringIO()
    configure_logging(LogLevel.DEBUG, style, stream)
    redactor.hide('hunt"er2')
    try:
        raise RuntimeError('refused hunt"er2')  # noqa: TRY301
    except RuntimeError:
        log.exception("login with %s", 'hunt"er2', extra={"dsn": 'hunt"er2'})
    assert "hunt" not in stream.getvalue().replace("redactor.hide", "")
    assert "***" in stream.getvalue()


def test_an_event_is_a_line_with_its_destination(text: io.StringIO) -> None:
    log.warning("starts\nagain\x1b[0m", extra={"destination": "orders"})
    (line,) = text.getvalue().splitlines()
    assert line.endswith(r"WARNING orders: starts | again\x1b[0m")


def test_the_destination_is_that_of_the_running_code(text: io.StringIO) -> None:
    token = current_destination.set("orders")
    log.info("runs")
    current_destination.reset(token)
    log.info("runs")
    first, second = text.getvalue().splitlines()
    assert first.endswith("INFO    orders: runs")
    assert second.endswith("INFO    runs")


def test_an_expected_error_is_a_line_and_a_fault_shows_its_traceback(text: io.StringIO) -> None:
    for error in (SourceError("gone away"), KeyError("x")):
        log.error("failed", exc_info=error)
    first, second, *trace = text.getvalue().splitlines()
    assert first.endswith("failed: gone away")
    assert second.endswith("failed: 'x'")
    assert trace == ["    KeyError: 'x'"]


def test_json_has_the_fields_of_the_event(events: Any) -> None:
    log.info("read %d files", 3, extra={"destination": "orders", "files": 3, "path": "a/b"})
    (event,) = events()
    assert event.pop("time").endswith("+00:00")
    assert event == {
        "level": "INFO",
        "logger": "sluice.test",
        "destination": "orders",
        "message": "read 3 files",
        "files": 3,
        "path": "a/b",
    }


def test_json_keeps_a_traceback_on_its_line(events: Any) -> None:
    try:
        raise ValueError("x")  # noqa: TRY301
    except ValueError:
        log.exception("failed")
    (event,) = events()
    assert event["error"] == "ValueError: x"
    assert "Traceback" in event["traceback"]
    assert "destination" not in event


def test_libraries_are_quiet_below_warnings(text: io.StringIO) -> None:
    logging.getLogger("kazoo").info("chatter")
    logging.getLogger("kazoo").warning("trouble")
    (line,) = text.getvalue().splitlines()
    assert line.endswith("trouble")


def test_a_log_outside_a_terminal_has_no_colours(text: io.StringIO) -> None:
    log.error("trouble")
    assert "trouble" in text.getvalue()
    assert "\x1b" not in text.getvalue()


EVIL = "a\n2026-01-01 00:00:00.000 ERROR b: forged\x1b[2J\x9b2J\x85\u2028\u202ec"


@pytest.mark.parametrize("style", LogFormat)
def test_what_others_choose_forges_no_line_and_drives_no_terminal(style: LogFormat) -> None:
    stream = io.StringIO()
    configure_logging(LogLevel.INFO, style, stream)
    log.warning("read %s", EVIL, extra={"destination": EVIL, "client": EVIL})
    written = stream.getvalue()
    assert len(written.splitlines()) == 1
    assert written.rstrip("\n").isprintable()
    if style is LogFormat.JSON:
        event = json.loads(written)
        assert (event["message"], event["destination"], event["client"]) == (f"read {EVIL}", EVIL, EVIL)


def test_a_traceback_drives_no_terminal(text: io.StringIO) -> None:
    try:
        raise ValueError(EVIL)  # noqa: TRY301
    except ValueError:
        log.exception("failed")
    head, *trace = text.getvalue().split("\n")[:-1]
    assert all(it.startswith("    ") for it in trace)
    assert all(it.isprintable() for it in (head, *trace))


def test_one_line_spells_out_what_would_break_it() -> None:
    assert one_line("a\r\n\n b\tc\u2028d") == r"a | b\tc | d"
    assert one_line("a\x85b\x00") == r"a | b\x00"
