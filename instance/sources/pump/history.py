"""Where the history of TiDB's DDL jobs comes from: a file, or a TiDB."""

from contextlib import closing

from ....login.etcd import tls_of
from ....protocol.errors import SourceError
from ...pump.cluster import Cluster
from .config import PumpLogConfig
from .definitions import MAX_BYTES, Definitions


def read_definitions(config: PumpLogConfig, version: int = 0) -> Definitions:
    """Return what is known of the tables now; ``version``: one that the cluster is known to have had.

    A file may have been written before that version; TiDB has all jobs that were complete then. Raises SourceError and
    DecodeError.
    """
    path = config.history
    try:
        if path is not None:
            with path.open("rb") as file:
                return Definitions(file.read(MAX_BYTES + 1))
        tls = tls_of(config.tls_ca, config.tls_cert, config.tls_key)
    except OSError as error:
        raise SourceError(f"the history of TiDB's DDL jobs cannot be read: {error}") from error
    with closing(Cluster((), config.tidb_status, tls)) as cluster:
        return Definitions(cluster.jobs(MAX_BYTES), asked_at=version)
