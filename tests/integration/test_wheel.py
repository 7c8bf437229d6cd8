"""What `pip install .` gives a user without our tree."""

import os
import shutil
import subprocess
import sys
import sysconfig
import zipfile
from pathlib import Path

import pytest

pytestmark = pytest.mark.extended

ROOT = Path(__file__).resolve().parents[2]
PACKAGES = ("protocol", "login", "store", "sql", "instance", "server", "client_sdk", "verify")
REGISTRATION = "pyspark_sluice"  # Spark looks for data sources in modules that are called so


def tracked(*patterns: str) -> list[str]:
    listed = subprocess.run(["git", "ls-files", *patterns], cwd=ROOT, check=True, capture_output=True, text=True)
    return listed.stdout.split()


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Build from the tracked files, and what `make build` has made of them: other files must not leak into it."""
    source, out = tmp_path_factory.mktemp("source"), tmp_path_factory.mktemp("wheel")
    subprocess.run(
        ["bash", "-c", 'git ls-files -z | xargs -0 cp -d --parents -t "$1"', "-", str(source)], cwd=ROOT, check=True
    )
    library = Path(f"build/lib.{sysconfig.get_platform()}-{sys.implementation.cache_tag}/sluice")
    for file in tracked("*.pyx"):
        translation = Path("build/cython/src/sluice", file).with_suffix(".cpp")
        module = Path(file).with_suffix(sysconfig.get_config_var("EXT_SUFFIX"))
        for made, place in ((translation, translation), (module, library / module)):
            (source / place).parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(ROOT / made, source / place)  # now younger than what it was made of
    pip = [sys.executable, "-m", "pip", "-q", "wheel", "--no-build-isolation", "--no-deps", "--no-index"]
    subprocess.run([*pip, "-w", str(out), "."], cwd=source, check=True)
    (built,) = out.glob("*.whl")
    return built


@pytest.fixture
def environment(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A fresh environment with nothing in it."""
    place = tmp_path_factory.mktemp("environment")
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(place)], check=True)
    return place / "bin"


def install(what: str, environment: Path) -> None:
    """Install it with what it says it needs, and nothing else."""
    cache = os.environ.get("SLUICE_CACHE") or f"{os.environ.get('XDG_CACHE_HOME') or Path.home() / '.cache'}/sluice"
    links = [option for folder in Path(cache, "wheels").iterdir() for option in ("--find-links", str(folder))]
    pip = [sys.executable, "-m", "pip", "--python", str(environment / "python"), "-q", "install", "--no-compile"]
    subprocess.run([*pip, "--no-index", *links, what], check=True)


def test_everything_but_the_registration_is_under_one_name(wheel: Path) -> None:
    names = zipfile.ZipFile(wheel).namelist()
    assert {name.split("/")[0] for name in names if ".dist-info/" not in name} == {"sluice", REGISTRATION}


def test_no_file_of_the_packages_is_missing(wheel: Path) -> None:
    names = set(zipfile.ZipFile(wheel).namelist())
    wanted = [
        f"{package}/*.{suffix}" for package in PACKAGES for suffix in ("py", "pyi", "pxd", "h", "proto", "properties")
    ]
    assert [file for file in tracked(*wanted) if f"sluice/{file}" not in names] == []
    assert [file for file in tracked("src/*/*.*") if file.removeprefix("src/") not in names] == []


def test_compiled_modules_are_hardened_against_what_they_read(wheel: Path, tmp_path: Path) -> None:
    zipfile.ZipFile(wheel).extractall(tmp_path)
    modules = sorted(map(str, tmp_path.rglob("*.so")))
    assert len(modules) == len(tracked("*.pyx"))

    def output(*command: str) -> str:
        return subprocess.run(command, check=True, capture_output=True, text=True).stdout

    for module in modules:
        segments = output("readelf", "-dlW", module)
        assert "GNU_RELRO" in segments, module
        assert "BIND_NOW" in segments, module
    called = output("nm", "-D", *modules)
    assert "__stack_chk_fail" in called
    assert "__memcpy_chk" in called


def test_every_compiled_module_is_there_with_its_types(wheel: Path) -> None:
    names = zipfile.ZipFile(wheel).namelist()
    for source in tracked("*.pyx"):
        module = f"sluice/{source.removesuffix('.pyx')}"
        assert any(name.startswith(f"{module}.cpython") for name in names), f"{module} is not compiled"
        assert f"{module}.pyi" in names, f"{module} has no types"


def test_it_runs_without_the_tree(wheel: Path, environment: Path, tmp_path: Path) -> None:
    install(f"{wheel}[aio,arrow,tidb,verify,zookeeper]", environment)
    code = """
import importlib, pkgutil, sluice
for module in pkgutil.walk_packages(sluice.__path__, "sluice."):
    if not module.name.endswith(".__main__") and not module.name.startswith("sluice.client_sdk.spark"):
        importlib.import_module(module.name)
"""
    subprocess.run([str(environment / "python"), "-W", "error", "-c", code], cwd=tmp_path, check=True)
    shown = subprocess.run(
        [str(environment / "sluice"), "--help"], cwd=tmp_path, check=False, capture_output=True, text=True
    )
    assert (shown.returncode, shown.stderr) == (0, "")
    assert "serve" in shown.stdout


def test_the_client_alone_needs_urllib3_only(wheel: Path, environment: Path, tmp_path: Path) -> None:
    install(str(wheel), environment)
    found = Path(environment.parent, "lib", f"python{sysconfig.get_python_version()}", "site-packages")
    assert sorted(it.name.partition("-")[0] for it in found.glob("*.dist-info")) == ["sluice_cdc", "urllib3"]
    code = """
from sluice import client_sdk
from sluice.client_sdk import Batch, Client, ClusterClient, Limits, SluiceError, Start, __version__
print(__version__, Client("http://127.0.0.1:1", "shop").servers)
for make in (
    lambda: client_sdk.AsyncClient,
    lambda: Batch(1, "", "", b"").entries(),
    lambda: ClusterClient(zookeeper="127.0.0.1:1"),
):
    try:
        make()
    except ImportError as error:
        print(error)
"""
    python = [str(environment / "python"), "-W", "error", "-c", code]
    said = subprocess.run(python, cwd=tmp_path, check=True, capture_output=True, text=True).stdout
    assert said.splitlines() == [
        "0.1.0 ('http://127.0.0.1:1',)",
        "AsyncClient needs aiohttp: pip install 'sluice-cdc[aio]'",
        "entries as protobuf objects need protobuf: pip install 'sluice-cdc[protobuf]'",
        "`zookeeper` needs kazoo: pip install 'sluice-cdc[zookeeper]'",
    ]
    status = [str(environment / "sluice"), "status"]
    command = subprocess.run(status, cwd=tmp_path, check=False, capture_output=True, text=True)
    assert command.returncode == 2
    assert command.stderr == "sluice: rich not found: pip install 'sluice-cdc[server]'\n"


def test_spark_finds_the_source_by_its_name(wheel: Path, environment: Path, tmp_path: Path) -> None:
    install(f"{wheel}[spark]", environment)
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
