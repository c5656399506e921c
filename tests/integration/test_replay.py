"""Traces and replays: what a guest did is played again, and a difference is named."""

# ruff: noqa: ARG001  `library` is a way of rounds
import errno
import os
import re
import threading
import tracemalloc
import zlib
from contextlib import suppress

import msgspec
import numpy as np
import pytest
from tests.integration.command_line import arkml as invoke
from tests.integration.guest_text import (
    ACTOR,
    GUESTS,
    LOG,
    data,
    function,
    i32,
    module,
    wasi,
)
from tests.integration.rebuilt_modules import with_a_note, with_a_trap
from tests.integration.test_fleet_arrays import PLAYER
from tests.integration.test_reload import persisting
from tests.integration.test_saved_memory import packed_of
from tests.unit import policy_models as build
from tests.unit.policy_models import node, port, weight

import arkml
from arkml import Memory, Reloaded, Replay, ReplayedCall, Trace, game_function
from arkml.base.files import lock_file
from arkml.errors import (
    GameFunctionFailed,
    GuestTimeout,
    GuestTrap,
    ReloadUndone,
    ReplayDiffers,
    TraceRefused,
    UsageError,
)
from arkml.guests import trace_files
from arkml.guests.trace_events import Called, Imported, Submitted
from arkml.guests.trace_files import BlockKind, read_trace
from arkml.limits import Limits
from arkml.runtime import native
from arkml.runtime.memory import PAGE
from arkml.runtime.saved_memory import PackedMemory, SavedMemory

APPLET = (GUESTS / "c_applet.wasm").read_bytes()
APPLETS = (
    "as_applet", "as_language", "c_applet", "c_cartpole", "c_corridor", "c_drift", "c_echo",
    "c_gallery", "c_lander", "c_maze", "c_minatar_asterix", "c_pendulum_nan_features", "c_sorter",
    "cpp_command",
    "cpp_constructors",
)  # fmt: skip


@pytest.fixture(params=["native", "python"])
def library(request, monkeypatch):
    """Rounds are made by the native library, or in Python."""
    if request.param == "python":
        monkeypatch.setattr(native, "LIBRARY", None)


@pytest.fixture
def path(tmp_path):
    return tmp_path / "guest.trace"


def often(path, **options):
    """A trace with a copy before each call, so that all memory is compared after each."""
    return Trace(path, snapshot_seconds=0, **options)


def played(path, source):
    """Replay a trace from end to end, go back, and return its frames."""
    with Replay(path, source) as replay:
        frames = list(replay)
        assert not replay.ending
        assert replay.frame == replay.last
        middle = (replay.first + replay.last) // 2
        assert replay.to(middle).frame == middle
        assert replay.to(replay.last).frame == replay.last
        return frames


@pytest.mark.parametrize("name", APPLETS)
def test_applets_replay_equal(make_host, path, name):
    source = GUESTS / f"{name}.wasm"
    host = make_host(trace=often(path), wasi=arkml.WasiGrant())
    guest = host.load(source)
    for _ in range(40):
        guest.update()
    submits = guest.statistics.submits
    host.close()

    frames = played(path, source)
    assert len(frames) == 40
    assert sum(len(frame.submits) for frame in frames) == submits


def test_a_guest_whose_file_has_no_utf_8_name_replays_with_its_error(make_host, path):
    source = path.with_name(os.fsdecode(b"bad\xff.wasm"))
    source.write_bytes(ACTOR)
    host = make_host(trace=often(path))
    with pytest.raises(GuestTrap):
        host.load(source).call("boom")
    host.close()

    assert read_trace(path).head.name == r"bad\udcff.wasm"
    with Replay(path, source) as replay:
        assert [str(frame.error).split()[0] for frame in replay] == [r"bad\udcff.wasm"]


def scaled():
    return weight("w", np.array([[0.5], [-0.25]]))


STOCHASTIC = build.model(
    [node("MatMul", "obs w", "mean"), node("Add", "mean epsilon", "actions")],
    [port("obs", "N", 2), port("epsilon", "N", 1)],
    [port("actions", "N", 1)],
    [scaled()],
)
RECURRENT = build.model(
    [
        node("MatMul", "obs w", "seen"),
        node("Add", "seen memory_in", "memory_out"),
        node("Identity", "memory_out", "actions"),
    ],
    [port("obs", "N", 2), port("memory_in", "N", 1)],
    [port("actions", "N", 1), port("memory_out", "N", 1)],
    [scaled()],
)


