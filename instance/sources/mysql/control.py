"""Python's answers to the decoder's control events: plans for tables, entries for statements and markers."""

import logging
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from dataclasses import replace
from typing import Final

from ....protocol import props
from ....protocol.canal import entry_pb2 as pb
from ....protocol.canal.ddl import DML, Change, Statement, classify
from ....protocol.canal.tags import EventType
from ....protocol.errors import DecodeError, PurgedError, SourceError
from ....protocol.position import Position
from ....store.ring import Flag, Kind, Ring
from ...agreement import Agreement
from ...columns import describe
from ...quarantine import Item, Kept, Quarantine
from ...sink.filters import TableFilter
from ...values.charset import decode
from .ahead import Ahead
from .config import BinlogConfig
from .decode.decoder import Decoder
from .decode.events import BinlogEvent, Event
from .decode.plan import PlanOptions, TablePlan
from .decode.table_map import TableMap, counts_years
from .history.statements import Context
from .history.tables import CatalogChange
from .query import Query
from .schema import Schemas, TableSchema
from .start import PlaceFinder, error_text
from .xa import KeptPart, PreparedPart, PreparedTransactions, prepared_xid, resolved_xid

logger = logging.getLogger(__name__)

_THREAD_SPECIFIC: Final = 0x4
"""The flag LOG_EVENT_THREAD_SPECIFIC_F of an event: its statement uses temporary tables of its session."""
_XA_ENDS: Final[tuple[tuple[str, "pb.EventType.ValueType"], ...]] = (
    ("XA COMMIT", pb.XACOMMIT),
    ("XA ROLLBACK", pb.XAROLLBACK),
)
_UNNAMED: Final = "; set binlog_row_metadata=FULL on the source to rule this out"
_OPEN: Final = ", in which a column may have become UUID, INET4 or INET6, or was one before"
_KEPT_PART: Final = 8
"""The part of the ring's memory that the events of prepared XA transactions may take beside it."""
_PURGED: Final = (
    "purged binary logs",
    "purged required binary logs",
    "could not find first log file",
    "required binlog files have been purged",
)
"""What MySQL says, and in the last one MariaDB, when a dump asks for what they no longer have."""


