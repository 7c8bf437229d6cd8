"""The command line, as far as it needs no server: arguments, exit statuses, errors of one line, tokens, users."""

import argparse
import contextlib
import io
import json
import re
import shlex
import signal
import socket
import ssl
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from importlib import import_module
from pathlib import Path

import pytest

from sluice.protocol.errors import ConfigError, SourceError
from sluice.server.cli import cluster, spark
from sluice.server.cli.command import MODULES, argument_parser, main
from sluice.server.credentials import Credentials, Grant, Scope

SOURCE = "canal.instance.master.address = 127.0.0.1:1\ncanal.instance.dbUsername = cdc\n"

Sluice = Callable[..., tuple[int, str, str]]


@pytest.fixture(autouse=True)
def restored_signals() -> Iterator[None]:
    handler = signal.getsignal(signal.SIGTERM)
    yield
    signal.signal(signal.SIGTERM, handler)


@pytest.fixture
def sluice(capsys: pytest.CaptureFixture[str]) -> Sluice:
    """Runs a command; gives its exit status and what it wrote to standard output and standard error."""

    def run(*arguments: str) -> tuple[int, str, str]:
        with pytest.raises(SystemExit) as exit_:
            main(arguments)
        written = capsys.readouterr()
        code = exit_.value.code or 0
        assert isinstance(code, int)
        return code, written.out, written.err

    return run