@pytest.mark.parametrize("policy", [STOCHASTIC, RECURRENT], ids=["stochastic", "recurrent"])
def test_answers_of_policies_are_played_again_without_them(make_host, path, policy):
    host = make_host(trace=often(path), policy=policy)
    guest = host.load(ACTOR, name="actor")
    guest.call("open")
    answered = []
    for _ in range(12):
        guest.call("step", 3)
        answered.append([guest.call("action", row) for row in range(3)])
    host.close()

    frames = [frame for frame in played(path, ACTOR) if frame.function == "step"]
    assert len(frames) == 12
    for frame, actions in zip(frames, answered, strict=True):
        (submit,) = frame.submits
        assert submit.actions[:, 0].tolist() == actions
        assert submit.rows["id"].tolist() == [2, 1, 0]
        assert submit.observations.shape == (3, 2)
    assert len({tuple(actions) for actions in answered}) == 12


def test_masked_choices_of_a_training_are_recorded_by_record(path, tmp_path):
    source = GUESTS / "c_choosers.wasm"
    arkml.record(
        source,
        lambda rows: np.zeros((len(rows), 2), np.float32),
        tmp_path / "rows.npz",
        behavior="picker",
        frames=30,
        trace=often(path),
    )
    frames = played(path, source)

    assert len(frames) == 30
    submits = [submit for frame in frames for submit in frame.submits]
    assert any(submit.rows["metadata"].any() for submit in submits)
    assert all(submit.training for submit in submits)


ASKING = module(
    function(
        "ark_applet_update", "(call $fill (i32.const 64) (call $ask (f32.load (i32.const 0))))"
    ),
    function("place", "(f32.store (i32.const 0) (local.get 0))", "(param f32)"),
    function("seen", "(i32.load (i32.const 64))", result="i32"),
    imports=[
        '(import "env" "ask" (func $ask (param f32) (result i32)))',
        '(import "env" "fill" (func $fill (param i32 i32)))',
    ],
)


def fill(memory: Memory, pointer: int, number: int) -> None:
    memory.write(pointer, number.to_bytes(4, "little"))


def test_functions_of_the_game_and_what_they_write(make_host, path):
    numbers = iter(range(100, 200))
    game = {("env", "ask"): lambda _: next(numbers), ("env", "fill"): fill}
    host = make_host(trace=often(path), imports=game)
    guest = host.load(ASKING)
    for _ in range(5):
        guest.call("place", 2.5)
        guest.update()
        guest.write_memory(128, b"written")
    seen = guest.call("seen")
    host.close()

    assert seen == 104
    with Replay(path, ASKING) as replay:
        frames = list(replay)
        assert frames[-1].result == 104
        assert frames[0].arguments == (2.5,)
        assert replay.read_memory(128, 7) == b"written"
        replay.to(2)
        assert replay.read_memory(64, 4) == (100).to_bytes(4, "little")
        assert replay.read_memory(128, 7) == bytes(7)
        assert frames[1].calls == (
            ReplayedCall("env.ask", (2.5,), (100,)),
            ReplayedCall("env.fill", (64, 100), ()),
        )
        assert frames[2].calls == ()


def test_what_the_guest_asked_before_its_game_failed_is_in_the_last_frame(make_host, path):
    def ask(place):
        raise ValueError(place)

    host = make_host(trace=path, imports={("env", "ask"): ask, ("env", "fill"): fill})
    with pytest.raises(GameFunctionFailed):
        host.load(ASKING).update()
    host.close()

    with Replay(path, ASKING) as replay:
        (frame,) = replay
        assert frame.calls == (ReplayedCall("env.ask", (0.0,), None),)
        assert "the game's function env.ask raised ValueError" in frame.stopped
        with pytest.raises(UsageError, match="it has 1 to 1"):
            replay.to(2)


def test_of_many_calls_in_a_frame_the_last_thousand_are_kept(make_host, path):
    asking = module(
        function(
            "ark_applet_update",
            "(local $n i32) (loop $on (call $ask (local.get $n))"
            " (br_if $on (i32.lt_u (local.tee $n (i32.add (local.get $n) (i32.const 1)))"
            " (i32.const 2500))))",
        ),
        imports=['(import "env" "ask" (func $ask (param i32)))'],
    )
    host = make_host(trace=path, imports={("env", "ask"): lambda _: None})
    host.load(asking).update()
    host.close()

    with Replay(path, asking) as replay:
        (frame,) = replay
    assert [call.arguments for call in frame.calls] == [(n,) for n in range(1500, 2500)]


@game_function(many=True)
def ask_all(xs):
    return np.arange(len(xs), dtype=np.int32) + xs.astype(np.int32)


