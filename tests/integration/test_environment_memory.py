"""What an environment keeps for its guest counts in the account of the guest."""

from contextlib import closing

import numpy as np
import pytest
from tests.integration.guest_text import RETURN, function, i32, module
from tests.integration.hostile_environments import (
    GIVES,
    LEAVES_AGENTS,
    LONG,
    NAMES,
    REFUSED,
    SAYS,
    STARTS,
    STARTS_AND_STOPS,
    WIDTH,
    Played,
)
from tests.integration.test_environment import BY_V1, INITIAL, LAUNCH, RUNNING, scripted

from arkml import Host
from arkml.abi.codes import ErrorCode
from arkml.envs.core import experiments
from arkml.envs.core.fleet_env import FleetEnv
from arkml.envs.core.guest_env import GuestEnv, core_of
from arkml.envs.core.guest_messages import EXPORT, Messages
from arkml.envs.gymnasium_fleet import GuestFleetVectorEnv
from arkml.envs.gymnasium_vector import GuestVectorEnv
from arkml.errors import Unavailable
from arkml.guests.guest import calls_of
from arkml.hive.protocol.runs import MAX_NAMES
from arkml.limits import MIB, Limits

LIMITS = Limits(guest_bytes=16 * MIB, memory_bytes=4 * MIB, run_seconds=None, call_seconds=None)
FULL = int(ErrorCode.UNAVAILABLE)
# says another metric in each frame, with the number of the frame as name and value
NAMER = f"""(module {
    LAUNCH.format(
        imports=BY_V1["imports"]
        + '''
  (import "ark-ml-v1" "ml__push_training_observation_with_metadata"
    (func $say (param i64 i64 i32 f32 i32 i32 i32 i32 i32 i32) (result i32)))''',
        answer=BY_V1["answer"],
    )
}
  (data (i32.const 2048) "name 0000")
  (func $digit (param $at i32) (param $unit i32)
    (i32.store8 (local.get $at) (i32.add (i32.const 48)
      (i32.rem_u (i32.div_u (global.get $turn) (local.get $unit)) (i32.const 10)))))
  (func (export "ark_applet_update")
    (call $digit (i32.const 2054) (i32.const 100)) (call $digit (i32.const 2055) (i32.const 10))
    (call $digit (i32.const 2056) (i32.const 1))
    (f32.store (i32.const 2076) (f32.convert_i32_u (global.get $turn)))
    (drop (call $say (i64.load (i32.const 8)) (i64.const 1)
      (select (i32.const {RUNNING}) (i32.const {INITIAL}) (global.get $turn)) (f32.const 0)
      (i32.const 128) (i32.const 1) (i32.const 0) (i32.const 0) (i32.const 2048) (i32.const 1)))
    (call $answer (i32.const 1))
    (global.set $turn (i32.add (global.get $turn) (i32.const 1)))))""".encode()

# answers each message with 3 MiB
ANSWERS = module(
    function(
        EXPORT,
        f"(drop (call ${RETURN} {i32(0)} {i32(1)} {i32(3 * MIB)})) {i32(0)}",
        params="(param i32 i32)",
        result="i32",
    ),
    function("ark_alloc", i32(8), params="(param i32 i32)", result="i32"),
    function("ark_free", "", params="(param i32 i32 i32)"),
    uses=(RETURN,),
    memory='(memory (export "memory") 64)',
)


@pytest.fixture(scope="module")
def host():
    with Host(limits=LIMITS) as made:
        yield made


@pytest.fixture
def played(host):
    made = []

    def play(text, most=500):
        made.append(Played(host, text, most))
        return made[-1]

    yield play
    for found in made:
        found.env.close()


def code(found):
    return int.from_bytes(found.env.guest.read_memory(REFUSED, 4), "little")


def step(found):
    return found.env.step(np.zeros((len(found.env.decision.acting_agents), 1)))


def test_demonstrations_count_until_they_are_taken(played):
    found = played(GIVES)
    full = found.account.agent_bytes
    taken = found.env.take_demonstrations()

    assert code(found) == FULL
    assert full >= sum(each.observations.nbytes for each in taken) > 8 * MIB
    assert found.account.agent_bytes < MIB


def test_the_oldest_demonstrations_go_first_beyond_some_bytes(played, monkeypatch):
    monkeypatch.setattr(experiments, "MOST_GIVEN_BYTES", 3 * MIB)
    found = played(GIVES, most=20)
    taken = found.env.take_demonstrations()

    assert code(found) == 0
    assert len(taken) == 3  # a thousand rows of a KB each
    assert taken[-1].rows["id"][-1] == 21_000
    assert found.account.total_bytes < 12 * MIB


def test_live_agents_count_until_the_environment_ends_them(played):
    found = played(LEAVES_AGENTS)
    account = found.account
    step(found)
    instance = core_of(found.env).instance
    live = sum(tracker.live_count for tracker in instance._trackers.values())
    found.env.reset()

    assert code(found) == 0
    assert found.error is None
    assert account.agent_bytes >= live * 1_000 > 8 * MIB
    assert account.total_bytes <= LIMITS.guest_bytes
    assert found.account.agent_bytes < 4 * MIB


def test_a_refused_submit_is_not_shown_and_its_guest_goes_on(played):
    found = played(LEAVES_AGENTS)
    shown = step(found).decisions[0]

    assert code(found) == FULL
    assert len(shown) == 1
    assert not shown.started.any()


