"""Kinds that other packages bring: which are found, and what is said of those that cannot be used."""

import contextlib
import sys
import threading
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from sluice.instance import plugins
from sluice.instance.plugins import FORMS, OUTPUTS, SOURCES, PluginError, installed, load
from sluice.protocol.errors import ConfigError
from sluice.server.cli.command import argument_parser
from sluice.server.config import Configuration
from sluice.server.config.warnings import find_warnings
from sluice.server.logging import redactor
from sluice.server.outputs.api import Batch, DeliveryError, OutputSettings
from sluice.server.outputs.plugin import target as target_module
from sluice.server.outputs.plugin import worker
from sluice.server.outputs.plugin.target import PluginTarget
from sluice.server.outputs.settings import Output
from tests.plugins import EXAMPLE, install, on_path
from tests.waiting import eventually

KIND = "class Kind:\n    api = 1\n"
BASE = """
canal.instance.master.address = 127.0.0.1:3306
canal.instance.dbUsername = cdc
sluice.outputs = copy
"""


def configuration(folder: Path, own: str) -> Configuration:
    """Two destinations, of which one has an output that is configured so."""
    for name, text in (("shop", own), ("other", "")):
        (folder / name).mkdir(parents=True, exist_ok=True)
        lines = BASE + text if name == "shop" else BASE.replace("sluice.outputs = copy", "")
        (folder / name / "instance.properties").write_text(lines)
    (folder / "canal.properties").write_text("canal.destinations = shop,other\nkafka.bootstrap.servers = here:1\n")
    return Configuration(folder, {})


def mistake(folder: Path, own: str) -> str:
    """What keeps the output from running, while the other destination is served."""
    found = configuration(folder, own)
    found.check()
    assert found.outputs("other") == []
    with pytest.raises(PluginError) as raised:
        found.outputs("shop")
    return str(raised.value)


def test_what_an_entry_point_names_is_loaded_when_it_is_asked_for(tmp_path: Path) -> None:
    install(tmp_path, "good", {OUTPUTS: {"good": "good:Kind"}}, KIND)
    install(tmp_path, "bad", {OUTPUTS: {"bad": "bad:Kind"}}, "raise AssertionError")
    with on_path(tmp_path):
        assert load(OUTPUTS, "good").__module__ == "good"
        with pytest.raises(ConfigError, match=r"no installed package brings 'good' \(entry point sluice.forms\)"):
            load(FORMS, "good")


@pytest.mark.parametrize(
    ("module", "text"),
    [
        ("import no_such_module", "cannot be imported: ModuleNotFoundError: No module named"),
        ("raise SystemExit(3)", "cannot be imported: SystemExit: 3"),
        ("Other = 1", "cannot be imported: AttributeError: module"),
        ("class Kind:\n    api = 2", "is written for version 2 of the interface sluice.outputs, and this Sluice has"),
        ("class Kind:\n    pass", "is written for version None of the interface"),
        ("class Kind:\n    api = True", "is written for version True of the interface"),
        (KIND, "output pigeon: its class has no method open, send, abandon, close, check: see `OutputKind`"),
    ],
)
def test_a_package_that_cannot_be_used_costs_its_destination_only(module: str, text: str, tmp_path: Path) -> None:
    install(tmp_path, "nest", {OUTPUTS: {"pigeon": "nest:Kind"}}, module)
    with on_path(tmp_path):
        found = mistake(tmp_path / "conf", "sluice.output.copy.type = pigeon\n")
    assert found.startswith(f"{tmp_path}/conf/shop/instance.properties:5: sluice.output.copy.type has to be kafka")
    assert text in found
    if "no method" not in text:
        assert f"package nest 1.0, sluice.outputs: pigeon = nest:Kind ({tmp_path}/nest-1.0.dist-info/" in found


def test_a_form_that_cannot_be_used_is_said_with_its_key(tmp_path: Path) -> None:
    install(tmp_path, "nest", {FORMS: {"dove": "nest:Kind"}}, KIND)
    with on_path(tmp_path):
        found = mistake(tmp_path / "conf", "sluice.output.copy.format = dove\n")
    assert found.startswith("sluice.output.copy.format has to be flat or canal or tdsql or tidb, or what a package")
    assert "form dove has no `records`" in found