def test_guests_of_a_fleet_have_a_file_each(make_host, path, library):
    host = make_host(
        trace=often(path, guests=[0, 2]),
        imports={("env", "ask"): ask_all, ("env", "fill"): fill},
    )
    fleet = host.fleet(ASKING, 3)
    for frame in range(4):
        fleet.call("place", float(frame))
        fleet.update()
    seen = fleet.call("seen").values
    host.close()

    assert not path.with_name("guest.1.trace").exists()
    for index in (0, 2):
        with Replay(path.with_name(f"guest.{index}.trace"), ASKING) as replay:
            assert [frame.function for frame in replay] == [
                *["place", "ark_applet_update"] * 4,
                "seen",
            ]
            assert replay.read_memory(64, 4) == seen[index].to_bytes(4, "little")


def test_arrays_that_enter_a_fleet_are_in_its_traces(make_host, path, library):
    host = make_host(trace=often(path))
    fleet = host.fleet(PLAYER, 3)
    for frame in range(5):
        xs = np.arange(3, dtype=np.float32) + frame
        fleet.call("player", xs, 0.5)
        fleet.write("fixed", np.float32([[frame, 2 * frame]] * 3))
        fleet.call("lie", [64, 72][frame % 2])
        assert fleet.update() == {}
    host.close()
    for index in range(3):
        played(path.with_name(f"guest.{index}.trace"), PLAYER)


@pytest.mark.parametrize(
    ("before", "after", "way", "frames"),
    [
        (APPLET, with_a_note(APPLET), Reloaded.KEPT, (40, 30)),
        (persisting(1), persisting(2), Reloaded.HANDED_OVER, (41, 31)),  # and these two calls
        (persisting(1), APPLET, Reloaded.ANEW, (40, 30)),
    ],
    ids=["kept", "handed over", "anew"],
)
def test_a_trace_ends_with_its_module_and_goes_on_in_the_next_file(
    make_host, path, before, after, way, frames
):
    host = make_host(trace=path)
    guest = host.load(before)
    for _ in range(40):
        guest.update()
    assert guest.reload(after) is way
    for _ in range(30):
        guest.update()
    state = guest.read_memory(128, 8192)
    host.close()

    with Replay(path, before) as replay:
        assert [frame.frame for frame in replay] == list(range(1, frames[0] + 1))
        assert "after which the guest was reloaded: what the rebuilt module did" in replay.ending
    with Replay(path.with_name("guest-2.trace"), after) as replay:
        assert [frame.frame for frame in replay] == list(range(1, frames[1] + 1))
        assert not replay.ending
        assert replay.read_memory(128, 8192) == state


def test_a_guest_that_ends_before_its_first_call_after_a_reload_has_an_empty_trace(make_host, path):
    host = make_host(trace=path)
    host.load(APPLET).reload(with_a_note(APPLET))
    host.close()

    with pytest.raises(TraceRefused, match="has no call: its guest ended before the next one"):
        Replay(path.with_name("guest-2.trace"), with_a_note(APPLET))


def test_the_trace_of_a_reload_that_is_undone_goes_on_with_the_module_of_before(make_host, path):
    source = GUESTS / "c_applet.wasm"
    bad = with_a_trap(source.read_bytes())
    host = make_host(trace=path)
    guest = host.load(source)
    for _ in range(40):
        guest.update()
    assert guest.reload(bad) is Reloaded.KEPT
    with pytest.raises(ReloadUndone):
        guest.update()
    for _ in range(30):
        guest.update()
    host.close()

    with Replay(path, source) as replay:
        assert len(list(replay)) == 40
    with Replay(path.with_name("guest-2.trace"), bad) as replay:
        assert [type(frame.error) for frame in replay] == [GuestTrap]
    with Replay(path.with_name("guest-3.trace"), source) as replay:
        assert len(list(replay)) == 30
        assert not replay.ending


def test_a_fleet_answered_by_one_run_replays_guest_by_guest(make_host, path, library):
    source = GUESTS / "c_applet.wasm"
    host = make_host(trace=often(path))
    fleet = host.fleet(source, 3)
    for _ in range(20):
        fleet.update()
    host.close()

    for index in range(3):
        frames = played(path.with_name(f"guest.{index}.trace"), source)
        assert sum(len(frame.submits) for frame in frames) == 20


def test_a_large_fleet_needs_a_choice(make_host, path):
    host = make_host(trace=path)
    with pytest.raises(UsageError, match=r"65 guests .* guests=\[0, 7\]"):
        host.fleet(GUESTS / "c_applet.wasm", 65)


