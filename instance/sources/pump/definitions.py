"""Which table an id of TiDB means at a version of the schema, and what its columns are: from the history of DDL jobs.

The history is what a TiDB answers to ``/ddl/history``: a list in JSON, a job of which has among others::

    {"id":87, "type":3, "schema_id":84, "table_id":86, "schema_name":"shop", "query":"CREATE TABLE …",
     "binlog":{"SchemaVersion":42, "DBInfo":null, "TableInfo":{"id":86, "name":{"O":"orders"}, "cols":[…], …}}}

A job with the version 0 has changed nothing. ``TableInfo`` is the whole table after the job. TRUNCATE gives a table
another id. A partition has an id, too, but rows have the one of its table. EXCHANGE PARTITION gives a table the id of a
partition, and the partition that of the table.
"""

from bisect import bisect_right
from collections.abc import Iterator
from dataclasses import dataclass
from enum import IntEnum
from typing import Annotated, Final

from pydantic import BaseModel, Field, TypeAdapter, ValidationError

from ....protocol.errors import DecodeError
from ...values.types import LABEL_ESCAPES, Type

PUBLIC: Final = 5
"""The state of columns and keys that statements see."""
PRIMARY_KEY, UNSIGNED, ZEROFILL = 1 << 1, 1 << 5, 1 << 6
MAX_COLUMNS: Final = 4096
"""Of a table: TiDB has no more."""
MAX_BYTES: Final = 256 << 20
"""Of a history: some 50,000 jobs."""


class Action(IntEnum):
    """The types of jobs that do more than change a table."""

    CREATE_SCHEMA = 1
    DROP_SCHEMA = 2
    DROP_TABLE = 4
    DROP_COLUMN = 6
    TRUNCATE_TABLE = 11
    DROP_VIEW = 24
    ALTER_SCHEMA = 26
    EXCHANGE_PARTITION = 42


# --- what is read ----------------------------------------------------------------------------------------------------


_Id = Annotated[int, Field(ge=0, lt=1 << 63)]


class _Name(BaseModel):
    original: str = Field(alias="O")


class _FieldType(BaseModel):
    code: int = Field(alias="Tp")
    flag: int = Field(alias="Flag")
    length: int = Field(alias="Flen")
    digits: int = Field(alias="Decimal")
    charset: str = Field("", alias="Charset")
    labels: list[str] | None = Field(None, alias="Elems")


class _Column(BaseModel):
    id: _Id
    name: _Name
    type: _FieldType
    state: int
    hidden: bool = False


class _KeyColumn(BaseModel):
    name: _Name


class _Key(BaseModel):
    name: _Name = Field(alias="idx_name")
    columns: list[_KeyColumn] = Field(alias="idx_cols")
    state: int
    is_unique: bool = False
    is_primary: bool = False


class _Partition(BaseModel):
    id: _Id


class _Partitions(BaseModel):
    definitions: list[_Partition] | None = None


class _Table(BaseModel):
    id: _Id
    name: _Name
    columns: list[_Column] | None = Field(None, alias="cols", max_length=MAX_COLUMNS)
    keys: list[_Key] | None = Field(None, alias="index_info")
    partition: _Partitions | None = None
    handle_is_key: bool = Field(False, alias="pk_is_handle")


class _Schema(BaseModel):
    name: _Name = Field(alias="db_name")


class _Result(BaseModel):
    version: _Id = Field(alias="SchemaVersion")
    schema_: _Schema | None = Field(None, alias="DBInfo")
    table: _Table | None = Field(None, alias="TableInfo")
    tables: list[_Table] | None = Field(None, alias="MultipleTableInfos")


class _Job(BaseModel):
    id: _Id
    type: int
    schema_id: _Id
    table_id: _Id = 0
    schema_name: str = ""
    result: _Result | None = Field(None, alias="binlog")


_JOBS = TypeAdapter(list[_Job])


# --- what comes of it ------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class ColumnDefinition:
    """A column that statements see."""

    id: int
    name: str
    code: int
    """Of its type: a `Type`."""
    mysql_type: str
    """As ``SHOW COLUMNS`` writes it."""
    digits: int
    """After the point of a second."""
    is_unsigned: bool
    is_binary: bool
    """A type of texts is one of bytes."""
    is_key: bool


