"""What time it is for guests of environments, and what chance they have: real wasm."""

import pickle
import struct
import time

import numpy as np
import pytest
from tests.integration.guest_text import GUESTS, wasi
from tests.integration.test_environment import BY_V1, INITIAL, RUNNING, scripted

from arkml import GuestEnv, Host, WasiGrant
from arkml.envs.core.world import ORIGIN
from arkml.errors import LinkError, UsageError

DRIFT, PENDULUM = GUESTS / "c_drift.wasm", GUESTS / "c_pendulum.wasm"
SECOND = 1_000_000_000
FRAME = round(SECOND / 60)
HOUR = 3_600 * SECOND
BADF, FAULT = 8, 21
ROWS = [[(1, INITIAL if turn == 0 else RUNNING, 0)] for turn in range(6)]

UTC = '(import "ark-time-v1" "time__time_utc" (func $utc (param i32)))'


@pytest.fixture(scope="module")
def host():
    with Host(wasi=WasiGrant()) as made:
        yield made


@pytest.fixture
def make(host):
    made = []

    def env(module, **options):
        made.append(GuestEnv(module, **({"host": host} | options)))
        return made[-1]

    yield env
    for found in made:
        found.close()


def calling(body, *, exports="", pages=1):
    """An applet that runs `body` before each submit, of one row."""
    imports = [
        BY_V1["imports"], UTC, wasi("clock_time_get", "i32 i64 i32"),
        wasi("random_get", "i32 i32"), wasi("poll_oneoff", "i32 i32 i32 i32"),
    ]  # fmt: skip
    answer = BY_V1["answer"].replace("(param $rows i32)", f"(param $rows i32) {body}")
    module = scripted(*ROWS, exports=exports, by={"imports": "\n".join(imports), "answer": answer})
    return module.replace(b'"memory") 1)', f'"memory") {pages})'.encode())


def clock(number, at):
    return (
        f"(i32.store (i32.const {at}) (call $clock_time_get (i32.const {number}) (i64.const 0)"
        f" (i32.const {at + 8})))"
    )


CLOCKS = calling(clock(0, 1024) + clock(1, 1040) + clock(2, 1056) + "(call $utc (i32.const 1072))")


def words(env, at, count=1):
    return struct.unpack(f"<{count}Q", env.guest.read_memory(at, 8 * count))


def monotonic(env):
    """What the guest's clock showed in its last submit."""
    return words(env, 1048)[0]


def drifting(env, seed, steps=20):
    """What the boats of the C guest show, [steps, boats, features]."""
    first = env.reset(seed=seed)
    rest = [env.step(np.zeros((3, 1))) for _ in range(steps)]
    return np.array([step.decisions[0].observations for step in (first, *rest)])


def test_a_guest_with_a_c_library_lives_the_same_life_for_the_same_seed(make):
    env = make(DRIFT, configure=(3, 0))
    first, drawn = drifting(env, 5), drifting(env, None)
    again, drawn_again = drifting(env, 5), drifting(env, None)
    other = drifting(env, 6)

    assert env.seedable
    assert np.array_equal(first, again)
    assert np.array_equal(drawn, drawn_again)
    assert not np.isin(first[:, :, 0], other[:, :, 0]).any()
    assert not np.isin(first[:, :, 0], drawn[:, :, 0]).any()


def test_what_is_unpickled_lives_the_same_life(make):
    env = make(DRIFT, configure=(3, 0), frame_seconds=0.5)
    expected = drifting(env, 5)
    with pickle.loads(pickle.dumps(env)) as again:
        found = drifting(again, 5)

    assert np.array_equal(found, expected)


def test_outside_of_environments_time_and_chance_are_the_machines(make, host):
    drifting(make(DRIFT, configure=(3, 0)), 5)
    with host.load(CLOCKS) as first, host.load(CLOCKS) as second:
        before = time.time_ns()
        for guest in (first, second):
            guest.update()  # without a hive its submit is refused, after it has looked
        after = time.time_ns()
        shown = [struct.unpack("<Q", g.read_memory(1032, 8))[0] for g in (first, second)]
        utc = [struct.unpack("<Q", g.read_memory(1072, 8))[0] for g in (first, second)]
    with host.load(DRAWING) as first, host.load(DRAWING) as second:
        for guest in (first, second):
            guest.update()
        drawn = {g.read_memory(1032, 32) for g in (first, second)}

    assert before <= min(*shown, *utc)
    assert max(*shown, *utc) <= after
    assert len(drawn) == 2


def test_each_call_is_a_frame_and_all_clocks_agree(make):
    env = make(CLOCKS)
    env.reset(seed=1)
    shown = [words(env, 1024, 7)]
    for _ in range(3):
        env.step([[0]])
        shown.append(words(env, 1024, 7))
    realtime, times, utc = ([row[place] for row in shown] for place in (1, 3, 6))

    assert [(row[0], row[2], row[4]) for row in shown] == [(0, 0, BADF)] * 4
    assert times == [ORIGIN + frame * FRAME for frame in range(2, 6)]  # ark_initialize is the first
    assert realtime == utc == times