WORLDLY = module(
    function(
        "ark_applet_update",
        f"""(drop (call $clock_time_get {i32(0)} (i64.const 0) {i32(0)}))
        (drop (call $clock_time_get {i32(1)} (i64.const 0) {i32(8)}))
        (drop (call $random_get {i32(16)} {i32(8)}))
        (drop (call $sched_yield))
        (drop (call $environ_get {i32(128)} {i32(256)}))""",
    ),
    imports=[
        wasi("clock_time_get", "i32 i64 i32"),
        wasi("random_get", "i32 i32"),
        wasi("environ_get", "i32 i32"),
        wasi("sched_yield", ""),
    ],
)


def test_clocks_random_numbers_and_variables_of_wasi(make_host, path):
    host = make_host(trace=often(path), wasi=arkml.WasiGrant(environment={"HOME": "/orc"}))
    guest = host.load(WORLDLY)
    for _ in range(5):
        guest.update()
    seen = guest.read_memory(0, 512)
    host.close()

    assert b"HOME=/orc" in seen
    with Replay(path, WORLDLY) as replay:
        assert len(list(replay)) == 5
        assert replay.read_memory(0, 512) == seen


def test_files_of_wasi_cannot_be_recorded(make_host, path, tmp_path):
    grant = arkml.WasiGrant(directories=[arkml.Directory(tmp_path, "/data")])
    with pytest.raises(UsageError, match=r"files of '/data'"):
        make_host(trace=path, wasi=grant)


COUNTING = module(
    "(global $frame (mut i32) (i32.const 0))",
    data(900, b"frame"),
    function(
        "ark_applet_update",
        f"""(global.set $frame (i32.add (global.get $frame) {i32(1)}))
        (i32.store {i32(65528)} (global.get $frame))
        (drop (call ${LOG} {i32(2)} {i32(900)} {i32(5)}))
        (if (i32.eq (global.get $frame) {i32(7)}) (then
          (drop (i32.load (i32.add {i32(65535)} (global.get $frame))))))""",
    ),
    uses=[LOG],
)


def failure_of(guest):
    """Step a guest until it traps, and return its error."""
    for _ in range(10):
        with suppress(GuestTrap):
            guest.update()
        if guest.failure is not None:
            return guest.failure
    raise AssertionError("it lives")


def test_a_trap_is_played_again_with_its_frames_and_memory(make_host, path):
    host = make_host(trace=path)
    guest = host.load(COUNTING, name="orc")
    live = failure_of(guest)
    host.close()

    with Replay(path, COUNTING) as replay:
        *_, last = replay
        assert last.frame == replay.last == 7
        assert str(last.error) == str(live)
        assert last.error.frames == live.frames
        start, content = replay.memory_at_fault()
        assert start + len(content) == PAGE
        assert content[-8:-4] == (7).to_bytes(4, "little")
        replay.to(3)
        assert replay.failure is None
        assert replay.read_memory(65528, 4) == (3).to_bytes(4, "little")
        assert replay.to(7).error.frames == live.frames


def test_a_trace_is_complete_when_the_guest_has_trapped(make_host, path):
    host = make_host(trace=path)
    guest = host.load(COUNTING)
    failure_of(guest)
    guest.close()
    host.close()

    assert read_trace(path).end == "failed"


def test_a_panic_has_its_text_again(make_host, path):
    source = GUESTS / "as_abort.wasm"
    host = make_host(trace=path)
    guest = host.load(source)
    live = failure_of(guest)
    host.close()

    with Replay(path, source) as replay:
        *_, last = replay
        assert last.error.panic == live.panic


def test_a_guest_that_spun_is_stopped_again(make_host, path):
    spinning = module(function("ark_applet_update", "(loop $on (br $on))"))
    host = make_host(trace=path, limits=Limits(run_seconds=0.2))
    guest = host.load(spinning)
    with pytest.raises(GuestTimeout):
        guest.update()
    host.close()

    with Replay(path, spinning) as replay:
        (frame,) = replay
        assert isinstance(frame.error, GuestTimeout)
        assert "ran for" in frame.stopped


def test_a_guest_that_went_back_is_followed(make_host, path):
    host = make_host(trace=path)
    guest = host.load(COUNTING)
    guest.update()
    saved = guest.snapshot()
    for _ in range(3):
        guest.update()
    guest.restore(saved)
    guest.update()
    host.close()

    with Replay(path, COUNTING) as replay:
        assert [frame.frame for frame in replay] == [1, 2, 3, 4, 5]
        assert replay.read_memory(65528, 4) == (2).to_bytes(4, "little")


