"""`sluice init`: a configuration to begin with."""

import stat
from pathlib import Path

import pytest

from sluice.server.cli.command import main
from sluice.server.config import Configuration

CONF = Path(__file__).parents[3] / "conf"


def init(*arguments: str) -> int | str | None:
    """Run the command; return its exit status."""
    with pytest.raises(SystemExit) as exit_:
        main(("init", *arguments))
    return exit_.value.code


def test_without_a_word_it_is_what_the_documentation_begins_with(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert init(str(tmp_path / "conf")) == 0
    for name in ("canal.properties", "example/instance.properties"):
        written = (tmp_path / "conf" / name).read_text().replace(str(tmp_path / "conf"), "conf")
        assert written == (CONF / name).read_text()
    assert f"sluice check --conf {tmp_path / 'conf'}" in capsys.readouterr().out


def test_a_server_reads_it_and_nobody_else_may(tmp_path: Path) -> None:
    assert init(str(tmp_path / "conf"), "--destination", "shop") == 0
    configuration = Configuration(tmp_path / "conf", {"SLUICE_INSTANCE_DB_PASSWORD": "x"})
    assert configuration.destinations() == ["shop"]
    assert configuration.instance("shop").source == "mysql"
    assert {stat.S_IMODE(it.stat().st_mode) for it in tmp_path.rglob("*.properties")} == {0o600}


def test_nothing_is_overwritten(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "shop").mkdir()
    there = tmp_path / "shop" / "instance.properties"
    there.write_text("canal.instance.dbUsername = us\n")
    assert init(str(tmp_path), "--destination", "shop") == 2
    assert f"{there} already there" in capsys.readouterr().err
    assert there.read_text() == "canal.instance.dbUsername = us\n"
    assert not (tmp_path / "canal.properties").exists()


@pytest.mark.parametrize("name", ["..", "a/b", "", "-x", "a" * 201])
def test_a_name_that_no_destination_can_have_is_refused(
    tmp_path: Path, name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert init(str(tmp_path), f"--destination={name}") == 2
    assert "is not a name of a destination, which has up to 200 letters" in capsys.readouterr().err
    assert not list(tmp_path.iterdir())