class Control:
    """Answers control events. What belongs to the current source is set before each dump."""

    schemas: Schemas
    charsets: Mapping[int, str]
    mariadb: bool
    asks_schemas: bool
    """See `ServerFacts.asks_schemas`."""
    renames_silently = False
    """See `ServerFacts.renames_silently`."""
    finder: Callable[[], AbstractContextManager[PlaceFinder]]
    """Makes what searches in the binlog; it ends with the parser."""
    commits_in_one_phase: Callable[[str, int], bool]
    """Whether the XA transaction that begins there ends by ``XA COMMIT … ONE PHASE``, not by ``XA PREPARE``."""
    dump: Callable[[Position], PreparedPart]
    """Lets the source send again what begins at a place. Raises PurgedError and SourceError."""

    def __init__(self, config: BinlogConfig, ring: Ring, decoder: Decoder, quarantine: Quarantine) -> None:
        """Answer for `decoder`, which writes for `ring`."""
        self._config = config
        self._tables = ring.tables
        self._decoder = decoder
        self._fields = config.field_filter()
        self._conditions = config.conditions()
        self._masks = config.masks()
        self._grouping = config.grouping()
        self._agreement, self._member = Agreement(), ""
        self._compared = 0  # the changes of that as of which plans count
        self._quarantine = quarantine
        self._description = b""  # the body of the last FORMAT_DESCRIPTION event
        self._answers: dict[int, Callable[[Event], None]] = {
            BinlogEvent.TABLE_MAP_EVENT: self._table_map,
            BinlogEvent.QUERY_EVENT: self._query,
            BinlogEvent.XA_PREPARE_EVENT: self._xa_prepare,
            BinlogEvent.INCIDENT_EVENT: self._incident,
            BinlogEvent.ERROR_PACKET: self._error_packet,
            BinlogEvent.EOF_PACKET: self._eof_packet,
        }
        self.dml_statements = 0
        """Changes that were logged as statements and so were not delivered as rows."""
        self._doubtful: dict[tuple[str, str], tuple[int, int]] = {}
        """Tables whose plans flag their rows, and the place (file number, offset) where the doubt ends."""
        self._ahead = Ahead(config, lambda: self.finder(), self._changes_of)  # noqa: PLW0108  set before each dump
        self._altered: dict[tuple[str, str], int] = {}
        """Tables that are not known since a statement of the last second that had such ones, and that Unix time."""
        self.pending_gap = ""
        """What was left out before the next change, "" for nothing."""
        self.pending_shape = ""
        """How entries are shaped from the next table on, "" if as before."""
        self.prepared = PreparedTransactions(ring.restarts, ring.memory // _KEPT_PART)
        self.part: PreparedPart | None = None
        """Where the decoder gets the prepared part of the XA transaction that is committed."""
        self._committed = ""  # its xid
        self._use(config.table_filter())

    def answer(self, event: Event) -> None:
        """Answer a control event.

        Raises SourceError for the end of the dump or an unavailable schema, and DecodeError for rows that cannot be
        decoded if the configuration says to stop.
        """
        if event.error is not None:
            self._undecodable(event, event.error)
            return
        if self.pending_gap and (
            event.type == BinlogEvent.TABLE_MAP_EVENT
            or (event.type == BinlogEvent.QUERY_EVENT and not resolved_xid(event.body))
        ):
            self._put_marker(event, Kind.GAP, props.GAP, self.pending_gap)
            self.pending_gap = ""
        if self.pending_shape and event.type == BinlogEvent.TABLE_MAP_EVENT:  # no entry has its place
            self._put_marker(event, Kind.QUERY, props.SHAPE, self.pending_shape)
            self.pending_shape = ""
        answer = self._answers.get(event.type)
        if event.type == BinlogEvent.FORMAT_DESCRIPTION_EVENT:
            self._description = event.body
        if answer is None:  # ROTATE, FORMAT_DESCRIPTION, GTID lists: only of interest to the thread
            self._decoder.skip_event()
        else:
            answer(event)

    def refilter(self, table_filter: TableFilter) -> None:
        """Use another filter, from the next statement."""
        if table_filter is not self._filter:
            self._use(table_filter)
            self._decoder.forget_plans()

    def _use(self, table_filter: TableFilter) -> None:
        self._filter = table_filter
        self._decoder.drops_statements = not self._config.passes_texts(table_filter)

    def agree_with(self, agreement: Agreement, member: str) -> None:
        """Compare the columns of split tables with those of other members, too."""
        self._agreement, self._member = agreement, member

    def compare_again(self) -> None:
        """Compare split tables again if one was changed, at whatever member: those that differed may agree now."""
        changes = self._agreement.changes
        if changes != self._compared:
            self._compared = changes
            self._decoder.forget_plans()

    def follow(self, event: Event) -> None:
        """Let an event that is before the start change the tables, if it is a statement that does."""
        query = Query.parse(event.body) if event.type == BinlogEvent.QUERY_EVENT and event.body else None
        if query is None:
            return
        sql = self._text(query)
        changes = self._classify(query, sql).changes
        if not changes or changes[0].event_type not in DML:
            self._apply(event, query, sql)

    def settle(self) -> None:
        """Stop flagging rows once the stream reaches the place at which their schema was asked for."""
        at = self._decoder.position
        if at is None or at.n:  # within a transaction its table maps count
            return
        for it in self.schemas.settle(at):
            self._forget_plans(it)
        here = at.file_number, at.begin
        for table in [table for table, end in self._doubtful.items() if end <= here]:
            del self._doubtful[table]
            self._decoder.forget_plans(*table)

    # --- tables

    def _table_map(self, event: Event) -> None:
        years = counts_years(self._decoder.server_version or "")
        table_map = TableMap.parse(event.body, mariadb=self.mariadb, years=years)
        schema, table = table_map.schema, table_map.table
        delivered = self._grouping.of(schema, table)
        options = PlanOptions(
            strict_canal=self._config.strict_canal,
            time_zone=self._config.time_zone,
            connection_charset=self._config.connection_charset,
            excluded=not self._filter.accepts(schema, table),
            fields=self._fields.kept(schema, table),
            black_fields=self._fields.dropped(schema, table),
            where=self._conditions.of(schema, table) if self._conditions else None,
            splits=self._config.filter_crossing == "split",
            whole_doubles=(self._decoder.server_version or "").startswith("5."),
            masks=self._masks.of(schema, table),
            mask_secret=self._config.mask_secret.get_secret_value().encode(),
            delivered=delivered,
        )
        if options.excluded:
            self._decoder.add_plan(TablePlan(table_map, (), 0, options))
            return
        name = delivered or (schema, table)
        try:
            known, plan = self._plan(event, table_map, name, options)
            if delivered is not None:
                keeps = self._fields.keeps
                columns = [it for it in known.columns if it.name and keeps(schema, table, it.name)]
                self._agreement.check(delivered, (schema, table), columns, self._member)
        except DecodeError as error:
            logger.warning("the rows of %s.%s at %s cannot be decoded: %s", schema, table, event.position, error)
            if self._config.filter_table_error:
                plan = TablePlan(table_map, (), 0, PlanOptions(excluded=True))
            else:
                number = self._tables.intern((*name, *table_map.text_collations))
                plan = TablePlan(table_map, (), number, options, 0, str(error))
        self._decoder.add_plan(plan)

    def _plan(
        self, event: Event, table_map: TableMap, name: tuple[str, str], options: PlanOptions
    ) -> tuple[TableSchema, TablePlan]:
        known = self.schemas.table(table_map, self.charsets, event.timestamp, event.position)
        try:
            return known, self._plan_with(known, event, table_map, name, options)
        except DecodeError as error:  # known from before a DDL that left no trace in the binlog?
            self.schemas.drop(table_map, known, str(error))
        known = self.schemas.table(table_map, self.charsets, event.timestamp, event.position)
        return known, self._plan_with(known, event, table_map, name, options)

    def _plan_with(
        self, known: TableSchema, event: Event, table_map: TableMap, table: tuple[str, str], options: PlanOptions
    ) -> TablePlan:
        flags = Flag.FUTURE_SCHEMA if known.is_uncertain else 0
        if self._is_doubtful(known, event, table_map):
            flags = Flag.FUTURE_SCHEMA
            if known.seen is not None:
                self._doubtful[table_map.schema, table_map.table] = known.seen
            if known.contradiction:
                raise DecodeError(f"{known.contradiction}; what the source has now may be younger than these rows")
            logger.warning(
                "schema-from-the-future: the rows of %s.%s at %s may be older than its last DDL%s",
                table_map.schema,
                table_map.table,
                event.position,
                _OPEN if table_map.has_names else _UNNAMED,
            )
        for name in options.masks.keys() - {column.name.upper() for column in known.columns}:
            logger.warning("%s.%s has no column %s, which has a mask", table_map.schema, table_map.table, name)
        (collations,) = table_map.text_collations or ((),)
        number = self._tables.intern((*table, collations, _described(known, table_map, options)))
        return TablePlan(table_map, known.columns, number, options, flags)

    def _is_doubtful(self, known: TableSchema, event: Event, table_map: TableMap) -> bool:
        """Whether the source may have had another table, or other columns, when it logged rows than when it was asked.

        A row of the second in which it altered the table fits if that was a statement before it, and none follows. So
        does a row where none follows, and the source does not say when it altered the table.
        """
        table, at, seen = self._key(table_map.schema, table_map.table), event.position, known.seen
        if known.is_younger(event.timestamp, at):
            may_fit = known.altered is None or known.altered == event.timestamp == self._altered.get(table)
            return at is None or seen is None or not may_fit or self._ahead.alters(table, at, seen) is not False
        if not self.renames_silently or at is None or seen is None or seen <= (at.file_number, at.begin):
            return False
        return self._ahead.moves(table, at, seen) is not False

    def _changes_of(self, event: Event) -> list[CatalogChange]:
        """Return what an event may change where nothing is known; none if it is no statement of DDL."""
        query = Query.parse(event.body) if event.type == BinlogEvent.QUERY_EVENT and event.body else None
        if query is None:
            return []
        sql = self._text(query)
        changes = self._classify(query, sql).changes
        if changes and changes[0].event_type in DML:
            return []
        return self.schemas.changes_of(sql, self._context(event, query))

    def _key(self, schema: str, table: str) -> tuple[str, str]:
        return (schema.lower(), table.lower()) if self.schemas.ignore_case else (schema, table)

    def _undecodable(self, event: Event, error: DecodeError) -> None:
        if not self._config.quarantine:
            raise error
        plan = event.plan
        assert plan is not None
        if self._config.filter_table_error:
            logger.warning("dropped at %s: %s", event.position, error)
            self._decoder.skip_event()
            return
        logger.error("put into quarantine at %s: %s", event.position, error)
        reason = str(error)
        if self._fields.kept(plan.schema, plan.table) is not None or self._fields.dropped(plan.schema, plan.table):
            # It may name columns that are not delivered; clients are given it, and may read the list.
            reason = f"rows of {plan.schema}.{plan.table} cannot be decoded: the server's log says why at this place"
        header = self._put_marker(event, Kind.QUARANTINE, props.QUARANTINE, reason, plan)
        self._quarantine.add(
            Item(
                position=str(event.position),
                schema=plan.schema,
                table=plan.table,
                event_type=event.type,
                timestamp=event.timestamp,
                server_id=event.server_id,
                length=event.length,
                error=reason,
                table_map=(event.table_map or b"").hex(),
            ),
            Kept(event.type, event.body, self._description, header.SerializeToString()),
        )

    # --- statements

    def _query(self, event: Event) -> None:
        query = Query.parse(event.body)
        if query is None:
            raise DecodeError(f"a QUERY event that is too short for its fields at {event.position}")
        sql = self._text(query)
        head = sql[:11].upper()
        for words, event_type in _XA_ENDS:
            if head.startswith(words):
                xid = sql[len(words) :]
                if self._decoder.moves_xa:
                    self._resolve(event, xid.strip(), commits=event_type == pb.XACOMMIT)
                    return
                pairs = [pb.Pair(key="XA_TYPE", value=words), pb.Pair(key="XA_XID", value=xid)]
                change = pb.RowChange(eventType=event_type, sql=sql, props=pairs)
                self._put(event, Kind.QUERY, event_type, "", "", change)
                return
        statement = self._classify(query, sql)
        changes = statement.changes
        if changes and changes[0].event_type in DML:
            self._dml(event, query, sql, changes[0])
            return
        self._apply(event, query, sql)
        if changes and self._passes(changes):
            self._put_statement(event, query, sql, changes[0], for_all=len(statement.tables) > 1)
        else:
            self._decoder.skip_event()

    def _dml(self, event: Event, query: Query, sql: str, change: Change) -> None:
        """A session has binlog_format=STATEMENT: it has no rows to deliver, and that must not be overlooked."""
        self.dml_statements += 1
        is_named = change.schema is not None and change.table is not None
        what = f"the change of {change.schema}.{change.table}" if is_named else "a change of tables that are not known"
        logger.error(
            "%s at %s was logged as a statement: its rows cannot be delivered; some session sets binlog_format to"
            " STATEMENT or MIXED",
            what,
            event.position,
        )
        if self._decoder.drops_statements:
            self._decoder.skip_event()
        else:
            self._put_statement(event, query, sql, change)

    def _context(self, event: Event, query: Query) -> Context:
        return Context(
            query.schema,
            query.status.sql_mode,
            self.charsets.get(query.status.server_collation or 0),
            self.charsets.get(query.status.connection_collation or 0),
            self._charset(query),
            failed=query.error != 0,
            uses_temporary=event.flags & _THREAD_SPECIFIC != 0,
        )

    def _apply(self, event: Event, query: Query, sql: str) -> None:
        """Let a statement change the tables, and forget the plans that it outdates."""
        at = event.position
        after = None if at is None else replace(at, begin=event.offset + event.length, n=0)
        changes = self.schemas.apply(sql, self._context(event, query), at, after)
        if changes and self.schemas.ignore_case:
            self._decoder.forget_plans()
        for it in changes:
            self._forget_plans(it)
        for schema, table in {(it.schema, it.table) for it in changes if self.schemas.is_unknown(it)}:
            if event.timestamp not in self._altered.values():
                self._altered.clear()
            self._altered[self._key(schema, table)] = event.timestamp
            if self.asks_schemas:
                self.schemas.ask_ahead(schema, table, event.timestamp)

    def _forget_plans(self, change: CatalogChange) -> None:
        if change.kind == "charset":
            return
        self._agreement.forget(change.schema, change.table, self._member)
        self._decoder.forget_plans(change.schema or None, change.table or None)
        self.compare_again()

    def _passes(self, changes: tuple[Change, ...]) -> bool:
        if self._config.filter_query_ddl:
            return False
        if changes[0].event_type == EventType.QUERY:
            return not self._config.filter_query_dcl
        return any(self._filter.accepts(*table) for change in changes for table in change.tables)

    def _put_statement(self, event: Event, query: Query, sql: str, change: Change, *, for_all: bool = False) -> None:
        """``for_all``: the header names one table of several, so a subscriber's filter must not use it."""
        is_dml = change.event_type in DML
        row_change = pb.RowChange(
            eventType=change.event_type.value,  # type: ignore[arg-type]
            isDdl=not is_dml,
            sql=sql,
            ddlSchemaName=query.schema,
        )
        kind = Kind.QUERY if is_dml or change.event_type == EventType.QUERY else Kind.DDL
        self._put(event, kind, change.event_type, change.schema, change.table, row_change, for_all=for_all)

    def _charset(self, query: Query) -> str:
        return self.charsets.get(query.status.client_collation or 0, "latin1")

    def _classify(self, query: Query, sql: str) -> Statement:
        return classify(sql, query.schema, query.status.sql_mode, self._charset(query))

    def _text(self, query: Query) -> str:
        try:
            return decode(query.sql, self._charset(query))
        except DecodeError:  # nothing depends on single characters in the text of a statement
            return query.sql.decode("utf-8", "replace")

    # --- XA transactions, whose rows belong to their XA COMMIT

    def _xa_prepare(self, event: Event) -> None:
        """A prepared part has ended, when it was prepared or when it is read again; or it is not known how one ends."""
        position = event.position
        assert position is not None
        if self.part is not None:
            self.close_part()
            self.prepared.resolve(self._committed, position)
        elif event.body:
            self.prepared.add(prepared_xid(event.body), replace(position, n=0), self._decoder.kept, position)
        else:  # the decoder does not see it, because it is far
            one_phase = self.commits_in_one_phase(position.file, position.begin)
            self._decoder.decide_xa(one_phase=one_phase)

    def _resolve(self, event: Event, xid: str, *, commits: bool) -> None:
        position = event.position
        assert position is not None
        begin = self.prepared.find(xid, position)
        if not commits or self._decoder.is_past:
            if begin is None and self.prepared.has_unknown:
                self._search(xid, position)
            self.prepared.resolve(xid, position)
            self._decoder.skip_event()
            return
        begin = begin or self._search(xid, position)
        self.part = self._open_part(xid, begin) if begin is not None else None
        if begin is not None and self.part is not None:
            self._committed = xid
            self._decoder.recall(xid, begin)
            return
        reason = f"the XA transaction {xid} is committed here, but the source has purged where it was prepared"
        if self._decoder.is_partial:  # some of its rows were delivered
            raise PurgedError(f"{position}: {reason}")
        logger.error("gap at %s: %s", position, reason)
        self._put_marker(event, Kind.GAP, props.GAP, reason)
        self.prepared.resolve(xid, position)

    def _open_part(self, xid: str, begin: Position) -> PreparedPart | None:
        """Return where a prepared part comes from; None if it is purged."""
        kept = self.prepared.kept(xid)
        if kept is not None:
            return KeptPart(kept)
        try:
            return self.dump(begin)
        except PurgedError as error:
            logger.warning("the prepared part of the XA transaction %s: %s", xid, error)
            return None

    def _search(self, xid: str, at: Position) -> Position | None:
        """Look in the binlog for where a transaction was prepared, from the newest file to the oldest."""
        if self.prepared.is_complete:
            return None
        logger.info("looking for where the XA transaction %s was prepared, which ends at %s", xid, at)
        with self.finder() as finder:
            for found in finder.prepared_before(at):
                self.prepared.discover(found, at)
                if xid in found:
                    return found[xid]
        self.prepared.complete(at)
        return None

    def close_part(self) -> None:
        """Release where a prepared part comes from."""
        if self.part is not None:
            self.part.close()
            self.part = None

    # --- what breaks the stream

    def _incident(self, event: Event) -> None:
        """Body: number 2, length of the message 1, message. The source says that its binlog lacks changes."""
        reason = event.body[3:].decode("utf-8", "replace") or "no reason given"
        logger.error("gap at %s: the source has lost changes (incident event): %s", event.position, reason)
        self._put_marker(event, Kind.GAP, props.GAP, f"the source has lost changes: {reason}")

    def _error_packet(self, event: Event) -> None:
        text = error_text(event.body)
        # If it purges a prepared part just now, the next attempt to read that finds out.
        is_purged = self.part is None and any(sign in text.lower() for sign in _PURGED)
        raise (PurgedError if is_purged else SourceError)(f"the source ended the dump: {text}")

    def _eof_packet(self, event: Event) -> None:
        del event
        raise SourceError("the source ended the dump: it shuts down, or another replica has the same server id")

    # --- entries

    def _put_marker(self, event: Event, kind: Kind, key: str, reason: str, plan: TablePlan | None = None) -> pb.Header:
        schema, table, number = "", "", 0
        if plan is not None:
            schema, table, number = plan.delivered_schema, plan.delivered_table, plan.number
        change = pb.RowChange(eventType=pb.QUERY, isDdl=False, sql=f"-- {key}: {reason}")
        return self._put(event, kind, pb.QUERY, schema, table, change, pb.Pair(key=key, value=reason), number)

    def _put(
        self,
        event: Event,
        kind: Kind,
        event_type: int,
        schema: str | None,
        table: str | None,
        change: pb.RowChange,
        prop: pb.Pair | None = None,
        number: int = 0,
        *,
        for_all: bool = False,
    ) -> pb.Header:
        """Put an entry of type ROWDATA, and return its header; `schema` or `table` None leaves its field unset."""
        position = event.position
        assert position is not None
        header = pb.Header(
            version=1,
            logfileName=position.file,
            logfileOffset=event.offset,
            serverId=event.server_id,
            serverenCode="UTF-8",
            executeTime=event.timestamp * 1000,
            sourceType=pb.MYSQL,
            schemaName=schema or "",
            tableName=table or "",
            eventLength=event.length,
            eventType=event_type,  # type: ignore[arg-type]
            gtid=self._decoder.executed,
        )
        # Messages merge when their bytes are joined: the decoder has encoded the props of the transaction.
        header.MergeFromString(self._decoder.header_props)
        if prop is not None:
            header.props.append(prop)
        entry = pb.Entry(header=header, entryType=pb.ROWDATA, storeValue=change.SerializeToString())
        if not number and schema and table and not for_all and self._filter.accepts(schema, table):
            number = self._tables.intern((schema, table))
        flags = Flag.TEXT if event_type in DML else 0
        self._decoder.put_entry(entry.SerializeToString(), kind, event_type, number, flags)
        return header


def _described(known: TableSchema, table_map: TableMap, options: PlanOptions) -> str:
    """Return the text that describes the columns as they are delivered."""
    shown = []
    for column, is_nullable in zip(known.columns, table_map.nullable, strict=False):  # whether they fit is seen later
        name = column.name.upper()
        is_kept = name in options.fields if options.fields is not None else name not in options.black_fields
        if name and is_kept:
            mask = options.masks.get(name)
            becomes_null = mask is not None and mask.kind == "null"
            shown.append((column if mask is None else mask.shown(column), is_nullable or becomes_null))
    return describe(shown)