def blocks(path):
    """The kinds and the starts of the blocks of a file."""
    content, at = path.read_bytes(), 13
    while at < len(content):
        kind, size, _ = trace_files._BLOCK.unpack_from(content, at)
        yield kind, at, at + trace_files._BLOCK.size + size
        at += trace_files._BLOCK.size + size


def changed(path, change, kind=BlockKind.EVENTS, number=0):
    """Write the file anew, with the contents of one block changed and its checksum right."""
    content = path.read_bytes()
    found = [each for each in blocks(path) if each[0] == kind]
    _, start, stop = found[number]
    packed = content[start + trace_files._BLOCK.size : stop]
    inside = msgspec.msgpack.decode(zlib.decompress(packed))
    change(inside)
    block = trace_files._block(kind, inside)
    path.write_bytes(content[:start] + block + content[stop:])


@pytest.fixture
def recorded(make_host, path):
    """A trace of ACTOR, with five steps of two agents."""
    host = make_host(trace=path)
    guest = host.load(ACTOR, name="actor")
    guest.call("open")
    for _ in range(5):
        guest.call("step", 2)
    host.close()
    return path


def test_another_module_is_refused(recorded):
    with pytest.raises(TraceRefused, match=r"of actor, whose module has the digest .* c_applet"):
        Replay(recorded, GUESTS / "c_applet.wasm")


def test_a_trace_without_end_is_played_to_where_it_stops(recorded):
    end = next(start for kind, start, _ in blocks(recorded) if kind == BlockKind.END)
    recorded.write_bytes(recorded.read_bytes()[:end])

    with Replay(recorded, ACTOR) as replay:
        assert len(list(replay)) == 6
        assert replay.ending == (
            "the trace has no end after frame 6: its process ended before the guest was closed"
        )


def test_a_trace_that_ends_within_a_call_says_so(recorded):
    def cut(events):
        del events[next(i for i in range(len(events) - 1, 0, -1) if events[i][0] == 7) :]

    changed(recorded, cut)
    with Replay(recorded, ACTOR) as replay:
        *_, last = replay
        assert last.stopped == "the trace ends within frame 6"


def test_a_cut_or_altered_trace_is_played_up_to_there_or_refused(recorded):
    content = recorded.read_bytes()
    for cut in range(0, len(content), 7):
        recorded.write_bytes(content[:cut])
        outcome(recorded)
    for place in range(0, len(content), 7):
        altered = bytearray(content)
        altered[place] ^= 0x55
        recorded.write_bytes(altered)
        assert outcome(recorded) != "whole" or place < 13


def outcome(path):
    """Replay a file to its end; every fault is told by a sentence."""
    try:
        with Replay(path, ACTOR) as replay:
            list(replay)
            return "whole" if not replay.ending else "partial"
    except TraceRefused:
        return "refused"


def test_contents_that_cannot_be_are_refused(recorded):
    content = recorded.read_bytes()
    for seed in range(150):
        recorded.write_bytes(content)
        changed(recorded, lambda events, seed=seed: scrambled(events, seed))
        with suppress(TraceRefused, ReplayDiffers), Replay(recorded, ACTOR) as replay:
            assert len(list(replay)) <= 6


def scrambled(events, seed):
    """Change one number, text or list of bytes of an event."""
    random = np.random.default_rng(seed)
    event = events[random.integers(len(events))]
    place = int(random.integers(len(event)))
    strange = [0, 1, 7, 9, 255, 1 << 31, (1 << 32) - 1, 1 << 40, b"", b"x" * 9, "open", None, []]
    event[place] = strange[random.integers(len(strange))]


def test_a_small_file_of_many_large_states_takes_the_memory_of_one(recorded):
    def large(start):
        start[1] = [4 << 20, 4_096, b"\1" * 1_024, bytes(4 << 20)]

    changed(recorded, large, BlockKind.START)
    _, start, stop = next(each for each in blocks(recorded) if each[0] == BlockKind.START)
    content = recorded.read_bytes()
    recorded.write_bytes(content[:stop] + content[start:stop] * 9 + content[stop:])
    tracemalloc.start()
    try:
        assert len(read_trace(recorded).segments) == 10
        _, most = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()

    assert most < 4 * (4 << 20)


@pytest.mark.parametrize(("name", "most"), [("_MOST_EVENTS", 30), ("_MOST_OF_EVENTS", 500)])
def test_the_events_of_a_segment_are_bounded_together(recorded, monkeypatch, name, most):
    monkeypatch.setattr(trace_files, name, most)
    (segment,) = read_trace(recorded).segments
    assert len(segment.events()) == 23
    _, start, stop = next(each for each in blocks(recorded) if each[0] == BlockKind.EVENTS)
    content = recorded.read_bytes()
    recorded.write_bytes(content[:stop] + content[start:stop] + content[stop:])

    (segment,) = read_trace(recorded).segments
    with pytest.raises(TraceRefused, match="a block"):
        segment.events()