@pytest.fixture
def conf(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A conf folder whose source is not served."""
    (tmp_path / "example").mkdir()
    (tmp_path / "canal.properties").write_text("canal.destinations = example\n")
    (tmp_path / "example" / "instance.properties").write_text(SOURCE)
    monkeypatch.setenv("SLUICE_CONF", str(tmp_path))
    return tmp_path


def commands(parser: argparse.ArgumentParser, *path: str) -> Iterator[tuple[str, ...]]:
    """All commands that do something."""
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            for name, below in action.choices.items():
                yield from commands(below, *path, name)
            return
    yield path


COMMANDS = list(commands(argument_parser()))


@pytest.mark.parametrize("command", COMMANDS, ids=" ".join)
def test_the_help_of_a_command_explains_it_with_examples_that_parse(sluice: Sluice, command: tuple[str, ...]) -> None:
    status, text, _ = sluice(*command, "--help")
    assert status == 0
    examples = re.findall(
        r"^  (?:\w+=\S+ )*sluice (.*?)(?: +#.*| [|>].*)?$", text.partition("examples:")[2], re.MULTILINE
    )
    assert examples
    for example in examples:
        assert example.startswith(" ".join(command))
        options = argument_parser().parse_args(shlex.split(example))
        assert callable(options.run)


def test_the_help_names_every_command_and_the_exit_statuses(sluice: Sluice) -> None:
    _, text, _ = sluice("--help")
    assert {command[0] for command in COMMANDS} <= set(re.findall(r"^    (\w+)\s", text, re.MULTILINE))
    assert "exit status:" in text


@pytest.mark.parametrize(
    "arguments", [(), ("frobnicate",), ("token",), ("ack", "d", "1"), ("tail", "d", "--limit", "0")]
)
def test_invalid_arguments_are_status_2(sluice: Sluice, arguments: tuple[str, ...]) -> None:
    status, _, error = sluice(*arguments)
    assert status == 2
    assert "usage: sluice" in error


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        (("serve", "--conf", "/nowhere"), "does not exist; name the folder that holds canal.properties with --conf"),
        (("check", "--conf", "/nowhere"), "does not exist"),
        (("filter", "try", "x", "--mysql", "db"), "has to be USER:PASSWORD@HOST:PORT"),
        (("filter", "try", "x", "--mysql", "u:p@db:x"), "has to be USER:PASSWORD@HOST:PORT"),
        (("filter", "try", "(", "--mysql", "u@127.0.0.1:1"), "cannot be a filter"),
        (("filter", "try", "x", "--mysql", "u@db?sslmode=REQUIRED"), "--mysql: sslmode=REQUIRED: sslMode (DISABLED, "),
        (("filter", "try", "x", "--mysql", "u@db?sslCa=ca.pem"), "sslMode is DISABLED; set it to VERIFY_CA"),
        (("token", "revoke", "0123"), "there is no token '0123'; sluice token list shows the ids"),
        (
            ("status", "--url", "127.0.0.1:1"),
            "'127.0.0.1:1' is not the URL of a server; write http://host:port or https://",
        ),
        (("status", "--ca", "/nowhere.pem"), "cannot load the authority /nowhere.pem: No such file or directory; name"),
        (("user", "remove", "ops"), "there is no user 'ops'; sluice user list shows them"),
    ],
)
def test_a_configuration_error_is_a_line_and_status_2(
    sluice: Sluice, conf: Path, arguments: tuple[str, ...], complaint: str
) -> None:
    status, _, error = sluice(*arguments)
    assert status == 2
    assert len(error.splitlines()) == 1
    assert complaint in error


@pytest.mark.parametrize(
    "arguments",
    [("status",), ("tail", "example"), ("ack", "example", "1001", "--batch", "1"), ("rollback", "example", "1001")],
)
def test_a_server_that_does_not_answer_is_a_line_and_status_3(sluice: Sluice, arguments: tuple[str, ...]) -> None:
    status, _, error = sluice(*arguments, "--url", "http://127.0.0.1:1")
    assert status == 3
    assert error == (
        "sluice: no server answers at http://127.0.0.1:1: Connection refused; start one with sluice serve, or name it"
        " with --url\n"
    )


@pytest.mark.parametrize(
    ("scheme", "answer", "complaint"),
    [
        ("https", None, "is not trusted: unable to get local issuer certificate; name the file of the authority that"),
        ("https", b"HTTP/1.1 400 Bad Request\r\n\r\n", "does not speak TLS: WRONG_VERSION_NUMBER; if it has no certif"),
        ("http", b"", "ended the connection without an answer; if it has a certificate, its URL is https://"),
    ],
)
def test_tls_on_one_side_only_and_an_unknown_authority_say_so(
    sluice: Sluice, authority: Path, scheme: str, answer: bytes | None, complaint: str
) -> None:
    tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    tls.load_cert_chain(authority / "server.pem", authority / "server-key.pem")
    with socket.create_server(("127.0.0.1", 0)) as listening:

        def serve() -> None:
            connection, _ = listening.accept()
            with connection:
                if answer is not None:
                    connection.recv(1 << 16)
                    connection.sendall(answer)
                    return
                with contextlib.suppress(ssl.SSLError, OSError):  # the client leaves
                    tls.wrap_socket(connection, server_side=True)

        server = threading.Thread(target=serve)
        server.start()
        status, _, error = sluice("status", "--url", f"{scheme}://localhost:{listening.getsockname()[1]}")
        server.join()
    assert status == 3
    assert complaint in error


def test_a_source_that_does_not_answer_is_a_line_and_status_3(sluice: Sluice, conf: Path) -> None:
    status, _, error = sluice("filter", "try", r"a\..*")
    assert status == 3
    assert error.startswith("sluice: cannot log in to 127.0.0.1:1 as 'cdc': ")
    assert error.endswith("; check canal.instance.master.address, and whether the server runs there\n")
    assert len(error.splitlines()) == 1


def test_the_password_of_a_command_line_never_shows(sluice: Sluice) -> None:
    _, text, error = sluice("filter", "try", r"a\..*", "--mysql", "cdc:hunter2@127.0.0.1:1")
    assert "cannot log in to 127.0.0.1:1 as 'cdc'" in error
    assert "hunter2" not in text + error


def test_spark_asks_the_server_before_it_is_started(sluice: Sluice, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(spark, "RETRY", 0.0)
    status, _, error = sluice(*SPARK, "--url", "http://127.0.0.1:1")
    assert status == 3
    assert "Connection refused" in error
    assert len(error.splitlines()) == 1
    status, _, error = sluice(*SPARK, "--option", "fitler=x")
    assert (status, error) == (2, "sluice: unknown option 'fitler': did you mean filter?\n")


@pytest.mark.parametrize(
    ("text", "kind", "cause"),
    [
        (
            """[STREAM_FAILED] Query terminated with exception: Traceback (most recent call last):
  File "client.py", line 1, in x
    raise error
sluice.protocol.errors.PurgedError: it is gone.
Take a new snapshot.
 SQLSTATE: 38000
\tat org.X.y(X.z:1)""",
            SourceError,
            "it is gone.\nTake a new snapshot.",
        ),
        ("E\nsluice.protocol.errors.ConnectionLostError: refused", SourceError, "refused"),
        ("E\nsluice.protocol.errors.BadParameterError: option x: no", ConfigError, "option x: no"),
        ("An error occurred.\n: org.E: [NO] such thing\n\tat org.X.y(X.z:1)\n\t... 2 more\n", SourceError, None),
    ],
)
def test_the_cause_is_found_in_an_error_of_spark(text: str, kind: type[Exception], cause: str | None) -> None:
    found = spark._cause(Exception(text))
    assert type(found) is kind
    assert str(found) == (cause or "An error occurred.\n: org.E: [NO] such thing")


SPARK = ("spark", "changelog", "example", "2001", "--to", "changes", "--checkpoint", "at")


@pytest.mark.parametrize(("module", "names"), MODULES.items())
def test_each_command_is_listed_with_the_module_that_adds_it(module: str, names: tuple[str, ...]) -> None:
    commands = argparse.ArgumentParser().add_subparsers()
    import_module(f"sluice.server.cli.{module}").add_commands(commands)
    assert set(commands.choices) == set(names)


def test_a_command_imports_no_other() -> None:
    code = (
        "import sys; from sluice.server.cli.command import argument_parser; argument_parser('status');"
        " print([it for it in ('pydantic', 'sluice.server.config', 'sluice.server.cli.check') if it in sys.modules])"
    )
    assert subprocess.check_output([sys.executable, "-c", code], text=True) == "[]\n"


def test_the_help_of_a_command_needs_no_spark() -> None:
    code = (
        "import sys; from sluice.server.cli.command import argument_parser; argument_parser();"
        " print('pyspark' in sys.modules)"
    )
    assert subprocess.check_output([sys.executable, "-c", code], text=True) == "False\n"


def test_without_pyspark_the_next_step_is_said(sluice: Sluice, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("pyspark", "pyarrow"):
        monkeypatch.setitem(sys.modules, name, None)
    status, _, error = sluice(*SPARK)
    assert status == 2
    assert error == "sluice: pyspark and pyarrow not found: pip install 'sluice-cdc[spark]'\n"


def test_without_the_other_decoder_the_next_step_is_said(
    sluice: Sluice, conf: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "pymysqlreplication", None)
    status, _, error = sluice("verify", "example", "--conf", str(conf))
    assert status == 2
    assert error == "sluice: pymysqlreplication, the other decoder, not found: pip install 'sluice-cdc[verify]'\n"
    status, _, error = sluice("verify", "example", "--log", "--conf", str(conf))
    assert "there is no log" in error
    status, _, error = sluice("verify", "elsewhere", "--conf", str(conf))
    assert "elsewhere" in error


@pytest.mark.parametrize(
    ("java", "complaint"),
    [
        ("", "no java in $PATH."),
        ("""echo 'openjdk version "11.0.2" 2019-01-15' >&2""", """java is openjdk version "11.0.2" 2019-01-15."""),
        ("""echo 'java version "1.8.0_391"' >&2""", """java is java version "1.8.0_391"."""),
        ("exit 1", "java is not a Java runtime."),
    ],
)
def test_without_a_java_that_spark_runs_on_the_next_step_is_said(
    sluice: Sluice, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, java: str, complaint: str
) -> None:
    if java:
        (tmp_path / "java").write_text(f"#!/bin/sh\n{java}\n")
        (tmp_path / "java").chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.delenv("JAVA_HOME", raising=False)
    status, _, error = sluice(*SPARK)
    assert status == 2
    assert complaint in error
    assert "Spark needs Java 17 or newer: install it (" in error
    monkeypatch.setenv("JAVA_HOME", "/nowhere")
    assert "no java in /nowhere/bin, where JAVA_HOME points. Spark needs" in sluice(*SPARK)[2]


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        (("--interval", "soon"), "'soon' is not a number of seconds"),
        (("--interval", "-1"), "'-1' is not a number of seconds"),
        (("--option", "partitions"), "'partitions' has to be NAME=VALUE"),
        (("--max-rows", "0"), "'0' is not a number from 1 up"),
    ],
)
def test_invalid_arguments_of_spark_are_status_2(sluice: Sluice, arguments: tuple[str, ...], complaint: str) -> None:
    status, _, error = sluice(*SPARK, *arguments)
    assert status == 2
    assert complaint in error


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        (("--snapshot", "db1:3306"), "a database is named as mysql://user@host:port"),
        (("--snapshot", "mysql://reader:s3cret@db1"), "the password must not stand in the URL"),
        (("--snapshot", "mysql://reader@db1", "--snapshot-password-file", "/nowhere"), "the file of the password"),
        (("--snapshot-rows", "0"), "'0' is not a number from 1 up"),
    ],
)
def test_an_invalid_snapshot_is_refused_before_spark_is_started(
    sluice: Sluice, arguments: tuple[str, ...], complaint: str
) -> None:
    mirror = ("spark", "mirror", "example", "3001", "--to", "mysql://mirror@db2", "--checkpoint", "at")
    status, _, error = sluice(*mirror, *arguments)
    assert status == 2
    assert complaint in error
    assert "s3cret" not in error


def test_serve_refuses_invalid_files_before_it_starts_anything(sluice: Sluice, conf: Path) -> None:
    (conf / "example" / "instance.properties").write_text(SOURCE + "canal.instance.gtidon = x\n")
    status, _, error = sluice("serve")
    assert status == 2
    assert "example: " in error
    assert "instance.properties:3: canal.instance.gtidon: " in error


def test_serve_refuses_to_serve_nothing(sluice: Sluice, conf: Path) -> None:
    (conf / "canal.properties").write_text("")
    status, _, error = sluice("serve")
    assert status == 2
    assert "canal.destinations is empty" in error


def test_serve_says_that_the_port_is_taken(sluice: Sluice, conf: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        (conf / "canal.properties").write_text(
            f"canal.destinations = example\ncanal.port = 0\nsluice.http.port = {taken.getsockname()[1]}\n"
        )
        address = taken.getsockname()
        status, _, error = sluice("serve")
    assert status == 3
    complaint = "Address already in use; sluice.http.host and sluice.http.port choose another"
    assert f"sluice: cannot listen on 127.0.0.1:{address[1]}: {complaint}\n" in error


def test_a_certificate_that_cannot_be_used_is_named_before_anything_is_started(
    sluice: Sluice, conf: Path, authority: Path
) -> None:
    text = "canal.destinations = example\nsluice.http.tlsCert = {}\nsluice.http.tlsKey = {}\n"
    cert, locked = authority / "server.pem", conf / "locked.pem"
    plain = str(authority / "server-key.pem")
    subprocess.run(["openssl", "pkey", "-in", plain, "-aes256", "-passout", "pass:abcd", "-out", locked], check=True)
    for key, complaint in (
        (locked, f"sluice.http.tlsKey: {locked} is encrypted, and nobody is asked for its password: store the key"),
        (conf / "nowhere.pem", f"sluice.http.tlsKey: cannot read {conf}/nowhere.pem: No such file or directory"),
        (cert, f"sluice.http.tlsCert {cert} and sluice.http.tlsKey {cert} are not a certificate and its key in PEM: "),
    ):
        (conf / "canal.properties").write_text(text.format(cert, key))
        status, _, error = sluice("serve")
        assert (status, error.partition(complaint)[0]) == (2, "sluice: ")
        assert not list(conf.glob("example/meta*"))
        status, found, _ = sluice("check")
        assert status == 1
        assert f"FAIL HTTP API: {complaint}" in found


def test_check_says_all_that_is_wrong_at_once(sluice: Sluice, conf: Path) -> None:
    (conf / "canal.properties").write_text(
        "canal.destinations = example, other\nsluice.http.host = 0.0.0.0\nfoo = 1\ncanal.ip = ::\n"
    )
    status, text, _ = sluice("check")
    assert status == 1
    assert "canal.properties:3: foo is unknown" in text
    assert "FAIL HTTP API: Refusing to listen on '0.0.0.0'" in text
    assert "FAIL Canal's port: Refusing to listen on '::' without canal.passwd. Set canal.user and" in text
    assert "FAIL example: cannot log in to 127.0.0.1:1" in text
    assert "FAIL other: canal.instance.master.address: has to be given" in text


def test_check_asks_zookeeper(sluice: Sluice, conf: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cluster, "LONGEST", 0.1)
    (conf / "canal.properties").write_text("canal.destinations = example\ncanal.zkServers = 127.0.0.1:1\n")
    status, text, _ = sluice("check")
    assert status == 1
    assert "FAIL ZooKeeper: ZooKeeper (127.0.0.1:1) has not answered for 0.1 s" in text


@pytest.mark.parametrize("command", [("check",), ("migrate", "--from")])
def test_a_zookeeper_that_is_silent_is_asked_once(
    sluice: Sluice, conf: Path, monkeypatch: pytest.MonkeyPatch, command: tuple[str, ...]
) -> None:
    monkeypatch.setattr(cluster, "LONGEST", 0.1)
    names = ("example", "other", "third")
    shared = "canal.instance.global.spring.xml = classpath:spring/default-instance.xml\n"
    (conf / "canal.properties").write_text(
        f"canal.destinations = {', '.join(names)}\ncanal.zkServers = 127.0.0.1:1\n{shared}"
    )
    for name in names:
        (conf / name).mkdir(exist_ok=True)
        (conf / name / "instance.properties").write_text(SOURCE)
    status, text, _ = sluice(*command, *([str(conf)] if command[0] == "migrate" else []))
    assert status == 1
    assert text.count("has not answered for 0.1 s") == 1
    for name in names:
        assert f"FAIL {name}: not examined: its cursors are in ZooKeeper, which does not answer" in text


def test_check_takes_names_of_destinations(sluice: Sluice, conf: Path) -> None:
    status, text, _ = sluice("check", "nowhere")
    assert status == 1
    assert "FAIL nowhere: there is no destination 'nowhere'" in text
    assert "cannot log in" not in text


def test_a_token_is_shown_once_and_kept_as_a_hash(sluice: Sluice, conf: Path) -> None:
    status, text, error = sluice("token", "create", "--name", "billing", "--destination", "a", "--destination", "b")
    assert status == 0
    token = text.strip()
    assert token.startswith("sluice_")
    assert "kept nowhere else" in error
    assert token.split("_", 2)[2] not in (conf / "credentials.json").read_text()
    granted = Credentials(conf / "credentials.json").authenticate(token)
    assert (granted.name, granted.scope, granted.destinations) == ("billing", "read", ("a", "b"))
    assert granted.clients == ()


def test_a_token_names_its_clients_or_is_limited_later(sluice: Sluice, conf: Path) -> None:
    credentials = Credentials(conf / "credentials.json")

    def clients(text: str) -> object:
        return Credentials(conf / "credentials.json").authenticate(text).clients

    def shown(identity: str) -> str:
        lines = sluice("token", "list")[1].split(identity)[1].splitlines()
        return "".join(line.strip() for line in lines)

    text = sluice("token", "create", "--name", "billing", "--clients=-5--1,1000-1099, 2001")[1].strip()
    assert clients(text) == ((-5, -1), (1000, 1099), (2001, 2001))
    assert "1000" in shown(text.split("_")[1])
    before, admin = credentials.issue("before", Grant()), credentials.issue("ops", Grant(scope=Scope.ADMIN))
    credentials.set_password("of before", "correct horse", Grant())
    credentials.login("of before", "correct horse")
    notes = [line for line in sluice("check")[1].splitlines() if "reaches every client" in line]
    assert len(notes) == 2
    assert f"token {before.id} (before)" in notes[0]
    assert f"sluice token limit {before.id}" in notes[0]
    assert "user of before" in notes[1]
    assert sluice("token", "limit", before.id, "--clients", "7")[0] == 0
    assert clients(before.text) == ((7, 7),)
    assert sluice("token", "limit", before.id)[0] == 0
    assert clients(before.text) == ()
    assert "its own" in shown(before.id)
    assert before.id not in sluice("check")[1]
    assert "an administrator's" in sluice("token", "limit", admin.id)[2]
    assert "there is no token 'x'" in sluice("token", "limit", "x")[2]
    both = sluice("token", "create", "--name", "ops", "--admin", "--clients", "1")
    assert both[0] == 2
    assert "not both" in both[2]


@pytest.mark.parametrize("ids", ["", "a", "1-", "9-1", "40000", "1,,2", "-40000"])
def test_what_names_no_clients_is_refused(sluice: Sluice, conf: Path, ids: str) -> None:
    status, _, error = sluice("token", "create", "--name", "billing", f"--clients={ids}")
    assert status == 2
    assert "is neither a client id nor a range of them" in error


def test_making_a_token_or_a_user_says_that_canals_port_is_open(
    sluice: Sluice, conf: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    note = "note: Canal's port 127.0.0.1:11111 asks for no password"
    assert note in sluice("token", "create", "--name", "billing")[2]
    monkeypatch.setattr("sys.stdin", io.StringIO("correct horse\n"))
    assert note in sluice("user", "set", "ops")[2]
    assert re.search(r"note Canal's port: .* asks for no password", sluice("check")[1])
    (conf / "canal.properties").write_text("canal.destinations = example\ncanal.withoutNetty = true\n")
    assert "Canal's port" not in sluice("token", "create", "--name", "billing")[2]
    assert "Canal's port" not in sluice("check")[1]


def test_tokens_are_listed_and_revoked(sluice: Sluice, conf: Path) -> None:
    assert sluice("token", "list")[1] == "no tokens; make one with sluice token create\n"
    token = sluice("token", "create", "--name", "ops", "--admin", "--days", "3")[1].strip()
    identity = token.split("_")[1]
    (line,) = [line for line in sluice("token", "list")[1].splitlines() if line.startswith(identity)]
    assert re.search(r"ops +admin +\* +all +\d{4}-\d\d-\d\d", line)
    assert "never" not in line
    assert sluice("token", "revoke", identity)[0] == 0
    assert json.loads((conf / "credentials.json").read_text())["tokens"] == {}


def test_a_user_is_added_with_a_password_from_the_standard_input_and_removed(
    sluice: Sluice, conf: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert sluice("user", "list")[1] == "no users; add one with sluice user set\n"
    monkeypatch.setattr("sys.stdin", io.StringIO("correct horse\n"))
    status, text, _ = sluice("user", "set", "ops", "--destination", "example")
    assert status == 0
    assert "correct horse" not in text + (conf / "credentials.json").read_text()
    bought = Credentials(conf / "credentials.json").login("ops", "correct horse").token
    assert (bought.name, bought.scope, bought.destinations) == ("ops", "read", ("example",))
    assert re.search(r"^ops +read +example +its own *$", sluice("user", "list")[1], re.MULTILINE)
    assert sluice("user", "remove", "ops")[0] == 0
    assert json.loads((conf / "credentials.json").read_text())["users"] == {}


def test_an_empty_password_is_refused(sluice: Sluice, conf: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.stdin", io.StringIO("\n"))
    status, _, error = sluice("user", "set", "ops")
    assert (status, error) == (2, "sluice: the password is empty; type one, or send it to the standard input\n")
    assert not (conf / "credentials.json").exists()


@pytest.mark.parametrize("typed", ["sluice sta", "sluice token cr", "sluice tail example --fr"])
def test_bash_completes_commands_and_options(sluice: Sluice, typed: str, tmp_path: Path) -> None:
    status, script, _ = sluice("completion", "bash")
    assert status == 0
    (tmp_path / "script").write_text(script)
    words = typed.split()
    ask = f"""
source {tmp_path}/script
COMP_WORDS=({typed}) COMP_CWORD={len(words) - 1} COMP_LINE='{typed}' COMP_POINT={len(typed)}
$(complete -p sluice | sed 's/.*-F \\([^ ]*\\) .*/\\1/') sluice {words[-1]} {words[-2]}
echo "${{COMPREPLY[@]}}"
"""
    completed = subprocess.run(["bash", "-c", ask], check=True, capture_output=True, text=True).stdout.split()
    assert completed == {"sta": ["status"], "cr": ["create"], "--fr": ["--from"]}[words[-1]]


@pytest.mark.parametrize("shell", ["zsh", "tcsh"])
def test_other_shells_are_told_too(sluice: Sluice, shell: str) -> None:
    status, script, _ = sluice("completion", shell)
    assert status == 0
    assert "quarantine" in script
