"""The examples of the pages: each change of the sources does what docs/internals.md says of it."""

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

from tests.unit.test_formats import rows_of

ROOT = Path(__file__).parents[2]
EXAMPLES = ROOT / "tests" / "examples"
PACKAGES = ("protocol", "login", "store", "sql", "instance", "server", "client_sdk", "verify")

FORMAT = """
import pathlib, sys
from sluice.client_sdk.batch import Batch
from sluice.protocol.formats import FORMATS
from sluice.server.cli.command import argument_parser
from sluice.server.http.data import router
from sluice.server.http.formats import SINGLE, negotiate

data = pathlib.Path(sys.argv[1]).read_bytes()
print(Batch(7, "here", "there", data).encode("tables").decode())
form = negotiate("application/vnd.sluice.tables+json", SINGLE)
print(form.name)
print(*argument_parser().parse_args(["tail", "shop", "--tables"]).lines.open()(data))
(get,) = [route for route in router.routes if route.path.endswith("/getWithoutAck")]
print(form.media_type in get.responses[200]["content"])
table = "".join(f"| `{it.media_type}` | {it.text} |\\n" for it in FORMATS if it.media_type)
print(table in open("docs/http.md").read())
"""

META_STORE = """
import asyncio
from pathlib import Path

from sluice.instance.config import InstanceConfig
from sluice.instance.meta import MetaKind
from sluice.protocol.position import Position
from sluice.store.cursor import Cursor, StoredClient

place = Position.parse("1/mysql-bin.000001@1700000000:344:0")
client = StoredClient(1001, "shop", Cursor("mysql-bin.000001", 4, 1, 1, position=place, delivered=place), 60)
config = InstanceConfig(destination="shop", meta="sqlite", file_data_dir=".")

async def main():
    store = config.meta.make(config)
    first, clients = await store.open()
    print(clients)
    await store.write({1001: client, 1002: StoredClient(1002), 1003: None}, first)
    await store.close()
    second, clients = await config.meta.make(config).open()
    print(second > first, clients == [client, StoredClient(1002)] == store.read())

asyncio.run(main())
print(config.meta.is_shared, Path("shop/meta.sqlite").exists())
"""

SOURCE = """
import asyncio
from pathlib import Path

from sluice.instance.sources.registry import make_parser
from sluice.protocol.canal.rows import decode_rows
from sluice.protocol.errors import ConfigError
from sluice.server.cli.command import argument_parser
from sluice.server.config import Configuration
from sluice.server.config.warnings import find_warnings
from sluice.server.embedded import EmbeddedServer

file = Path("conf/lines.000001")
(file.parent / "lines").mkdir(parents=True)
(file.parent / "canal.properties").write_text("canal.destinations = lines\\n")
(file.parent / "lines" / "instance.properties").write_text(
    "sluice.instance.source = lines\\nsluice.instance.lines.file = lines.000001\\n"
    "canal.file.flush.period = 1\\ncanal.instance.gtidon = true\\nsluice.instance.timeZone = UTC\\n"
)
configuration = Configuration(Path("conf"), {})
configuration.check()
print(*find_warnings(configuration), sep="\\n")

async def read(text):
    with file.open("a") as writer:
        writer.write(text)
    server = EmbeddedServer(configuration.instance, make_parser)
    await server.start("lines")
    await server.subscribe("lines", 1001)
    found = []
    while len(found) < text.count("\\n"):
        batch = await server.get_without_ack("lines", 1001, timeout=1)
        if batch.batch_id > 0:
            found += [row.after["line"] for row in decode_rows(b"".join(batch.slices))]
            await server.ack("lines", 1001, batch_id=batch.batch_id)
    await server.close()
    return found

print(asyncio.run(read("one\\ntwo\\nthr")))
print(asyncio.run(read("ee\\nfour\\n")))
for command in ("verify lines", "filter try .*"):
    options = argument_parser().parse_args([*command.split(), "--conf", "conf"])
    try:
        options.run(options)
    except ConfigError as error:
        print(error)
(file.parent / "lines" / "instance.properties").write_text("sluice.instance.source = line\\n")
try:
    configuration.check()
except ConfigError as error:
    print(str(error).partition(", or what a package brings: ")[0])
"""


def changed(folder: Path, patch: str) -> Path:
    """A copy of the sources, with what is compiled, to which an example has been applied."""
    for name in PACKAGES:
        shutil.copytree(ROOT / name, folder / name, ignore=shutil.ignore_patterns("__pycache__", "*.pyx", "*.pxd"))
    shutil.copytree(ROOT / "docs", folder / "docs", ignore=shutil.ignore_patterns("plots"))
    shutil.copytree(ROOT / "src", folder / "src", symlinks=True)
    shutil.copy(ROOT / "__init__.py", folder)
    subprocess.run(["git", "init", "-q", folder], check=True)
    subprocess.run(["git", "apply", EXAMPLES / patch], cwd=folder, check=True)
    return folder


def run(script: str, folder: Path, *arguments: Path) -> list[str]:
    """What a script prints, in lines, which imports the sources in a folder."""
    done = subprocess.run(
        [sys.executable, "-c", script, *arguments],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": os.pathsep.join([str(folder / "src"), str(ROOT)])},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


def test_a_meta_store_is_a_file_and_a_line_in_the_enumeration(tmp_path: Path) -> None:
    folder = changed(tmp_path / "sources", "add_a_meta_store.patch")
    assert run(META_STORE, folder) == ["[]", "True True", "False True"]


def test_a_source_is_a_folder_and_a_line_in_each_of_two_registries(tmp_path: Path) -> None:
    folder = changed(tmp_path / "sources", "add_a_source.patch")
    key = "sluice.instance.source"
    able = "MySQL or MariaDB or binlog files in a folder or TiDB's secondary binlog in Kafka or a topic of TiCDC or "
    able += "the log of a pump for TiDB or a group of sources or files of changes in a folder or another destination"
    able += " whose rows are processed"
    kinds = "'changes' or 'files' or 'group' or 'kafka' or 'lines' or 'mysql' or 'process' or 'pump' or 'ticdc'"
    refused = f"lines: a text file as a source cannot be asked this, only {able} can ({key} = lines)"
    assert run(SOURCE, folder) == [
        f"conf/lines/instance.properties:4: canal.instance.gtidon has an effect with {key} = files or mysql only",
        "['one', 'two']",
        "['three', 'four']",
        "lines: a text file as a source cannot be compared with another decoder",
        refused,
        f"lines: conf/lines/instance.properties:1: {key}: has to be {kinds}",
    ]


def test_a_format_is_a_file_a_line_in_the_registry_and_one_in_the_documentation(tmp_path: Path) -> None:
    folder = changed(tmp_path / "sources", "add_a_format.patch")
    data = tmp_path / "batch"
    data.write_bytes(rows_of(3))
    encoded, name, lines, is_described, is_documented = run(FORMAT, folder, data)
    assert json.loads(encoded) == {"shop.items": 3}
    assert (name, is_described, is_documented) == ("tables", "True", "True")
    assert lines == str([json.dumps({"shop.items": 3})])


def test_the_page_about_packages_shows_the_files_of_the_example() -> None:
    page = (ROOT / "docs" / "howto" / "plugins.md").read_text()
    shown = re.findall(r"```(?:python|toml)\n# (\S+)\n(.*?)```", page, re.DOTALL)
    assert [name for name, _ in shown] == [
        "pyproject.toml",
        "sluice_example/form.py",
        "sluice_example/output.py",
        "promises.py",
    ]
    assert [text for _, text in shown] == [(EXAMPLES / "plugin" / name).read_text() for name, _ in shown]