def test_a_later_version_is_refused(recorded):
    content = bytearray(recorded.read_bytes())
    content[12] = 9
    recorded.write_bytes(content)
    with pytest.raises(TraceRefused, match=r"version 9 .* reads version 1"):
        Replay(recorded, ACTOR)
    with pytest.raises(TraceRefused, match=r"is not a trace of a guest"):
        Replay(ACTOR, ACTOR)


def test_the_first_frame_that_differs_is_named(recorded):
    def alter(events):
        submits = [event for event in events if event[0] == 7]
        submits[2][4][1] ^= 1  # the checksum of its observations

    changed(recorded, alter)
    with Replay(recorded, ACTOR) as replay, pytest.raises(ReplayDiffers) as caught:
        list(replay)
    assert caught.value.frame == 4
    assert str(caught.value) == (
        "frame 4 differs: the observations of a submit of 2 rows are not the same"
    )


def test_rows_without_end_are_a_difference(recorded):
    def alter(events):
        next(event for event in events if event[0] == 0 and event[1] == "step")[2] = [1 << 30]

    changed(recorded, alter)
    with Replay(recorded, ACTOR) as replay, pytest.raises(ReplayDiffers) as caught:
        list(replay)
    assert str(caught.value).endswith("the guest wants room for 65,537 rows, which it had not")


def test_a_memory_that_differs_is_named(make_host, path):
    host = make_host(trace=often(path))
    guest = host.load(COUNTING)
    for _ in range(4):
        guest.update()
    host.close()

    def alter(start):
        memory = bytearray(bytes(SavedMemory.unpacked(PackedMemory(*start[1]))))
        memory[300] = 0x21
        start[1] = packed_of(bytes(memory))

    changed(path, alter, BlockKind.START, 3)
    with Replay(path, COUNTING) as replay, pytest.raises(ReplayDiffers) as caught:
        list(replay)
    assert str(caught.value) == "frame 2 differs: the byte at 0x12c is 0x00 after it, and was 0x21"


def test_a_file_stays_below_its_limit_and_keeps_the_last_segments(make_host, path):
    noise = np.random.default_rng(0).bytes(20_000)  # does not compress
    host = make_host(trace=often(path, limit_bytes=200_000))
    guest = host.load(COUNTING)
    guest.write_memory(1000, noise)
    for _ in range(6):
        guest.update()
    for _ in range(40):
        guest.write_memory(1000, noise)
    host.close()
    assert path.stat().st_size <= 200_000
    whole = read_trace(path)
    assert whole.end == "closed"

    host = make_host(trace=often(path, limit_bytes=100_000))
    guest = host.load(ACTOR)
    guest.write_memory(1 << 16, noise)
    guest.call("open")
    for _ in range(30):
        guest.call("step", 2)
    host.close()
    assert path.stat().st_size <= 100_000
    with Replay(path, ACTOR) as replay:
        assert replay.first > 1
        assert [frame.frame for frame in replay] == list(range(replay.first, 32))
        assert len(next(iter([replay.to(31)])).submits) == 1


def test_what_is_left_out_at_the_limit_is_no_difference(make_host, path):
    host = make_host(trace=often(path, limit_bytes=100_000))
    guest = host.load(COUNTING)
    guest.update()
    for _ in range(6):
        noise = NOISE.bytes(20_000)  # does not compress
        guest.write_memory(1000, noise)
    guest.update()
    guest.update()
    host.close()

    assert path.stat().st_size <= 100_000
    with Replay(path, COUNTING) as replay:
        assert [frame.frame for frame in replay] == [2, 3]
        assert replay.read_memory(1000, 20_000) == noise


def test_a_call_without_end_is_cut_off_at_the_limit(make_host, path):
    host = make_host(
        trace=Trace(path, limit_bytes=30_000),
        imports={("env", "fill"): fill_noise},
        limits=Limits(run_seconds=60.0),
    )
    guest = host.load(FILLING)
    with pytest.raises(GuestTrap):
        guest.call("fill_for_ever", 20_000)
    host.close()

    assert path.stat().st_size <= 30_000
    with Replay(path, FILLING) as replay:
        (frame,) = replay
        assert frame.stopped == "the trace ends within frame 1"


