"""A backup of a server under load: when all that was stored is lost, nothing that came after its cursors is."""

import shutil
from pathlib import Path

import pytest

from sluice.client_sdk import UnknownBatchError
from tests import commands
from tests.conftest import Database
from tests.faults.harness import USUAL, Consumer, Load, Sluice, consuming
from tests.servers import Server
from tests.waiting import eventually

pytestmark = pytest.mark.extended


@pytest.mark.parametrize("source", USUAL, indirect=True)
@pytest.mark.parametrize("store", ["mixed", "file"])
def test_what_follows_the_cursors_of_a_backup_comes_after_all_was_lost_and_restored(
    sluice: Sluice, source: Server, database: Database, tmp_path: Path, store: str
) -> None:
    schema = database(source)
    settings = {"sluice__instance__store": store, "sluice__instance__store__minFree": 0}
    sluice.add("shop", source, canal__instance__filter__regex=rf"{schema}\\..*", **settings)
    load = Load(source, schema)
    backup, conf = tmp_path / "backup.tar", ("--conf", str(sluice.conf))
    with sluice:
        sluice.wait_running()
        sluice.client(1009).subscribe()
        quick = Consumer(sluice.client(1001), "batches")
        with load, consuming(quick):
            eventually(lambda: load.committed > 100 and len(quick.seen) > 100)
            commands.run("backup", "--to", str(backup), *conf, check=True)
            later = load.committed + 100
            eventually(lambda: load.committed > later)
            late = sluice.client(1009).get_without_ack(10.0)
            assert late
            sluice.kill()
            shutil.rmtree(sluice.data)
            restored = commands.run("restore", "--from", str(backup), *conf, check=True).stdout
            assert "what it has acked since is delivered again" in restored
            sluice.start()
            sluice.wait_running()
            with pytest.raises(UnknownBatchError):
                sluice.client(1009).ack(late.batch_id)
            load.finish(stop=True)
            load.check(quick.finish())
        last = Consumer(sluice.client(1009), "batches")
        with consuming(last):
            changes = last.finish()
        load.check(changes)
        load.check_transactions(changes)
        listed = commands.run("log", "list", "shop", "--url", sluice.url, check=True).stdout
        assert "00000000000000000001.log" in listed
        assert "the changes in between are missing" not in listed
    assert "Traceback" not in sluice.log_file.read_text()
