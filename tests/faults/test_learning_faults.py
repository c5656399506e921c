"""Learners that go wrong, and hosts that share one."""

import os
import signal
import threading
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import onnx
import pytest
from msgspec.structs import replace
from tests.faults.player import (
    SETTINGS,
    Player,
    assert_all_is_there,
    expected_checksum,
    learners_in,
    learners_of,
)
from tests.faults.serving import TOKEN, OtherHost, Served
from tests.integration.hive_service import FAKE
from tests.waiting import eventually

from arkml.errors import NotFound
from arkml.hive.embedded import EmbeddedHive
from arkml.hive.protocol.runs import OnConflict, RunRequest, Status
from arkml.runs.hive_access import HiveAccess, HiveGrant

pytestmark = pytest.mark.faults

HANGS = 4.0
"""Seconds of patience with a learner that tells nothing."""


def grant_of(hive):
    address = hive.locate()
    host, port, token = address.host, address.port, address.token
    return HiveGrant(hive=f"{host}:{port}", token=token)


def is_finite(model):
    weights = onnx.load_model_from_string(model).graph.initializer
    return all(np.isfinite(onnx.numpy_helper.to_array(weight)).all() for weight in weights)


def test_losses_that_are_no_numbers_are_never_played_and_abort_the_run_at_last(tmp_path):
    with Served(tmp_path / "data") as served:
        player = Player(served.grant(), settings=replace(SETTINGS, normalize=False))
        played = {}
        with player.playing():
            assert player.gets_a_version()
            saved = player.client.checkpoint(player.run.id).result()
            lives = len(learners_in(served.data))
        player.reward, told = 3e38, ""

        def is_over():
            played.update([player.part.latest])
            return player.client.run(player.run.id).result().status is Status.ABORTED

        aborted = False
        try:
            with player.playing():
                aborted = eventually(is_over)
                eventually(lambda: player.session.failure is not None)
        except NotFound as error:
            told = str(error)
        restarts = learners_in(served.data)[lives:]
        reason = player.client.run(player.run.id).result().reason
        player.hives.close()

    assert aborted
    assert "diverged 3 times" in reason
    assert player.run.id in told
    assert len(restarts) == 2
    assert all(updates >= int(saved.rpartition("@")[2]) for _, updates in restarts)
    assert all(is_finite(model) for model in played.values())


def test_a_learner_that_hangs_is_replaced_while_everybody_acts(tmp_path):
    with EmbeddedHive(tmp_path, {"timeouts": {"hang": HANGS}}) as hive:
        player = Player(grant_of(hive))
        with player.playing():
            assert player.gets_a_version()
            lives, (learner, _) = len(learners_in(tmp_path)), learners_in(tmp_path)[-1]
            os.kill(learner, signal.SIGSTOP)
            recovered = player.recovers(tmp_path, lives)
        is_gone = learner not in learners_of(hive.pid)
        waited = player.waited
        assert_all_is_there(player)
        player.close()

    assert recovered
    assert is_gone
    assert waited < 1


def test_two_hosts_learn_one_run_and_one_of_them_dies(tmp_path):
    with Served(tmp_path / "data") as served:
        grant = served.grant()
        player = Player(grant, "killed", on_conflict=OnConflict.JOIN)
        other = OtherHost(tmp_path, hive=grant.hive, token=TOKEN)
        with player.playing():
            assert eventually(lambda: other.accepted > 3_200)
            other.kill()
            accepted, told = other.accepted, other.told
            is_followed = player.gets_a_version()
        assert eventually(player.settled)
        theirs = player.audit()["sessions"][str(told["index"])]["rows"]
        ledger = player.session.ledger
        found = player.audit(ledger.accepted + theirs)
        player.close()

    assert is_followed
    assert theirs >= accepted
    assert ledger.accepted == 32 * player.frames
    assert found["held"] == ledger.accepted + theirs
    assert int(found["checksum"]) == ledger.checksum ^ expected_checksum(
        told["seed"], told["index"], theirs
    )


@pytest.mark.parametrize(("conflict", "runs"), [(OnConflict.NUMBER, 10), (OnConflict.JOIN, 1)])
def test_ten_hosts_that_start_one_name_at_once(tmp_path, conflict, runs):
    request = RunRequest("same", "faults", SETTINGS, on_conflict=conflict)
    with EmbeddedHive(tmp_path, {"learner": [FAKE], "spare": False}) as hive:
        hosts = [HiveAccess(grant_of(hive)) for _ in range(10)]
        together = threading.Barrier(10)

        def start(host):
            client = host.client()
            together.wait()
            return client.create(request).result()

        with ThreadPoolExecutor(10) as threads:
            found = list(threads.map(start, hosts))
        listed = hosts[0].client().runs().result()
        for host in hosts:
            host.close()

    assert len({run.id for run in found}) == len({run.name for run in found}) == runs
    assert {run.id for run in listed} == {run.id for run in found}