FILLING = module(
    function(
        "fill_for_ever",
        """(loop $on
          (call $fill (i32.const 64))
          (local.set 0 (i32.sub (local.get 0) (i32.const 1)))
          (br_if $on (local.get 0)))
        unreachable""",
        "(param i32)",
    ),
    imports=['(import "env" "fill" (func $fill (param i32)))'],
)


def fill_noise(memory: Memory, pointer: int) -> None:
    memory.write(pointer, NOISE.bytes(16))


NOISE = np.random.default_rng(1)


def test_a_disk_that_is_behind_costs_a_gap_and_no_frame(make_host, path, monkeypatch):
    host = make_host(trace=often(path))
    guest = host.load(COUNTING)
    guest.update()
    guest.update()
    monkeypatch.setattr(trace_files, "_MOST_WAITING", 0)
    guest.update()
    guest.update()
    monkeypatch.undo()
    guest.update()
    guest.update()
    host.close()

    with Replay(path, COUNTING) as replay:
        assert [frame.frame for frame in replay] == [1, 5, 6]
        assert replay.read_memory(65528, 4) == (6).to_bytes(4, "little")
        with pytest.raises(UsageError, match="frame 3 is in a gap of the trace"):
            replay.to(3)


def test_nothing_of_a_host_is_left_once_its_traces_are_written(make_host, path):
    before = set(threading.enumerate())
    host = make_host(trace=path)
    with host.load(COUNTING) as guest:
        guest.update()
    host.close()

    for thread in set(threading.enumerate()) - before:
        thread.join(30)
        assert not thread.is_alive(), thread.name


def test_a_trace_that_a_full_disk_has_cut_is_closed_with_its_guest(make_host, path, monkeypatch):
    def full(*_):
        raise OSError(errno.ENOSPC, "No space left on device")

    host = make_host(trace=path)
    guest = host.load(COUNTING)
    monkeypatch.setattr(trace_files.TraceFile, "_append", full)
    guest.update()
    guest.close()
    host.close()

    os.close(lock_file(path))


def test_a_command_line_plays_a_trace(tmp_path):
    trace, source = tmp_path / "c.trace", GUESTS / "c_applet.wasm"
    run = invoke("run", source, "--frames", "20", "--trace", trace)
    assert run.status == 0, run.err

    whole = invoke("replay", trace, source, "--json").json
    assert (whole["first"], whole["last"], whole["frame"], whole["equal"]) == (1, 20, 20, True)
    found = invoke("replay", trace, source, "--to", "5", "--break-when", "agent == 3", "--json")
    assert found.json["frame"] == 6
    assert len(found.json["submits"][0]["observations"]) == 8
    shown = invoke("replay", trace, source, "--to", "7")
    assert "frame 7, ark_applet_update()" in shown.out
    other = invoke("replay", trace, GUESTS / "c_lines.wasm")
    assert other.status == 2
    assert "the trace is of c_applet.wasm" in other.err
    over = invoke("run", source, "--trace", source)
    assert over.status == 2
    assert "is the file that is read" in over.err


def test_a_command_line_writes_a_page_and_opens_it(tmp_path):
    trace, source, page = tmp_path / "c.trace", GUESTS / "c_applet.wasm", tmp_path / "c.html"
    invoke("run", source, "--frames", "20", "--trace", trace)
    seen = tmp_path / "seen"
    browser = tmp_path / "browser"
    browser.write_text(f'#!/bin/sh\necho "$1" > {seen}\n')
    browser.chmod(0o755)
    done = invoke(
        "replay", trace, source, "--to", "7", "--page", page, "--open", "--json",
        BROWSER=f"{browser} %s",
    )  # fmt: skip

    assert done.status == 0, done.err
    assert (done.json["page"], done.json["frame"]) == (str(page), 7)
    assert page.read_bytes().startswith(b"<!doctype html>")
    assert seen.read_text().strip() == page.as_uri()
    told = invoke("replay", trace, source, "--page", page, COLUMNS="300")
    assert str(page) in told.out


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (("--open",), "--open is about the page: it takes --page FILE"),
        (("--spec", "x.json"), "--spec is about the page"),
        (("--page", "nowhere/x.html"), "there is no directory nowhere"),
        (("--page", "{trace}"), "is the file that is read: name another one to write"),
    ],
)
def test_options_of_a_page_that_cannot_be_are_refused(recorded, tmp_path, words, told):
    source = tmp_path / "actor.wat"
    source.write_bytes(ACTOR)
    content = recorded.read_bytes()
    done = invoke("replay", recorded, source, *(word.format(trace=recorded) for word in words))

    assert done.status == 2
    assert told in done.err
    assert recorded.read_bytes() == content


