"""Wires that fail between hosts and hives: no submit waits, and every row arrives once."""

import time

import pytest
from tests.faults.limits import make_room, no_room
from tests.faults.player import KILLS, Player, assert_all_is_there
from tests.faults.serving import Served, free_port
from tests.faults.wire import Wire
from tests.integration.test_training import LOCAL, QUICK, V1, V2, TrainingGuest
from tests.waiting import eventually

from arkml import Host
from arkml.abi.codes import EpisodeState, ErrorCode
from arkml.errors import HiveUnreachable
from arkml.hive.embedded import EmbeddedHive
from arkml.hive.protocol.runs import Status
from arkml.runs.hive_access import HiveAccess, HiveGrant

pytestmark = pytest.mark.faults

AWAY = 10.0
IMPATIENT = {"lease": 7.0, "pause": 1.0, "idle_stop": 1.0}


@pytest.fixture(scope="module")
def served(tmp_path_factory):
    with Served(tmp_path_factory.mktemp("hive")) as made:
        yield made


@pytest.fixture
def play(served):
    """A player on a wire, which plays until the test is over."""
    players = []

    def begin(wire):
        players.append(Player(served.grant(wire.port)))
        return players[-1]

    yield begin
    for player in players:
        player.close()


def assert_it_never_waited_and_all_arrived(player):
    waited = player.waited
    assert_all_is_there(player)

    assert waited < 1


@pytest.mark.parametrize(
    ("go", "come"), [(Wire.cut, Wire.mend), (Wire.fall_silent, Wire.speak)], ids=["gone", "silent"]
)
def test_a_hive_that_is_away_for_ten_seconds_misses_nothing(served, play, go, come):
    with Wire(served.port) as wire:
        player = play(wire)
        with player.playing():
            time.sleep(1.0)
            go(wire)
            frames, arrived = player.frames, player.session.ledger.accepted
            time.sleep(AWAY)
            played, newly = player.frames - frames, player.session.ledger.accepted - arrived
            come(wire)
            is_back = player.gets_a_version()
        assert_it_never_waited_and_all_arrived(player)

        assert is_back
        assert played > 20 * AWAY
        assert newly < played


def test_a_slow_hive_gets_everything_and_nobody_waits(served, play):
    with Wire(served.port, delay=0.2, rate=1_000_000) as wire:
        player = play(wire)
        with player.playing():
            time.sleep(AWAY)
            is_followed = player.gets_a_version()
        assert_it_never_waited_and_all_arrived(player)

        assert is_followed


def test_connections_that_are_torn_in_mid_body_lose_and_double_nothing(served, play):
    with Wire(served.port) as wire:
        player = play(wire)
        wire.tears = 0.1
        with player.playing():
            is_torn = eventually(lambda: wire.torn >= 5 * KILLS)
            is_followed = player.gets_a_version()
        assert_it_never_waited_and_all_arrived(player)

        assert is_torn
        assert is_followed


@pytest.mark.parametrize("is_full", [False, True], ids=["with room", "with a full disk at first"])
def test_who_comes_back_after_the_run_was_stopped_for_idleness_joins_again(tmp_path, is_full):
    with EmbeddedHive(tmp_path, {"timeouts": IMPATIENT}) as hive:
        address = hive.locate()
        host, port, token = address.host, address.port, address.token
        with (
            HiveAccess(HiveGrant(hive=f"{host}:{port}", token=token)) as direct,
            Wire(port) as wire,
        ):
            player = Player(HiveGrant(hive=f"{host}:{wire.port}", token=token))
            run, client, ledger = player.run.id, direct.client(), player.session.ledger
            with player.playing():
                assert player.gets_a_version()
                wire.cut()
                is_stopped = eventually(lambda: client.run(run).result().status is Status.STOPPED)
                room = no_room(hive.pid, 16)
                if not is_full:
                    make_room(hive.pid, room)
                wire.mend()
                is_back = eventually(lambda: ledger.renewed)
                frames, accepted = player.frames, ledger.accepted
                played = eventually(lambda: player.frames > frames + 200)
                is_refused = ledger.accepted == accepted
                make_room(hive.pid, room)
                is_followed = player.gets_a_version()
            assert_it_never_waited_and_all_arrived(player)
            player.close()

    assert is_stopped
    assert is_back
    assert played
    assert is_refused or not is_full
    assert is_followed


def test_a_host_whose_hive_is_not_there_says_so_and_uses_it_once_it_is(tmp_path):
    later = Served(tmp_path / "data", free_port())
    with Host(hive=later.grant()) as host:
        guest = TrainingGuest(host)
        health = guest.handle(V1, "can_connect_to_hive", *LOCAL)
        guest.wait(V1, "bool", health)
        found = guest.take(V1, "bool", health, 1)
        start = guest.handle(V2, "start_training", *LOCAL, "game", "late", 3, 2, 0, QUICK)
        guest.wait(V1, "training_handle", start)
        refused, _ = guest.take(V1, "training_handle", start, 8)
        with later:
            context = guest.start("late")
            code, _, _ = guest.submit(context, [(1, EpisodeState.INITIAL, 0.0, 0.5)])
            host.close()

        assert found == (ErrorCode.SUCCESS, b"\0")
        assert refused is ErrorCode.UNAVAILABLE
        assert code is ErrorCode.SUCCESS


def test_taking_part_in_what_is_not_there_fails(tmp_path):
    nowhere = Served(tmp_path / "data", free_port()).grant()

    with pytest.raises(HiveUnreachable):
        Player(nowhere)
