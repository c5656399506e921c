"""Processes killed at random moments: acting goes on, and what was acknowledged is there once."""

import random
import signal
import time

import pytest
from tests.faults.player import (
    KILLS,
    LEARNER,
    SERVER,
    SETTINGS,
    Player,
    assert_all_is_there,
    audit,
    expected_checksum,
    kill,
    learners_in,
    learners_of,
    processes,
)
from tests.faults.serving import OtherHost, Served
from tests.waiting import eventually

from arkml.hive.protocol.runs import OnConflict, RunRequest
from arkml.runs.hive_access import HiveAccess, HiveGrant

pytestmark = pytest.mark.faults

GONE = 3.0
"""Seconds after the death of a host within which its hive is gone."""


@pytest.fixture
def player(tmp_path):
    made = Player(HiveGrant(data=tmp_path))
    yield made
    made.close()


def some_time(moments, most=3.0):
    time.sleep(moments.uniform(0.0, most))


def test_acting_goes_on_when_a_learner_dies_and_no_row_is_missing(player, tmp_path):
    moments = random.Random(1)
    with player.playing():
        for number in range(KILLS):
            some_time(moments)
            learners = learners_of(player.server)
            learning = {learners_in(tmp_path)[-1][0]} & learners
            lives, frames = len(learners_in(tmp_path)), player.frames
            for pid in learners if number % 3 == 2 else learning:
                kill(pid)

            assert learning
            assert player.recovers(tmp_path, lives), f"death {number}"
            assert player.frames > frames

    assert player.waited < 1
    assert_all_is_there(player)


def test_acting_goes_on_when_a_server_dies_and_no_row_is_missing_or_there_twice(player, tmp_path):
    moments = random.Random(2)
    with player.playing():
        for number in range(KILLS):
            some_time(moments)
            dead, frames = player.server, player.frames
            learners, lives = learners_of(dead), len(learners_in(tmp_path))
            kill(dead)

            assert player.recovers(tmp_path, lives), f"death {number}"
            assert player.frames > frames
            assert not learners & set(processes(LEARNER))
            assert player.server != dead

    assert player.waited < 1
    assert_all_is_there(player)


def test_no_process_and_no_loss_is_left_by_hosts_that_die(tmp_path):
    moments = random.Random(3)
    data, lives = tmp_path / "data", []
    for number in range(KILLS):
        host = OtherHost(tmp_path, data=str(data))
        server = host.told["server"]
        some_time(moments)
        learners = learners_of(server)
        host.kill()
        gone = eventually(
            lambda everything=learners | {server}: (
                not everything & set(processes(SERVER) + processes(LEARNER))
            ),
            GONE,
        )
        lives.append((host.told, host.accepted))

        assert learners
        assert gone, f"death {number}"
    with HiveAccess(HiveGrant(data=data)) as hives:
        client = hives.client()
        request = RunRequest("killed", "faults", SETTINGS, on_conflict=OnConflict.JOIN)
        run = client.create(request).result()
        told = audit(client, run.id)
        rows = {int(index): found["rows"] for index, found in told["sessions"].items()}
        told = audit(client, run.id, sum(rows.values()))
    expected = 0
    for life, _ in lives:
        count = rows.get(life["index"], 0)
        expected ^= expected_checksum(life["seed"], life["index"], count)

    assert [life["index"] for life, _ in lives] == list(range(KILLS))
    assert all(rows.get(life["index"], 0) >= accepted for life, accepted in lives)
    assert sum(accepted for _, accepted in lives)
    assert told["held"] == sum(rows.values())
    assert int(told["checksum"]) == expected


def test_a_served_hive_starts_again_while_hosts_play_and_no_row_is_missing(tmp_path):
    moments = random.Random(4)
    with Served(tmp_path / "data") as served:
        players = [Player(served.grant())]
        players.append(Player(served.grant(), on_conflict=OnConflict.JOIN))
        with players[0].playing(), players[1].playing():
            for number in range(KILLS):
                some_time(moments)
                lives = len(learners_in(served.data))
                served.end(signal.SIGTERM if number % 2 else signal.SIGKILL)
                some_time(moments, 2.0)
                served.start()

                for player in players:
                    assert player.recovers(served.data, lives), f"restart {number}"
        assert max(player.waited for player in players) < 1
        assert players[0].run.id == players[1].run.id
        assert_all_is_there(*players)
        for player in players:
            player.close()
