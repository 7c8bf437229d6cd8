"""What `pip install .` gives a user who has none of our tree."""

import os
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PACKAGES = ("protocol", "store", "instance", "server", "client_sdk")
REGISTRATION = "pyspark_sluice"  # Spark looks for data sources in modules that are called so

pytestmark = pytest.mark.timeout(600)  # a whole compilation


def tracked(*patterns: str) -> list[str]:
    listed = subprocess.run(["git", "ls-files", *patterns], cwd=ROOT, check=True, capture_output=True, text=True)
    return listed.stdout.split()


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Build from the tracked files alone: what lies about in the tree must not leak into it."""
    source, out = tmp_path_factory.mktemp("source"), tmp_path_factory.mktemp("wheel")
    subprocess.run(
        ["bash", "-c", 'git ls-files -z | xargs -0 cp --parents -t "$1"', "-", str(source)], cwd=ROOT, check=True
    )
    pip = [
        sys.executable,
        "-m",
        "pip",
        "-q",
        "wheel",
        "--no-build-isolation",
        "--no-deps",
        "--no-index",
        "-w",
        str(out),
        ".",
    ]
    quickly = os.environ | {"CFLAGS": "-O0"}  # all other tests run what is compiled as users compile it
    subprocess.run(pip, cwd=source, env=quickly, check=True)
    (built,) = out.glob("*.whl")
    return built


def install(wheel: Path, place: Path, extra: str = "") -> Path:
    """The folder of programs of a fresh environment with the wheel and what it says it needs, and nothing else."""
    subprocess.run([sys.executable, "-m", "venv", str(place)], check=True)
    cache = os.environ.get("SLUICE_CACHE") or f"{os.environ.get('XDG_CACHE_HOME') or Path.home() / '.cache'}/sluice"
    links = [option for folder in Path(cache, "wheels").iterdir() for option in ("--find-links", str(folder))]
    subprocess.run([str(place / "bin/pip"), "-q", "install", "--no-index", *links, f"{wheel}{extra}"], check=True)
    return place / "bin"


def test_everything_but_the_registration_lies_under_one_name(wheel: Path) -> None:
    names = zipfile.ZipFile(wheel).namelist()
    assert {name.split("/")[0] for name in names if ".dist-info/" not in name} == {"sluice", REGISTRATION}


def test_no_file_of_the_packages_is_missing(wheel: Path) -> None:
    names = set(zipfile.ZipFile(wheel).namelist())
    wanted = [
        f"{package}/*.{suffix}"
        for package in PACKAGES
        for suffix in ("py", "pyi", "pxd", "proto", "typed", "properties")
    ]
    assert [file for file in tracked(*wanted) if f"sluice/{file}" not in names] == []
    assert [file for file in tracked(REGISTRATION) if file not in names] == []


def test_every_compiled_module_is_there_with_its_types(wheel: Path) -> None:
    names = zipfile.ZipFile(wheel).namelist()
    for source in tracked("*.pyx"):
        module = f"sluice/{source.removesuffix('.pyx')}"
        assert any(name.startswith(f"{module}.cpython") for name in names), f"{module} is not compiled"
        assert f"{module}.pyi" in names, f"{module} has no types"


def test_it_runs_without_the_tree(wheel: Path, tmp_path: Path) -> None:
    environment = install(wheel, tmp_path / "environment")
    code = """
import importlib, pkgutil, sluice
for module in pkgutil.walk_packages(sluice.__path__, "sluice."):
    if not module.name.endswith(".__main__") and not module.name.startswith("sluice.client_sdk.spark"):
        importlib.import_module(module.name)
"""
    subprocess.run([str(environment / "python"), "-W", "error", "-c", code], cwd=tmp_path, check=True)
    shown = subprocess.run(
        [str(environment / "sluice"), "--help"], cwd=tmp_path, check=True, capture_output=True, text=True
    )
    assert "serve" in shown.stdout


def test_spark_finds_the_source_by_its_name(wheel: Path, tmp_path: Path) -> None:
    environment = install(wheel, tmp_path / "environment", "[spark]")
    code = """
import importlib, pkgutil
import sluice.client_sdk.spark
for module in pkgutil.walk_packages(sluice.client_sdk.spark.__path__, "sluice.client_sdk.spark."):
    importlib.import_module(module.name)
from pyspark.sql import SparkSession
settings = {"spark.ui.enabled": "false", "spark.driver.host": "127.0.0.1", "spark.driver.bindAddress": "127.0.0.1"}
spark = SparkSession.builder.master("local[1]").config(map=settings).getOrCreate()
print(spark.readStream.format("sluice").load().schema.fieldNames())
spark.stop()
"""
    settings = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    shown = subprocess.run(
        [str(environment / "python"), "-c", code],
        cwd=tmp_path,
        env={**settings, "PYSPARK_PYTHON": str(environment / "python")},
        check=True,
        capture_output=True,
        text=True,
    )
    assert "'_pos', '_gtid', '_ts'" in shown.stdout
