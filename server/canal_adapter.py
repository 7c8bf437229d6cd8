"""The configuration of Canal's client-adapter, and the outputs that do the same.

``application.yml`` names adapters of a destination, and ``rdb/*.yml`` beside it which table goes where. An adapter of
kind ``rdb`` becomes an output of type ``mysql``.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, NamedTuple, TypeVar
from urllib.parse import parse_qsl, quote, urlsplit

import pymysql
from pydantic import AliasChoices, BaseModel, ConfigDict, Field, ValidationError

from ..protocol.errors import BadParameterError, ConfigError, SourceError
from ..sql.database import Database, reason

M = TypeVar("M", bound=BaseModel)

LARGEST: Final = 4 << 20
"""Bytes of a file."""
MAIN: Final = "application.yml"
_SCHEMES: Final = ("jdbc:mysql:", "jdbc:mariadb:")
_ELASTICSEARCH: Final = re.compile(r"es\d*")
_HOW_ELSE: Final = {
    "logger": "it prints changes: `sluice tail` does",
    "es": "there is no output to Elasticsearch: install examples/elasticsearch, which writes rows by its bulk API, or a"
    " package of your own (docs/howto/plugins.md). Joins and functions of its SQL are for sluice.instance.source ="
    " process (docs/howto/processing.md)",
    "": "there is no such output: write one as a package (docs/howto/plugins.md), or let a consumer do it",
}
_WITHOUT_EFFECT: Final = "an output of Sluice chooses that by itself"


class _Model(BaseModel):
    model_config = ConfigDict(extra="allow", hide_input_in_errors=True, coerce_numbers_to_str=True)


class Adapter(_Model):
    """An entry of ``outerAdapters``."""

    name: str
    key: str = ""
    properties: dict[str, Any] = Field(default_factory=dict)


class Group(_Model):
    """Adapters that take the same changes."""

    adapters: list[Adapter] = Field(validation_alias=AliasChoices("outerAdapters", "outAdapters"), default_factory=list)


class Instance(_Model):
    """The adapters of a destination."""

    instance: str
    groups: list[Group] = Field(default_factory=list)


class Source(_Model):
    """An entry of ``srcDataSources``."""

    url: str = ""
    username: str = ""
    password: str = Field("", repr=False)


class Main(_Model):
    """``canal.conf`` of ``application.yml``."""

    mode: str = "tcp"
    sources: dict[str, Source] = Field(alias="srcDataSources", default_factory=dict)
    instances: list[Instance] = Field(
        validation_alias=AliasChoices("canalAdapters", "canalInstances"), default_factory=list
    )


class Tables(_Model):
    """``dbMapping``."""

    mirrors: bool | None = Field(alias="mirrorDb", default=False)
    database: str = Field(min_length=1)
    table: str | None = ""
    target_db: str | None = Field(alias="targetDb", default="")
    target_table: str | None = Field(alias="targetTable", default="")
    target_pk: dict[str, str | None] | None = Field(alias="targetPk", default=None)
    maps_all: bool | None = Field(alias="mapAll", default=False)
    target_columns: dict[str, str | None] | None = Field(alias="targetColumns", default=None)
    etl_condition: str | None = Field(alias="etlCondition", default="")

    @property
    def columns(self) -> dict[str, str]:
        """The columns that are named: those of the target, and of the source."""
        return {target: source or target for target, source in (self.target_columns or {}).items()}

    @property
    def key(self) -> dict[str, str]:
        """The primary key of the target, and the columns of the source."""
        return {target: source or target for target, source in (self.target_pk or {}).items()}


class MappingFile(_Model):
    """A file of ``rdb/``."""

    source: str = Field(alias="dataSourceKey", default="")
    destination: str = ""
    adapter: str = Field(alias="outerAdapterKey", default="")
    tables: Tables = Field(alias="dbMapping")


class Known(NamedTuple):
    """What the source says of a table."""

    columns: Sequence[str]
    key: Sequence[str]


@dataclass
class Made:
    """An output that does what mappings of an adapter say."""

    destination: str
    name: str
    url: str
    default_schema: str
    """Where a table goes whose mapping names no schema."""
    ddl: str = "ignore"
    tables: list[str] = field(default_factory=list)
    """Filters for the tables, each once."""
    routes: list[str] = field(default_factory=list)
    columns: list[str] = field(default_factory=list)

    def lines(self) -> Iterator[str]:
        """Give the lines for ``instance.properties`` of the destination."""
        own = f"sluice.output.{self.name}"
        values = {
            "type": "mysql",
            "url": self.url,
            "passwordFile": f"/run/secrets/{self.name}",
            "filter": ",".join(self.tables),
            "routes": "; ".join(self.routes),
            "columns": "; ".join(self.columns),
            "ddl": self.ddl,
            "existing": "merge",
        }
        for key, value in values.items():
            if value:
                yield f"{own}.{key} = {value}".replace("\\", "\\\\")


class Finding(NamedTuple):
    """What is to be said of a part of the configuration."""

    what: str
    text: str
    is_wrong: bool = False


class ClientAdapter:
    """The ``conf`` folder of a client-adapter."""

    def __init__(self, folder: Path) -> None:
        """Read it. Raises ConfigError, which names the file."""
        self.folder = folder
        found = _read(folder / MAIN)
        nested = found.get("canal")
        conf = found.get("canal.conf") or (nested.get("conf") if isinstance(nested, dict) else None)
        if not isinstance(conf, dict):
            raise ConfigError(f"{folder / MAIN} has no canal.conf: is it that of Canal's client-adapter?")
        self.main = _parse(Main, conf, folder / MAIN)
        self.files = {path: _parse(MappingFile, _read(path), path) for path in sorted((folder / "rdb").glob("*.yml"))}
        self.findings: list[Finding] = []

    def ask_sources(self) -> dict[tuple[str, str, str], Known]:
        """Ask the sources for the columns of the tables that mappings name; `findings` says which do not answer."""
        known: dict[tuple[str, str, str], Known] = {}
        for name, source in self.main.sources.items():
            schemas = sorted({it.tables.database for it in self.files.values() if it.source == name})
            if not schemas:
                continue
            try:
                found = _columns_at(source, schemas)
            except (ConfigError, BadParameterError, SourceError, pymysql.MySQLError) as error:
                text = reason(error) if isinstance(error, pymysql.MySQLError) else str(error)
                self.findings.append(Finding(f"srcDataSources.{name}", f"was not asked for columns: {text}"))
                continue
            known |= {(name, *table): it for table, it in found.items()}
        return known

    def outputs(self, known: Mapping[tuple[str, str, str], Known]) -> list[Made]:
        """Return the outputs that do what the adapters do; `findings` says what has no equal.

        ``known``: what the sources say, by data source, schema and table, as far as they were asked.
        """
        outputs: list[Made] = []
        used: set[Path] = set()
        if self.main.mode.lower() != "tcp":
            text = f"canal.conf.mode = {self.main.mode}: an output takes the changes of the destination itself"
            self.findings.append(Finding(MAIN, text))
        for instance in self.main.instances:
            for adapter in (it for group in instance.groups for it in group.adapters):
                what = f"{instance.instance}, adapter {adapter.name}{f' {adapter.key}' if adapter.key else ''}"
                if adapter.name != "rdb":
                    kind = "es" if _ELASTICSEARCH.fullmatch(adapter.name) else adapter.name
                    text = _HOW_ELSE.get(kind, _HOW_ELSE[""])
                    self.findings.append(Finding(what, text, is_wrong=adapter.name != "logger"))
                    continue
                files = {
                    path: it
                    for path, it in self.files.items()
                    if it.destination == instance.instance and it.adapter.lower() == adapter.key.lower()
                }
                used |= files.keys()
                outputs += self._outputs_of(instance.instance, adapter, files, what, known)
        for path in self.files.keys() - used:
            self.findings.append(Finding(str(path), "no adapter of application.yml uses it", is_wrong=True))
        return outputs

    def _outputs_of(
        self,
        destination: str,
        adapter: Adapter,
        files: Mapping[Path, MappingFile],
        what: str,
        known: Mapping[tuple[str, str, str], Known],
    ) -> list[Made]:
        url = str(adapter.properties.get("jdbc.url", ""))
        if not url.startswith(_SCHEMES):
            text = f"its target is not MySQL or MariaDB ({url.partition('//')[0]}): {_HOW_ELSE['']}"
            self.findings.append(Finding(what, text, is_wrong=True))
            return []
        found = sorted({"threads", "commitSize"} & adapter.properties.keys())
        if found:
            self.findings.append(Finding(what, f"{', '.join(found)}: {_WITHOUT_EFFECT}"))
        if str(adapter.properties.get("skipDupException", "true")).lower() == "true":
            text = "skipDupException leaves out an inserted row that is there already; an output replaces it"
            self.findings.append(Finding(what, text))
        made: list[Made] = []
        target, schema = _target(url, str(adapter.properties.get("jdbc.username", "")))
        name = re.sub(r"[^A-Za-z0-9-]", "-", adapter.key or "rdb")
        for path, it in files.items():
            pattern = rf"{_escape(it.tables.database)}\.{'.*' if it.tables.mirrors else _escape(it.tables.table or '')}"
            ddl = "apply" if it.tables.mirrors else "ignore"
            output = next((one for one in made if pattern not in one.tables and one.ddl == ddl), None)
            if output is None:
                number = f"-{len(made) + 1}" if made else ""
                output = Made(destination, f"{name}{number}", target, schema, ddl)
                made.append(output)
            output.tables.append(pattern)
            self._add(output, path, it, pattern, known)
        return made

    def _add(
        self,
        output: Made,
        path: Path,
        file: MappingFile,
        pattern: str,
        known: Mapping[tuple[str, str, str], Known],
    ) -> None:
        """Let an output do what a file says."""
        tables = file.tables
        if tables.mirrors:
            if tables.target_db and tables.target_db != tables.database:
                output.routes.append(f"{pattern} -> {tables.target_db}.*")
            return
        target = _table_of(tables, output.default_schema)
        if target != (tables.database, tables.table):
            output.routes.append(f"{pattern} -> {'.'.join(target)}")
        if tables.etl_condition:
            text = "etlCondition chooses rows of an import only, and a snapshot reads whole tables: say which rows the"
            text += f" copy is to have by sluice.output.{output.name}.where, which holds for changes, too"
            self.findings.append(Finding(str(path), text, is_wrong=True))
        source = known.get((file.source, tables.database, tables.table or ""))
        rules = [f"{source_} -> {target_}" for target_, source_ in tables.columns.items() if source_ != target_]
        repeated = len(set(tables.columns.values())) < len(tables.columns)
        if repeated:
            text = "a column goes to several of the target: make the others generated columns there"
            self.findings.append(Finding(str(path), text, is_wrong=True))
        if not tables.maps_all:
            if source is None:
                text = (
                    "mapAll is not set, and the source was not asked which other columns are to be left out: name them"
                )
                text += f" in sluice.output.{output.name}.columns (`{pattern}: column ->`), or let the source answer"
                self.findings.append(Finding(str(path), text, is_wrong=True))
            else:
                rules += [f"{it} ->" for it in source.columns if it not in tables.columns.values()]
        if rules:
            output.columns.append(f"{pattern}: {', '.join(rules)}")
        if source is not None and tables.key and sorted(tables.key.values()) != sorted(source.key):
            text = f"targetPk is {', '.join(tables.key.values())}, and the primary key of the source is"
            text += f" {', '.join(source.key) or 'missing'}: an output finds rows by that. Give the target the same one"
            self.findings.append(Finding(str(path), text, is_wrong=True))


def _escape(name: str) -> str:
    """Return a name as a filter has it."""
    return re.escape(name).replace(r"\-", "-")


def _table_of(tables: Tables, default_schema: str) -> tuple[str, str]:
    schema, _, name = (tables.target_table or "").rpartition(".")
    return (tables.target_db or schema or default_schema or tables.database).strip("`"), name.strip("`")


def _target(url: str, user: str) -> tuple[str, str]:
    """Return the URL of a target as Sluice names it, and its default schema. Raises ConfigError."""
    parts = urlsplit(url.partition(":")[2])
    try:
        host, port = parts.hostname, parts.port or 3306
    except ValueError:
        host, port = None, 0
    if not host:
        raise ConfigError(f"jdbc.url names no single server: {url.partition('?')[0][:200]!r}")
    mode = dict(parse_qsl(parts.query)).get("sslMode", "")
    host = f"[{host}]" if ":" in host else host
    return f"mysql://{quote(user)}@{host}:{port}/{f'?sslMode={mode}' if mode else ''}", parts.path.strip("/")


def _columns_at(source: Source, schemas: Sequence[str]) -> dict[tuple[str, str], Known]:
    """Ask a source for the columns and primary keys of the tables of some schemas.

    Raises ConfigError, BadParameterError, SourceError, MySQLError.
    """
    database = Database.of(_target(source.url, source.username)[0], password=source.password)
    found: dict[tuple[str, str], tuple[list[str], list[str]]] = {}
    with closing(database.connect()) as session, session.cursor() as cursor:
        names = ",".join(["%s"] * len(schemas))
        cursor.execute(
            "SELECT table_schema, table_name, column_name, column_key = 'PRI' FROM information_schema.columns"  # noqa: S608
            f" WHERE table_schema IN ({names}) ORDER BY ordinal_position",
            schemas,
        )
        for schema, table, column, is_key in cursor.fetchall():
            columns, key = found.setdefault((schema, table), ([], []))
            columns.append(column)
            key += [column] * is_key
    return {name: Known(*it) for name, it in found.items()}


def _read(path: Path) -> dict[str, Any]:
    try:
        import yaml  # noqa: PLC0415  an extra
    except ModuleNotFoundError:
        raise ConfigError(
            "the configuration of Canal's client-adapter is YAML: pip install 'sluice-cdc[migrate]'"
        ) from None
    try:
        with path.open("rb") as file:
            data = file.read(LARGEST + 1)
        if len(data) > LARGEST:
            raise ConfigError(f"{path} has more than {LARGEST} bytes")
        found = yaml.safe_load(data)
    except OSError as error:
        raise ConfigError(f"{path} cannot be read: {error.strerror}") from error
    except (yaml.YAMLError, RecursionError, ValueError) as error:
        # What the error says quotes the line, and so maybe a password.
        mark = getattr(error, "problem_mark", None)
        where = "" if mark is None else f", line {mark.line + 1}, column {mark.column + 1}"
        raise ConfigError(f"{path}{where}: it is not YAML. A value with special characters needs quotes") from None
    if not isinstance(found, dict):
        raise ConfigError(f"{path} is empty, or no mapping")
    return found


def _parse(model: type[M], found: Mapping[str, Any], path: Path) -> M:
    try:
        return model.model_validate(found)
    except ValidationError as error:
        wrong = "; ".join(f"{'.'.join(map(str, it['loc']))}: {it['msg']}" for it in error.errors(include_input=False))
        raise ConfigError(f"{path}: {wrong[:1000]}") from None
