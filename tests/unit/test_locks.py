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
