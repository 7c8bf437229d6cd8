"""The settings of the log of a pump as a source."""

from pathlib import Path
from typing import Annotated, ClassVar, Literal, Self

from pydantic import AfterValidator, BeforeValidator, model_validator

from ...config import lower
from ...settings import FolderPath, names, setting, urls
from ..kafka.config import TidbConfig


class PumpLogConfig(TidbConfig):
    """The configuration of a destination whose source is what a pump of this machine has stored."""

    source_title: ClassVar[str] = "the log of a pump for TiDB"

    source: Annotated[Literal["pump"], BeforeValidator(lower)] = setting("sluice.instance.source", "pump")
    commit_ts: int = setting("sluice.instance.pump.commitTs", 0, ge=0, lt=1 << 63)
    """The commit_ts to start after if no client has a cursor. 0 starts at the end of the log."""
    history: FolderPath | None = setting("sluice.instance.pump.history", None)
    """File with the history of TiDB's DDL jobs, as TiDB answers `GET /ddl/history`. Sluice reads it again when it
    meets a change that the file does not explain. Empty: Sluice asks the servers of `sluice.pump.tidbStatus`."""

    # Those of the pump, which describes them.

    folder: FolderPath = setting("sluice.pump.dir", Path("pump"))
    cluster_id: int = setting("sluice.pump.clusterId", ge=1, lt=1 << 64)
    tidb_status: Annotated[tuple[str, ...], BeforeValidator(names), AfterValidator(urls)] = setting(
        "sluice.pump.tidbStatus", ()
    )
    tls_cert: FolderPath | None = setting("sluice.pump.tlsCert", None)
    tls_key: FolderPath | None = setting("sluice.pump.tlsKey", None)
    tls_ca: FolderPath | None = setting("sluice.pump.tlsCa", None)

    @property
    def file(self) -> str:
        """See `TidbConfig.file`: the cluster, whose timestamps places are."""
        return f"{self.cluster_id}.tso.0"

    @property
    def start_after(self) -> int:
        """See `TidbConfig.start_after`."""
        return self.commit_ts

    @property
    def place(self) -> str:
        """See `InstanceConfig.place`."""
        return f"the log of a pump in {self.folder}"

    @model_validator(mode="after")
    def _check_pump(self) -> Self:
        if self.meta.is_shared:
            raise ValueError(
                "canal.zkServers is set, so after a failover another server reads the log of its own pump, which has"
                " other transactions. Serve this destination by a server without canal.zkServers"
            )
        if self.history is None and not self.tidb_status:
            raise ValueError(
                "sluice.instance.source = pump needs sluice.pump.tidbStatus, the TiDB servers to ask for the history of"
                " DDL jobs, or sluice.instance.pump.history, a file with it"
            )
        return self
