"""Which packages a set-up waits for: the demo for those of the server, tests and Spark for theirs besides."""

import re
import tomllib
from pathlib import Path

ROOT = Path(__file__).parents[2]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())
EXTRAS = PROJECT["project"]["optional-dependencies"]


def locked(name: str) -> set[str]:
    """The packages of a lock."""
    return set(re.findall(r"^([a-z0-9.-]+)==", (ROOT / name).read_text(), re.MULTILINE))


def named(requirements: list[str]) -> set[str]:
    """The packages that requirements name, our own extras left out."""
    names = {re.split(r"[\[<>=! ;]", requirement, maxsplit=1)[0].lower() for requirement in requirements}
    return names - {"sluice-cdc"}


def test_the_server_and_what_compiles_it_are_in_the_first_lock() -> None:
    needed = PROJECT["project"]["dependencies"] + EXTRAS["server"] + PROJECT["build-system"]["requires"]
    assert named(needed) <= locked("requirements.lock")


def test_what_only_developers_need_is_not() -> None:
    only = named(EXTRAS["dev"]) - named(PROJECT["build-system"]["requires"])
    assert only <= locked("requirements-dev.lock")
    assert locked("requirements.lock").isdisjoint(locked("requirements-dev.lock"))
    assert locked("requirements.lock").isdisjoint(locked("requirements-spark.lock"))


def test_what_users_of_the_extras_install_is_locked_with_hashes_as_it_is_tested() -> None:
    extras = [*EXTRAS["kafka"], *EXTRAS["tidb"], *EXTRAS["arrow"]]
    assert named(extras + EXTRAS["server"]) <= locked("requirements-extras.lock")
    tested = {line for name in ("requirements.lock", "requirements-dev.lock") for line in pinned(name)}
    assert pinned("requirements-extras.lock") <= tested
    assert [it for it in extras if not it.startswith("sluice-cdc") and ",<" not in it] == []


def pinned(name: str) -> set[str]:
    """The packages of a lock with their versions; each has hashes."""
    text = (ROOT / name).read_text()
    found = set(re.findall(r"^([a-z0-9.-]+==\S+).* \\\n    --hash=sha256:", text, re.MULTILINE))
    assert {it.partition("==")[0] for it in found} == locked(name)
    return found
