"""Disks that are full, and files that are torn or damaged."""

import os
import signal
import time

import pytest
from tests.faults.limits import make_room, no_room, refuses
from tests.faults.player import (
    LEARNER,
    Player,
    assert_all_is_there,
    learners_in,
    learners_of,
    processes,
)
from tests.faults.serving import Served
from tests.waiting import eventually

from arkml.hive.protocol.audit import checksum, row_hashes
from arkml.hive.protocol.rows import read_records
from arkml.runs.hive_access import HiveGrant

pytestmark = pytest.mark.faults


@pytest.fixture
def player(tmp_path):
    made = Player(HiveGrant(data=tmp_path))
    yield made
    made.close()


def test_rows_wait_while_the_disk_is_full(player, tmp_path):
    with player.playing():
        assert player.gets_a_version()
        before = no_room(player.server)
        refused = refuses(tmp_path, 3)
        frames, accepted = player.frames, player.session.ledger.accepted
        time.sleep(3.0)
        played, newly = player.frames - frames, player.session.ledger.accepted - accepted
        make_room(player.server, before)

        assert player.gets_a_version()
    waited = player.waited
    assert_all_is_there(player)

    assert refused
    assert newly == 0
    assert played > 50
    assert waited < 1


def test_rows_that_a_full_disk_keeps_too_long_are_counted(player, tmp_path):
    player.session.outbox.max_rows = 4_096  # rows: those of 64 MiB would take an hour
    player.pause = 0.001
    with player.playing():
        assert player.gets_a_version()
        before = no_room(player.server)
        refused = refuses(tmp_path, 3)
        dropping = eventually(lambda: player.session.outbox.dropped > 10_000)
        make_room(player.server, before)
    arrived = eventually(player.settled)
    ledger, dropped = player.session.ledger, player.session.outbox.dropped
    found = player.audit(ledger.accepted)

    assert refused
    assert dropping
    assert arrived
    assert player.waited < 1
    assert ledger.refused == ledger.discarded == 0
    assert ledger.accepted + dropped == 32 * player.frames
    assert (found["held"], int(found["checksum"])) == (ledger.accepted, ledger.checksum)


def test_a_learner_without_room_goes_on_learning_and_publishes_once_there_is(player, tmp_path):
    learner, _ = learners_in(tmp_path)[-1]
    with player.playing():
        assert player.gets_a_version()
        before = no_room(learner, 16)
        time.sleep(3.0)  # a version that was written before is published
        acting, updates = player.version, player.client.run(player.run.id).result().n_opts
        time.sleep(15.0)
        stayed, trained = player.version, player.client.run(player.run.id).result().n_opts
        make_room(learner, before)

        assert player.gets_a_version()
    assert stayed == acting
    assert trained > updates
    assert learner in learners_of(player.server)
    assert_all_is_there(player)


def last_segment(data, run_id):
    return max((data / "runs" / run_id / "rows").glob("*.rows"))


def records(path):
    data = memoryview(path.read_bytes())
    return list(read_records(data, 0, len(data)))


@pytest.mark.parametrize("cut", [False, True], ids=["half a record more", "half a record less"])
def test_a_torn_segment_loses_only_what_is_torn(tmp_path, cut):
    with Served(tmp_path / "data") as served:
        player = Player(served.grant())
        player.play(1.0)
        assert eventually(player.settled)
        ledger = player.session.ledger
        served.end(signal.SIGKILL)
        path = last_segment(served.data, player.run.id)
        found = records(path)
        last = found[-1]
        torn = len(last.columns) if cut else 0
        lost = row_hashes(last.session, last.header.kind, last.columns) if cut else ()
        start = found[-2].end
        half = path.read_bytes()[start : (start + last.end) // 2]
        with path.open("r+b") as file:
            if cut:
                file.truncate(start + len(half))
            else:
                file.seek(last.end)
                file.write(half)
        del found, last
        lives = len(learners_in(served.data))
        served.start()
        with player.playing():
            recovered = player.recovers(served.data, lives)
        assert eventually(player.settled)
        told = player.audit(ledger.accepted - torn)
        failure = player.session.failure
        player.close()

    assert recovered
    assert failure is None
    assert told["held"] == ledger.accepted - torn
    assert int(told["checksum"]) == ledger.checksum ^ checksum(lost)


def truncated(path):
    os.truncate(path, path.stat().st_size // 2)


def corrupted(path):
    with path.open("r+b") as file:
        file.seek(path.stat().st_size // 2)
        byte = file.read(1)[0]
        file.seek(-1, os.SEEK_CUR)
        file.write(bytes([byte ^ 0x55]))


@pytest.mark.parametrize("damage", [truncated, corrupted])
def test_a_damaged_checkpoint_is_passed_over_for_the_one_before(tmp_path, damage):
    with Served(tmp_path / "data") as served:
        player = Player(served.grant())
        with player.playing():
            for _ in range(2):
                assert player.gets_a_version()
                player.client.checkpoint(player.run.id).result()
            served.end(signal.SIGKILL)
            learner, _ = learners_in(served.data)[-1]
            assert eventually(lambda: learner not in processes(LEARNER), 10)
            *_, older, newest = sorted(
                (served.data / "runs" / player.run.id / "checkpoints").glob("*.safetensors")
            )
            damage(newest)
            lives = len(learners_in(served.data))
            served.start()
            recovered = player.recovers(served.data, lives)
        _, updates = learners_in(served.data)[-1]
        assert_all_is_there(player)
        player.close()

    assert recovered
    assert updates == int(older.stem)