def checked(folder: Path, lines: str, capsys: pytest.CaptureFixture[str]) -> str:
    """What `sluice check` finds wrong with a destination that reads lines of JSON."""
    (folder / "lines").mkdir(parents=True)
    (folder / "canal.properties").write_text("canal.destinations = lines\n")
    (folder / "lines" / "instance.properties").write_text("sluice.instance.timeZone = UTC\n" + lines)
    (folder / "changes.jsonl").touch()
    options = argument_parser("check").parse_args(["check", "--conf", str(folder)])
    assert options.run(options) == 1
    (found,) = [line for line in capsys.readouterr().out.splitlines() if line.startswith("FAIL")]
    return found


@pytest.mark.parametrize(
    ("group", "lines"),
    [
        (SOURCES, "sluice.instance.source = nest\n"),
        (OUTPUTS, "sluice.instance.source = json-lines\nsluice.outputs = a\nsluice.output.a.type = nest\n"),
        (FORMS, "sluice.instance.source = json-lines\nsluice.outputs = a\nsluice.output.a.format = nest\n"),
    ],
)
def test_a_check_reports_a_package_that_cannot_be_used(
    group: str, lines: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    install(tmp_path, "nest", {group: {"nest": "nest:Kind"}}, "class Kind:\n    api = 7")
    install(tmp_path, "example", {SOURCES: {"json-lines": "sluice_example.source:JsonLines"}})
    with on_path(tmp_path, EXAMPLE):
        found = checked(tmp_path / "conf", lines, capsys)
    assert f"package nest 1.0, {group}: nest = nest:Kind ({tmp_path}/nest-1.0.dist-info/entry_points.txt)" in found
    assert f"is written for version 7 of the interface {group}, and this Sluice has version 1: install a" in found
    key = {SOURCES: "sluice.instance.source", OUTPUTS: "sluice.output.a.type", FORMS: "sluice.output.a.format"}[group]
    assert key in found


@pytest.mark.parametrize("form", ["tdsql", "tidb"])
def test_a_form_that_depends_on_more_than_a_batch_is_for_kafka_only(
    form: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    install(tmp_path, "example", {SOURCES: {"json-lines": "sluice_example.source:JsonLines"}})
    install(tmp_path, "written", {OUTPUTS: {"journal": "sluice_example.output:Journal"}})
    lines = f"sluice.instance.source = json-lines\nsluice.outputs = a\nsluice.output.a.format = {form}\n"
    with on_path(tmp_path, EXAMPLE):
        found = checked(tmp_path / "conf", lines + "sluice.output.a.type = journal\n", capsys)
    assert f"output a of lines: format {form} is for outputs to Kafka only" in found


def test_an_import_that_takes_long_is_waited_for_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(plugins, "PATIENCE", 0.1)
    module = "import threading\nfree = threading.Event()\nfree.wait(60)\n" + KIND
    install(tmp_path, "slow", {OUTPUTS: {"slow": "slow:Kind"}}, module)
    with on_path(tmp_path):
        with pytest.raises(PluginError, match=r"slow = slow:Kind .* is still being imported after 0.1 s"):
            load(OUTPUTS, "slow")
        monkeypatch.setattr(plugins, "PATIENCE", 1000)
        with pytest.raises(PluginError, match="is still being imported"):
            load(OUTPUTS, "slow")
        running = plugins._imports[OUTPUTS, "slow"]
        sys.modules["slow"].free.set()
        running.thread.join()
        assert load(OUTPUTS, "slow").__module__ == "slow"


def test_all_that_ask_for_a_package_wait_for_its_import(tmp_path: Path) -> None:
    install(tmp_path, "slow", {OUTPUTS: {"slow": "slow:Kind"}}, "import time\ntime.sleep(0.5)\n" + KIND)
    with on_path(tmp_path), ThreadPoolExecutor(2) as asking:
        first, second = asking.map(load, [OUTPUTS] * 2, ["slow"] * 2)
    assert first is second


def test_a_name_that_several_packages_bring_is_nobodys(tmp_path: Path) -> None:
    install(tmp_path, "one", {OUTPUTS: {"same": "one:Kind", "kafka": "one:Kind"}}, KIND)
    install(tmp_path, "two", {OUTPUTS: {"same": "two:Kind"}}, KIND)
    with on_path(tmp_path):
        with pytest.raises(PluginError, match=r"package one 1.0, .* package two 1.0, .* brings that name, too"):
            load(OUTPUTS, "same")
        taken = [it for it in installed({OUTPUTS: ["kafka"]}) if it.name == "kafka"]
    assert [it.trouble for it in taken] == ["cannot be used: Sluice has a kind of that name itself"]


def test_metadata_is_not_trusted(tmp_path: Path) -> None:
    install(tmp_path, "huge", {OUTPUTS: {f"k{number}": "huge:Kind" for number in range(10_000)}})
    install(tmp_path, "odd", {OUTPUTS: {"A B": "odd:Kind", "long": "x" * 10_000, "shell": "os:system('x')"}})
    install(tmp_path, "broken", {OUTPUTS: {"": ""}})
    (tmp_path / "folder-1.0.dist-info" / "entry_points.txt").mkdir(parents=True)
    with on_path(tmp_path):
        found = {it.package: it for it in installed({}) if not it.group}
        assert set(found) == {"huge 1.0", "broken 1.0", "folder 1.0"}
        assert found["folder 1.0"].trouble == "cannot be read: Is a directory"
        assert found["huge 1.0"].trouble == "cannot be read: it has more than 65536 bytes"
        odd = [it for it in installed({}) if it.package == "odd 1.0"]
        assert len(odd) == 3
        assert all(it.trouble.startswith("cannot be used: it has to be NAME = MODULE:CLASS") for it in odd)
        assert max(len(str(it)) for it in odd) < 1000
        with pytest.raises(
            ConfigError, match=r"no installed package brings 'k1' .* package huge 1.0, .*cannot be read"
        ):
            load(OUTPUTS, "k1")


@pytest.mark.parametrize(
    ("declared", "text"),
    [
        ('x: str = setting("canal.instance.x", "")', "declares canal.instance.x: its own keys begin with"),
        ('x: str = setting("sluice.output.<name>.filter", "")', "declares a key twice"),
        ('filter: int = setting("sluice.output.<name>.filter", 1)', "declares filter"),
    ],
)
def test_a_package_declares_keys_of_its_own_only(declared: str, text: str, tmp_path: Path) -> None:
    module = (
        "from sluice.server.outputs.api import OutputSettings, setting\n"
        f"class Mine(OutputSettings):\n    {declared}\n"
        "class Kind:\n    api, settings, format, exactly_once = 1, Mine, 'protobuf', False\n"
        "    open = send = abandon = close = check = print\n"
    )
    install(tmp_path, "nest", {OUTPUTS: {"pigeon": "nest:Kind"}}, module)
    with on_path(tmp_path):
        assert text in mistake(tmp_path / "conf", "sluice.output.copy.type = pigeon\n")


def test_the_keys_of_a_package_are_read_and_checked_as_others(tmp_path: Path) -> None:
    install(tmp_path, "example", {OUTPUTS: {"journal": "sluice_example.output:Journal"}})
    own = "sluice.output.copy.type = journal\nsluice.output.copy.fil = x\nsluice.output.copy.format = flat\n"
    with on_path(tmp_path, EXAMPLE):
        configuration(tmp_path / "conf", own)
        environ = {"SLUICE_OUTPUT_COPY_FILE": "there", "SLUICE_OUTPUT_COPY_FLIE": "x"}
        found = Configuration(tmp_path / "conf", environ)
        (output,) = found.outputs("shop")
        assert output.settings.file == tmp_path / "conf" / "there"  # type: ignore[attr-defined]
        warnings = "\n".join(find_warnings(found))
    assert "sluice.output.copy.fil is unknown; is sluice.output.copy.file meant?" in warnings
    assert "environment variable SLUICE_OUTPUT_COPY_FLIE is unknown; is SLUICE_OUTPUT_COPY_FILE meant?" in warnings


def test_the_secrets_of_an_output_are_hidden(tmp_path: Path) -> None:
    module = (
        "from pydantic import SecretStr\n"
        "from sluice.server.outputs.api import OutputSettings, setting\n"
        "class Mine(OutputSettings):\n    code: SecretStr = setting('sluice.output.<name>.code', SecretStr(''))\n"
        "class Kind:\n    api, settings, format, exactly_once = 1, Mine, 'protobuf', False\n"
        "    open = send = abandon = close = check = print\n"
    )
    install(tmp_path, "nest", {OUTPUTS: {"pigeon": "nest:Kind"}}, module)
    with on_path(tmp_path):
        lines = "sluice.output.copy.type = pigeon\nsluice.output.copy.code = roucoulement\n"
        (output,) = configuration(tmp_path / "conf", lines).outputs("shop")
    assert output.settings.secrets() == ["roucoulement"]
    assert "roucoulement" not in redactor("nobody answers at nest?code=roucoulement")


def test_what_is_installed_is_listed_without_an_import(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    install(tmp_path, "good", {OUTPUTS: {"good": "good:Kind"}}, "raise AssertionError")
    options = argument_parser("plugins").parse_args(["plugins"])
    with on_path(tmp_path):
        assert options.run(options) == 0
        install(tmp_path, "bad", {FORMS: {"tidb": "bad:Kind"}}, "raise AssertionError")
        assert options.run(options) == 1
    good = (
        f"ok   sluice.outputs good: package good 1.0, sluice.outputs: good = good:Kind ({tmp_path}/good-1.0.dist-info"
    )
    once, bad, again = capsys.readouterr().out.splitlines()
    assert once == again
    assert once.startswith(good)
    assert bad.startswith("FAIL sluice.forms tidb: package bad 1.0")
    assert bad.endswith("cannot be used: Sluice has a kind of that name itself")


class Hanging:
    """An output whose sends wait for ever."""

    api, settings, format, exactly_once = 1, OutputSettings, "protobuf", False

    def __init__(self, settings: OutputSettings, identity: str) -> None:
        self.free = threading.Event()

    def open(self, epoch: int) -> None:
        """Nothing to connect."""

    def send(self, batches: Sequence[Batch], place: str) -> None:
        self.free.wait(60)

    def abandon(self) -> None:
        self.free.wait(60)

    def check(self) -> str:
        self.free.wait(60)
        return ""

    close = abandon


def test_a_call_that_hangs_is_left_when_it_is_abandoned(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(worker, "GRACE", 0.1)
    target = PluginTarget(Output("shop", "copy", OutputSettings(type="hanging"), shared=False), Hanging)
    target.open("", "", 1)
    threading.Timer(0.1, target.abandon).start()
    with pytest.raises(DeliveryError, match=r"has not ended 0.1 s after it was abandoned"):
        target.send((), None)
    target.close()
    with pytest.raises(DeliveryError, match="still goes on"):
        target.open("", "", 1)
    monkeypatch.setattr(target_module, "ASKING", 0.1)
    with pytest.raises(DeliveryError, match="has not ended"):
        PluginTarget(Output("shop", "copy", OutputSettings(type="hanging"), shared=False), Hanging).check()
    target._made.free.set()  # type: ignore[attr-defined]
    eventually(lambda: target._worker is not None and target._worker.has_ended)
    target.open("", "", 1)
    target.close()


class Waiting(Hanging):
    """An output that waits when it is abandoned."""

    def close(self) -> None:
        """Nothing to disconnect."""


def test_an_output_that_is_being_abandoned_is_not_opened() -> None:
    target = PluginTarget(Output("shop", "copy", OutputSettings(type="waiting"), shared=False), Waiting)
    before = threading.active_count()
    for _ in range(5):
        with contextlib.suppress(DeliveryError):
            target.open("", "", 1)
        target.abandon()
        target.close()
    assert threading.active_count() <= before + 2  # the one that abandons, and one that is about to end
    with pytest.raises(DeliveryError, match="its package still goes on abandoning"):
        target.open("", "", 1)
    target._made.free.set()  # type: ignore[attr-defined]
    eventually(lambda: target._abandoning is not None and not target._abandoning.is_alive())
    target.open("", "", 1)
    target.close()


class Staying(Hanging):
    """An output that can be asked, and does not close."""

    def check(self) -> str:
        return "it is there"


def test_a_check_ends_although_the_output_does_not_close(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(worker, "GRACE", 0.1)
    monkeypatch.setattr(target_module, "ASKING", 0.1)
    target = PluginTarget(Output("shop", "copy", OutputSettings(type="staying"), shared=False), Staying)
    begin = time.monotonic()
    assert target.check().startswith("it is there")
    assert time.monotonic() - begin < 30  # it would close after 60
    target._made.free.set()  # type: ignore[attr-defined]