@dataclass(frozen=True, slots=True)
class TableDefinition:
    """A table from one version of the schema on."""

    schema: str
    name: str
    columns: tuple[ColumnDefinition, ...]
    unique_keys: tuple[tuple[str, ...], ...]
    """Of each its name, ``PRIMARY`` for the primary key, and its columns."""
    handle: int
    """The id of the column that is the handle of a row; 0 if none is."""
    partitions: frozenset[int] = frozenset()


@dataclass(frozen=True, slots=True)
class Statement:
    """What a DDL has changed."""

    schema: str
    table: str
    """Empty for a database."""
    drops_column: bool


class Definitions:
    """What a history says. It never changes: more history makes other definitions."""

    def __init__(self, history: bytes, *, asked_at: int = 0) -> None:
        """Read a list of jobs in JSON, in any order. Raises DecodeError, also for more than `MAX_BYTES`.

        ``asked_at``: a version that the cluster had when it gave the history; a job under way makes some, too.
        """
        if len(history) > MAX_BYTES:
            raise DecodeError(f"a history of TiDB's DDL jobs of {len(history)} bytes: {MAX_BYTES} are read at most")
        try:
            jobs = _JOBS.validate_json(history)
        except ValidationError as error:
            first = error.errors(include_url=False, include_input=False)[0]
            place = ".".join(map(str, first["loc"]))
            raise DecodeError(f"not a history of TiDB's DDL jobs: {first['msg']} at {place or 'the start'}") from None
        self._statements: dict[int, Statement | None] = {}
        self._tables: dict[int, list[tuple[int, TableDefinition | None]]] = {}
        self._schemas: dict[int, str] = {}
        self.version = max((asked_at, *(it.result.version for it in jobs if it.result)))
        """Up to which version all is known."""
        for job in sorted(jobs, key=lambda job: (job.result.version if job.result else 0, job.id)):
            self._apply(job)

    def table(self, table_id: int, version: int) -> TableDefinition | None:
        """Return what a table is at a version of the schema; None if the history does not know it there."""
        versions = self._tables.get(table_id, [])
        at = bisect_right(versions, version, key=lambda it: it[0])
        return versions[at - 1][1] if at else None

    def newest(self) -> Iterator[TableDefinition]:
        """Give the tables that there are at the end."""
        return (it for versions in self._tables.values() if (it := versions[-1][1]) is not None)

    def statement(self, job_id: int) -> Statement | None:
        """Return what a job has changed; None if nothing. Raises KeyError if the history does not know it."""
        return self._statements[job_id]

    def _apply(self, job: _Job) -> None:
        result = job.result
        if result is None or result.version == 0:
            self._statements[job.id] = None
            return
        if result.schema_ is not None:
            self._schemas[job.schema_id] = result.schema_.name.original
        schema = self._schemas.get(job.schema_id, job.schema_name)
        tables = [] if result.table is None else [result.table]
        name = tables[0].name.original if tables else ""
        self._statements[job.id] = Statement(schema, name, drops_column=job.type == Action.DROP_COLUMN)
        if job.type == Action.DROP_SCHEMA:
            for table_id in [it for it in self._tables if (known := self._newest(it)) and known.schema == schema]:
                self._put(table_id, result.version, None)
        if job.type in (Action.DROP_TABLE, Action.DROP_VIEW):
            self._put(job.table_id, result.version, None)
            return
        if job.type == Action.TRUNCATE_TABLE:
            self._put(job.table_id, result.version, None)
        if job.type == Action.EXCHANGE_PARTITION:
            self._exchange(job.table_id, tables, result.version)
            return
        for table in result.tables or tables:
            # The tables of one statement may belong to several databases: each stays where it was.
            known = self._newest(table.id)
            is_other = result.tables is not None and known is not None
            self._put(table.id, result.version, _table(known.schema if is_other and known else schema, table))

    def _exchange(self, table_id: int, tables: list[_Table], version: int) -> None:
        """Give a table the id of the partition that the other table, which is the one in the job, has no more."""
        for table in tables:
            before = self._newest(table.id)
            exchanged = self._newest(table_id)
            if before is None:
                continue
            after = _table(before.schema, table)
            for partition in before.partitions - after.partitions:
                self._put(partition, version, exchanged)
            self._put(table_id, version, None)
            self._put(table.id, version, after)

    def _newest(self, table_id: int) -> TableDefinition | None:
        versions = self._tables.get(table_id)
        return versions[-1][1] if versions else None

    def _put(self, table_id: int, version: int, table: TableDefinition | None) -> None:
        self._tables.setdefault(table_id, []).append((version, table))