def test_a_command_line_tells_the_lines_of_a_trap(tmp_path):
    trace, source, page = tmp_path / "l.trace", GUESTS / "c_lines.wasm", tmp_path / "l.html"
    invoke("run", source, "--trace", trace)
    done = invoke("replay", trace, source, "--page", page, "--json")

    assert done.status == 0, done.err
    assert "lines.c:4" in done.json["failure"]


def test_a_command_line_names_the_frame_that_differs(recorded, tmp_path):
    source = tmp_path / "actor.wat"
    source.write_bytes(ACTOR)

    def alter(events):
        next(event for event in events if event[0] == 7)[3] += 1

    changed(recorded, alter)
    done = invoke("replay", recorded, source, "--json")
    assert done.status == 1
    assert done.json["error"] == ("frame 2 differs: the guest submits 2 rows, and submitted 3")


def test_conditions_stop_a_replay(recorded):
    with Replay(recorded, ACTOR) as replay:
        found = replay.until("frame >= 3 and agent == 1 and observation[0] > 0.4")
        assert found.frame == 3
        assert replay.until("not (action[0] < 1e9)") is None
        replay.to(0)
        assert replay.until("rows == 0").frame == 1
        assert replay.until("0.4 < reward * 2 / 2 <= abs(-0.5) and state == running").frame == 2
        replay.to(1)
        with pytest.raises(UsageError, match=r"asks for observation\[2\]: the guest has 2, from 0"):
            replay.until("observation[2] > 0")


@pytest.mark.parametrize(
    "text",
    [
        "", "import os", "open('x')", "reward.real > 0", "__import__", "[1]", "reward in (1, 2)",
        "(lambda: 1)()", "observation[-1] > 0", "observation['x'] > 0", "1 if 1 else 2", "a" * 2000,
        "9**9**9 > 1", "(" * 500 + "1" + ")" * 500, "-" * 900 + "1",
    ],
)  # fmt: skip
def test_other_texts_are_no_conditions(recorded, text):
    with Replay(recorded, ACTOR) as replay, pytest.raises(UsageError, match="condition"):
        replay.until(text)


def test_frames_that_are_not_in_the_trace_are_refused(recorded):
    with Replay(recorded, ACTOR) as replay:
        for wrong in (-1, 7, 1.5, True):
            with pytest.raises(UsageError, match="it has 1 to 6"):
                replay.to(wrong)


def test_a_link_that_takes_the_place_of_a_trace_is_not_written_through(
    make_host, path, monkeypatch
):
    other = path.with_name("other")
    other.write_text("of somebody else")

    def exchanged(locked):
        descriptor = lock_file(locked)
        locked.unlink()
        locked.symlink_to(other)
        return descriptor

    monkeypatch.setattr(trace_files, "lock_file", exchanged)
    host = make_host(trace=path)
    host.load(COUNTING).update()
    host.close()

    assert other.read_text() == "of somebody else"


def test_what_is_recorded_of_a_call(recorded):
    (segment,) = read_trace(recorded).segments
    events = segment.events()

    calls = [event for event in events if isinstance(event, Called)]
    assert [call.frame for call in calls] == [1, 2, 3, 4, 5, 6]
    assert sum(isinstance(event, Imported) for event in events) == 1
    submits = [event for event in events if isinstance(event, Submitted)]
    assert {len(event.actions) for event in submits} == {8}


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"trace": 5}, "trace is 5"),
        ({"trace": "/nowhere/x.trace"}, "cannot be written: No such file"),
    ],
)
def test_what_cannot_be_a_trace_is_refused(make_host, options, message):
    with pytest.raises(UsageError, match=message):
        make_host(**options).load(COUNTING)
    with pytest.raises(UsageError, match="limit_bytes is 0"):
        Trace("x", limit_bytes=0)
    with pytest.raises(UsageError, match="snapshot_seconds is -1"):
        Trace("x", snapshot_seconds=-1)
    with pytest.raises(UsageError, match="guests is"):
        Trace("x", guests=[-1])


def test_a_command_line_shows_what_functions_of_the_game_were_asked(make_host, path, tmp_path):
    source = tmp_path / "asking.wat"
    source.write_bytes(ASKING)
    host = make_host(trace=path, imports={("env", "ask"): lambda _: 7, ("env", "fill"): fill})
    host.load(ASKING).update()
    host.close()
    shown, told = (invoke("replay", path, source, *words) for words in ((), ("--json",)))

    assert re.search(r"env\.ask +0 +7 ", shown.out)
    assert told.json["calls"] == [
        {"function": "env.ask", "arguments": [0.0], "results": [7]},
        {"function": "env.fill", "arguments": [64, 7], "results": []},
    ]