def test_the_time_of_submits_is_charged(played):
    found = played(LEAVES_AGENTS, most=2)
    before = found.account
    step(found)
    charged = found.account.import_seconds - before.import_seconds

    assert charged > 0.0002  # of 2,000 rows of a KB each that are new, two times copied


def test_the_configuration_of_an_experiment_counts_until_it_ends(played):
    running, ended = played(STARTS, most=10), played(STARTS_AND_STOPS, most=100)
    (*_, last) = core_of(ended.env).instance.experiments.started.values()
    with pytest.raises(Unavailable, match="has ended: its configuration is not kept"):
        last.configuration()

    assert code(running) == code(ended) == 0
    assert running.account.request_bytes > 10 * LONG
    assert ended.account.request_bytes < MIB


def test_an_experiment_keeps_as_many_metrics_as_a_run(played, caplog):
    experiments = core_of(played(SAYS, most=1).env).instance.experiments
    said = list(experiments.started.values())[1]
    for number in range(3):
        experiments.note(said, f"more {number}", 1.0)

    assert len(said.metric_values) == NAMES == MAX_NAMES
    assert caplog.text.count("does not keep metric 'more 0': it has 256, 256 are kept") == 1
    assert "more 1" not in caplog.text


def test_metrics_that_do_not_fit_are_not_kept(host, caplog):
    with GuestEnv(scripted([(1, INITIAL, 0)], [(1, RUNNING, 0)]), host=host) as env:
        env.reset()
        experiments = core_of(env).instance.experiments
        (run,) = experiments.started.values()
        experiments.note(run, "m" * LIMITS.guest_bytes, 1.0)
        experiments.note(run, "speed", 2.0)

    assert run.metric_values == {"speed": 2.0}
    assert "over the limit of 16777216 (Limits.guest_bytes)" in caplog.text


def test_each_guest_of_a_fleet_pays_for_its_demonstrations(host):
    with closing(FleetEnv(GIVES, 2, host=host)) as fleet:
        fleet.reset()
        before = np.zeros((2, WIDTH), np.float32)
        for _ in range(20):
            found = fleet.step(np.zeros((2, 1), np.float32), before)
        sizes = [fleet.instance(guest).guest.account.agent_bytes for guest in range(2)]
        fleet.take_demonstrations(0)
        taken = [fleet.instance(guest).guest.account.agent_bytes for guest in range(2)]

    assert found.present.all()
    assert min(sizes) > 8 * MIB
    assert taken[0] < MIB
    assert taken[1] == sizes[1]


def test_a_fleet_keeps_as_many_names_of_metrics_as_its_runs(host):
    with closing(FleetEnv(NAMER, 2, host=host)) as fleet:
        fleet.reset()
        for _ in range(MAX_NAMES + 20):
            fleet.step(np.zeros((2, 1), np.float32), np.zeros((2, 1), np.float32))
        names = len(fleet._together._unnoted)
        kept = [
            run.metric_values
            for guest in range(2)
            for run in fleet.instance(guest).experiments.started.values()
        ]

    assert names < MAX_NAMES
    assert [len(values) for values in kept] == [MAX_NAMES, MAX_NAMES]
    assert kept[0]["name 0005"] == 5.0


def test_the_time_of_metadata_in_steps_is_not_taken_off_that_of_later_imports(host):
    with closing(GuestEnv(NAMER, host=host)) as env:
        env.reset()
        for _ in range(20):
            env.step(np.zeros((1, 1), np.float32))
        left = calls_of(env.guest).account.take_noted()

    assert left == 0.0


@pytest.mark.parametrize("steps", [MAX_NAMES, MAX_NAMES + 1, MAX_NAMES + 4])
def test_a_new_guest_of_a_fleet_has_no_metrics_of_the_one_before(host, steps):
    with closing(FleetEnv(NAMER, 2, host=host)) as fleet:
        fleet.reset()
        for _ in range(steps):
            fleet.step(np.zeros((2, 1), np.float32), np.zeros((2, 1), np.float32))
        fleet.renew([0])
        (run,) = fleet.instance(0).experiments.started.values()

    assert list(run.metric_values) == ["name 0000"]


@pytest.mark.parametrize("kind", [GuestVectorEnv, GuestFleetVectorEnv])
def test_infos_have_as_many_names_of_metadata_as_a_run(host, kind, caplog):
    with closing(kind(NAMER, num_envs=1, host=host)) as envs:
        envs.reset()
        for _ in range(MAX_NAMES + 20):
            *_, info = envs.step(np.zeros((1, 1), np.float32))
    names = [name for name in info if name.startswith("name ")]

    assert sorted(names) == [f"name {turn:04}" for turn in range(MAX_NAMES)]
    assert caplog.text.count("is not in infos") == 1


def test_answers_to_messages_are_dropped_beyond_some_bytes_until_they_are_taken(host, caplog):
    with closing(host.load(ANSWERS)) as guest:
        messages = Messages(guest.module)
        for _ in range(2):
            for number in range(8):
                messages.add(b"hello", f"sender {number}")
            messages.hand_over(calls_of(guest), lambda *_: None)

            assert [sender for sender, _ in messages.take_answers()] == [
                f"sender {number}" for number in range(5)
            ]
    assert caplog.text.count("answers to messages are dropped") == 1