def _table(schema: str, found: _Table) -> TableDefinition:
    columns = tuple(_column(it) for it in found.columns or () if it.state == PUBLIC and not it.hidden)
    names = {it.name for it in columns}
    handle = next((it for it in columns if it.is_key), None) if found.handle_is_key else None
    keys: list[tuple[str, ...]] = [] if handle is None else [("PRIMARY", handle.name)]
    for key in found.keys or ():
        members = [it.name.original for it in key.columns]
        if key.state == PUBLIC and (key.is_unique or key.is_primary) and names.issuperset(members):
            keys.append(("PRIMARY" if key.is_primary else key.name.original, *members))
    partitions = found.partition.definitions if found.partition else None
    return TableDefinition(
        schema=schema,
        name=found.name.original,
        columns=columns,
        unique_keys=tuple(keys),
        handle=handle.id if handle else 0,
        partitions=frozenset(it.id for it in partitions or ()),
    )


def _column(found: _Column) -> ColumnDefinition:
    kind = found.type
    is_unsigned = bool(kind.flag & (UNSIGNED | ZEROFILL))
    is_binary = kind.charset == "binary"
    return ColumnDefinition(
        id=found.id,
        name=found.name.original,
        code=kind.code,
        mysql_type=_mysql_type(kind, is_binary=is_binary, is_unsigned=is_unsigned),
        digits=min(max(kind.digits, 0), 6),
        is_unsigned=is_unsigned,
        is_binary=is_binary,
        is_key=bool(kind.flag & PRIMARY_KEY),
    )


_INTEGERS = {
    Type.TINY: "tinyint",
    Type.SHORT: "smallint",
    Type.INT24: "mediumint",
    Type.LONG: "int",
    Type.LONGLONG: "bigint",
}
_TEXTS = {
    Type.TINY_BLOB: ("tinytext", "tinyblob"),
    Type.BLOB: ("text", "blob"),
    Type.MEDIUM_BLOB: ("mediumtext", "mediumblob"),
    Type.LONG_BLOB: ("longtext", "longblob"),
}
_TEMPORALS = {Type.TIME: "time", Type.DATETIME: "datetime", Type.TIMESTAMP: "timestamp"}
_FLOATS = {Type.FLOAT: "float", Type.DOUBLE: "double"}


def _mysql_type(kind: _FieldType, *, is_binary: bool, is_unsigned: bool) -> str:
    """Return the type with its length, as TiDB shows it."""
    code, length, digits = kind.code, kind.length, kind.digits
    sign = " unsigned" if is_unsigned else ""
    if code in _INTEGERS:
        return f"{_INTEGERS[Type(code)]}({length}){sign}"
    if code in _FLOATS:
        return f"{_FLOATS[Type(code)]}{f'({length},{digits})' if digits >= 0 else ''}{sign}"
    if code == Type.NEWDECIMAL:
        return f"decimal({length},{max(digits, 0)}){sign}"
    if code in _TEMPORALS:
        return f"{_TEMPORALS[Type(code)]}{f'({digits})' if digits > 0 else ''}"
    if code in _TEXTS:
        return _TEXTS[Type(code)][is_binary]
    if code in (Type.ENUM, Type.SET):
        labels = ",".join(f"'{it.translate(LABEL_ESCAPES)}'" for it in kind.labels or ())
        return f"{'enum' if code == Type.ENUM else 'set'}({labels})"
    if code in (Type.VARCHAR, Type.VAR_STRING, Type.STRING):
        word = "binary" if is_binary else "char"
        return f"{word if code == Type.STRING else f'var{word}'}({length})"
    return {Type.BIT: f"bit({length})", Type.YEAR: "year(4)", Type.DATE: "date", Type.JSON: "json"}.get(
        Type(code) if code in set(Type) else Type.NULL, f"type {code}"
    )