def test_a_frame_lasts_as_long_as_is_asked_for(make):
    env = make(CLOCKS, frame_seconds=0.5)
    env.reset(seed=1)
    times = [monotonic(env)]
    for scale, rate in ((20, 0), (20, 10), (1, 0)):
        env.pace.time_scale, env.pace.capture_rate = scale, rate
        env.step([[0]])
        times.append(monotonic(env))

    assert np.diff(times).tolist() == [10 * SECOND, 2 * SECOND, SECOND // 2]


def test_a_reset_starts_the_clock_again_and_keeps_the_pace(make):
    env = make(CLOCKS)
    env.reset()
    begin = monotonic(env)
    env.pace.time_scale = 2
    env.step([[0]])
    env.reset()

    assert begin == ORIGIN + 2 * FRAME
    assert monotonic(env) == ORIGIN + 2 * round(2 * SECOND / 60)


def test_where_one_call_is_all_each_submit_is_a_frame(make):
    play = f"""(func (export "play") (param i32 i32) (result i32)
      (loop $again
        (call $row (i64.const 1) (i32.const {RUNNING}) (f32.const 0))
        (call $answer (i32.const 1))
        (br $again))
      (i32.const 0))"""
    body = clock(1, 1040)
    env = make(calling(body, exports=play), entry="play")
    env.reset(seed=1)
    times = [monotonic(env)]
    for _ in range(2):
        env.step([[0]])
        times.append(monotonic(env))

    assert np.diff(times).tolist() == [FRAME] * 2


@pytest.mark.parametrize("absolute", [False, True])
def test_a_guest_that_sleeps_wakes_at_once_that_much_later(make, absolute):
    until = ORIGIN + HOUR if absolute else HOUR
    body = f"""{clock(1, 1040)}
      (i32.store (i32.const 2016) (i32.const 1)) (i64.store (i32.const 2024) (i64.const {until}))
      (i32.store16 (i32.const 2040) (i32.const {int(absolute)}))
      (i32.store (i32.const 1088) (call $poll_oneoff (i32.const 2000) (i32.const 2100)
        (i32.const 1) (i32.const 1096)))
      {clock(1, 1104)}"""
    env = make(calling(body))
    env.reset(seed=1)
    asleep, code, awake = words(env, 1048)[0], words(env, 1088)[0], words(env, 1112)[0]

    assert code == 0
    assert awake == (until if absolute else asleep + HOUR)


def random_get(buffer, size, at=1024):
    return (
        f"(i32.store (i32.const {at}) (call $random_get (i32.const {buffer}) (i32.const {size})))"
    )


DRAWING = calling(random_get(1032, 32))


def test_each_draw_brings_other_bytes_and_fills_its_buffer(make):
    large = 40 * 65_536
    env = make(calling(random_get(1032, 32) + random_get(65_536, large, 1072), pages=48))
    seen = []
    for seed in (1, 1):
        env.reset(seed=seed)
        memory = [env.guest.read_memory(1032, 32), env.guest.read_memory(65_536, large)]
        env.step([[0]])
        seen.append([*memory, env.guest.read_memory(1032, 32)])
    first, much, second = seen[0]

    assert seen[0] == seen[1]
    assert words(env, 1024)[0] & 0xFFFF_FFFF == words(env, 1072)[0] & 0xFFFF_FFFF == 0
    assert first != second
    assert 0.49 < np.unpackbits(np.frombuffer(much, np.uint8)).mean() < 0.51
    assert much[:1_048_576] != much[1_048_576 : 2 * 1_048_576]


@pytest.mark.parametrize(("buffer", "size"), [(65_535, 2), (-1, 1), (0, -1)])
def test_a_buffer_outside_of_memory_is_refused_and_nothing_is_drawn(make, buffer, size):
    env = make(calling(random_get(buffer, size) + random_get(1032, 8, 1088)))
    env.reset(seed=1)
    outside = words(env, 1024)[0] & 0xFFFF_FFFF
    found = env.guest.read_memory(1032, 8)
    expected = make(calling(random_get(1032, 8)))
    expected.reset(seed=1)

    assert outside == FAULT
    assert found == expected.guest.read_memory(1032, 8)


def test_a_clock_is_not_written_outside_of_memory(make):
    body = """(i32.store (i32.const 1024)
      (call $clock_time_get (i32.const 1) (i64.const 0) (i32.const 65529)))"""
    env = make(calling(body))
    env.reset(seed=1)

    assert words(env, 1024)[0] & 0xFFFF_FFFF == FAULT


def test_an_environment_grants_wasi_when_it_is_told_to(make):
    with pytest.raises(LinkError, match="WASI is not granted"):
        make(DRIFT, host=None)
    with pytest.raises(UsageError, match="wasi="):
        make(DRIFT, wasi=WasiGrant())
    env = make(DRIFT, host=None, wasi=WasiGrant())

    assert len(env.reset(seed=1).decisions[0]) == 4


def test_a_guest_without_wasi_reads_the_same_time(make):
    imports = BY_V1["imports"] + UTC
    answer = BY_V1["answer"].replace(
        "(param $rows i32)", "(param $rows i32) (call $utc (i32.const 1072))"
    )
    env = make(scripted(*ROWS, by={"imports": imports, "answer": answer}), host=None)
    env.reset(seed=1)

    assert words(env, 1072)[0] == ORIGIN + 2 * FRAME
    assert not env.seedable
