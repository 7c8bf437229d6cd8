"""What the commands ask the log of a pump without starting anything."""

from collections.abc import Mapping, Sequence
from typing import Self

from ....protocol.errors import PurgedError, SluiceError
from ....protocol.position import Position
from ....protocol.tidb.binlog_pb2 import Binlog, BinlogType
from ....protocol.wire import varint
from ....store.cursor import Cursor
from ...pump.view import LogView, NoLogError
from ...quarantine import Item, path_of, read_kept
from ...source import Reread
from ..examination import ServerlessExamination
from .config import PumpLogConfig
from .history import read_definitions
from .places import LogFinder, reading
from .rows import TransactionEncoder, Undecodable


class PumpExamination(ServerlessExamination):
    """A look into the folder of a pump: see `sluice.instance.source.Examination`."""

    exposure = ""
    protection = "there is none to log in with: files are read"

    def __init__(self, config: PumpLogConfig) -> None:
        """Prepare."""
        self._config: PumpLogConfig = config
        self._view = LogView(config.folder, config.cluster_id)
        self._finder = LogFinder(self._view, config)
        self._missing = ""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        """Nothing is open."""

    def check(self, *, is_replaced: bool) -> None:
        """See `sluice.instance.source.Examination.check`: the log, and the history of DDL jobs."""
        del is_replaced
        with reading():
            try:
                self._view.segments()
            except NoLogError as error:
                self._missing = str(error)
        read_definitions(self._config)

    def summary(self) -> str:
        """See `sluice.instance.source.Examination.summary`."""
        if self._missing:
            return self._config.place
        oldest, end = self._finder.oldest().commit_ts, self._finder.end().commit_ts
        return f"{self._config.place}, of the cluster {self._config.cluster_id}: after {oldest}, to commit_ts {end}"

    def advice(self) -> list[str]:
        """See `sluice.instance.source.Examination.advice`."""
        return [f"{self._missing}, which is right before its first start"] if self._missing else []

    def tables(self, column: str = "") -> list[tuple[str, str]]:
        """Return the tables that the history of DDL jobs ends with."""
        return sorted(
            (it.schema, it.name)
            for it in read_definitions(self._config).newest()
            if not column or column.lower() in (known.name.lower() for known in it.columns)
        )

    def find(self, place: Cursor | None) -> str:
        """See `sluice.instance.source.Examination.find`."""
        return f"{self._config.place}, after the commit_ts {self._finder.find(place).commit_ts}"

    def refused(self, places: Sequence[Cursor | None]) -> Mapping[Cursor | None, SluiceError]:
        """See `sluice.instance.source.Examination.refused`."""
        if self._missing:
            return {}
        start, refused = self._finder.find_first(places)
        if start is None:
            raise next(iter(refused.values()))
        return refused

    def reread(self, item: Item) -> Reread:
        """Decode the changes of a table again, with the history of DDL jobs as it is now."""
        config = self._config
        with reading():
            kept = read_kept(path_of(config.file_data_dir, config.destination), item.position)
        if kept is None:
            raise PurgedError("its bytes were not kept (sluice.instance.quarantine.maxBytes)")
        place, reasons = Position.parse(item.position), list[str]()

        def note(it: Undecodable) -> bool:
            reasons.append(it.reason)
            return False

        encoder = TransactionEncoder(config.file, read_definitions(config), time_zone=config.time_zone, on_trouble=note)
        whole = Binlog(tp=BinlogType.Commit, start_ts=1, commit_ts=place.begin, prewrite_value=kept.body)
        _, *entries, _ = encoder.encode(whole.SerializeToString(), place.begin).entries
        if reasons:
            return Reread(b"", reasons[0])
        places = (varint(place.begin) + varint(place.n + number) for number in range(len(entries)))
        return Reread(b"".join(it.data for it in entries), "", b"".join(places))
