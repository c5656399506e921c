"""Saved states of guests and fleets: the same steps follow, wherever they are restored."""

import gc
import hashlib
import os
import threading
import zlib
from contextlib import suppress

import msgspec
import pytest
from tests.integration.guest_text import GUESTS, ROOT, function, module, python
from tests.integration.snapshot_guest import MANY_SESSIONS, MODELS, memory_of

from arkml import FleetSnapshot, GuestSnapshot, Host
from arkml.errors import (
    GuestBusy,
    GuestFailed,
    GuestMemoryFull,
    GuestTrap,
    StateRefused,
    UsageError,
)
from arkml.guests.guest import calls_of
from arkml.guests.snapshots import read_state
from arkml.limits import MIB, Limits
from arkml.runtime.saved_memory import PackedMemory
from arkml.runtime.wasi.linking import WasiGrant

LINEAR, ADDING, NOISY, WIDE = range(len(MODELS))
COUNTER = module(
    "(global $frames (mut i32) (i32.const 0))",
    function(
        "ark_applet_update",
        """(global.set $frames (i32.add (global.get $frames) (i32.const 1)))
        (i32.store (i32.const 70000) (global.get $frames))""",
    ),
    function("frames", "(global.get $frames)", result="i32"),
    function("boom", "unreachable"),
    function("grow", "(memory.grow (local.get $n))", params="(param $n i32)", result="i32"),
    memory='(memory (export "memory") 2)',
)
APPLETS = sorted(
    path
    for path in GUESTS.glob("*.wasm")
    if path.stem not in ("c_lines", "c_started", "as_abort")  # trap on purpose
    and not path.stem.startswith(("c_choosers", "c_curriculum", "c_listener", "c_walkers"))
    and b"ark_applet_update" in path.read_bytes()
)
STEPS = 30


def seen(guest):
    """What can be seen of a guest: its memory and its counts."""
    return hashlib.sha256(memory_of(guest)).hexdigest(), guest.live_handles


def played(guest, steps=STEPS):
    """What a guest shows after each of some frames."""
    found = []
    for _ in range(steps):
        guest.update()
        found.append(seen(guest))
    return found


@pytest.fixture
def many(host):
    """A guest with a session of each model, each with an agent that has acted."""
    guest = host.load(MANY_SESSIONS, name="many")
    for number in range(len(MODELS)):
        assert guest.call("open", number, number) == 0
        acted(guest, number)
    return guest


def acted(guest, number, agent=5):
    """The action for an agent of a session, which sees a one."""
    width = 2 if number == WIDE else 1
    assert guest.call("push", number, agent, 1.0, width) == 0
    assert guest.call("submit", number, 1, width) == 0
    return guest.call("action", 0)


def actions(guest, steps=4):
    return [acted(guest, number) for _ in range(steps) for number in range(len(MODELS))]


@pytest.mark.parametrize("path", APPLETS, ids=lambda path: path.stem)
def test_the_frames_after_a_restore_are_those_after_the_snapshot(make_host, path):
    host = make_host(seed=3, wasi=WasiGrant())
    guest = host.load(path)
    played(guest, 5)
    state = guest.snapshot()
    expected = played(guest)
    guest.restore(state)
    again = played(guest)
    other = host.load(path)
    other.restore(GuestSnapshot.load(bytes(state)))

    if path.stem not in ("c_drift", "as_language"):  # they ask for the time
        assert again == expected
        assert played(other) == expected
    assert other.failure is None


def test_every_kind_of_applet_was_asked():
    assert len(APPLETS) > 30


def test_policies_that_remember_and_draw_go_on_as_before(many):
    state = many.snapshot()
    expected = actions(many)
    many.restore(state)

    assert len(set(expected)) > len(MODELS)
    assert actions(many) == expected


def test_another_guest_remembers_and_draws_noise_of_its_own(many, host):
    state = many.snapshot()
    expected = actions(many)
    other = host.load(MANY_SESSIONS, name="other")
    other.restore(state)
    found = actions(other)

    by_model = [(expected[n :: len(MODELS)], found[n :: len(MODELS)]) for n in range(len(MODELS))]
    assert [before == now for before, now in by_model] == [True, True, False, True]


def test_another_process_goes_on_from_a_file(many, tmp_path):
    many.snapshot().save(tmp_path / "many.state")
    expected = actions(many)
    script = f"""
from arkml import Host
from tests.integration.snapshot_guest import MANY_SESSIONS, memory_of
from tests.integration.test_snapshots import actions, seen
with Host() as host:
    guest = host.restore({str(tmp_path / "many.state")!r}, MANY_SESSIONS)
    print(actions(guest), seen(guest)[0])
"""
    for pure in ("", "1"):
        ended = python(f"import os\nos.environ['ARKML_PURE'] = {pure!r}\n{script}")
        assert ended.stdout.strip() == f"{expected} {seen(many)[0]}", ended.stderr


@pytest.mark.parametrize("threads", [1, 8])
@pytest.mark.parametrize("path", [GUESTS / "c_applet.wasm", GUESTS / "c_pendulum.wasm"])
def test_the_guests_of_a_fleet_go_on_as_before(make_host, threads, path):
    expected, found = None, []
    with Host() as host, host.fleet(path, 20) as fleet:
        fleet.update()
        state = fleet.snapshot()
        fleet.update()
        fleet.update()
        expected = [seen(guest) for guest in fleet.guests]
    data = bytes(state)
    for count in (20, 3, 25):
        fleet = make_host(threads=threads).fleet(path, count)
        fleet.restore(FleetSnapshot.load(data))
        fleet.update()
        fleet.update()
        found.append([seen(guest) for guest in fleet.guests])

    assert found == [expected] * 3


def test_a_memory_that_has_grown_gets_smaller_again(many):
    state, before = many.snapshot(), seen(many)
    many.call("grow", 3)
    actions(many)
    many.restore(state)

    assert seen(many) == before
    assert many.call("pages") == 2
    assert many.call("grow", 1) == 2
    assert len(actions(many, 1)) == len(MODELS)


def test_a_memory_that_was_larger_grows_again(many):
    small = many.snapshot()
    many.call("grow", 3)
    large, before = many.snapshot(), seen(many)
    many.restore(small)
    many.restore(large)

    assert seen(many) == before


@pytest.mark.parametrize("threads", [1, 8])
def test_a_fleet_whose_guests_grew_calls_the_functions_of_the_new_instances(make_host, threads):
    fleet = make_host(threads=threads).fleet(COUNTER, 3)
    fleet.update()
    fleet.call("frames")
    state = fleet.snapshot()
    fleet.call("grow", 2, only=[0, 2])
    fleet.update()
    fleet.restore(state)

    assert fleet.call("frames").values == [1, 1, 1]
    assert fleet.update() == {}
    assert fleet.call("frames").values == [2, 2, 2]


def test_a_guest_of_a_fleet_goes_back_by_itself(host):
    fleet = host.fleet(COUNTER, 3)
    fleet.update()
    state = fleet.guests[1].snapshot()
    fleet.call("grow", 1)
    fleet.update()
    fleet.guests[1].restore(state)
    fleet.update()

    assert fleet.call("frames").values == [3, 2, 3]


def test_each_guest_of_a_fleet_goes_on_from_the_state_of_one(host):
    guest, fleet = host.load(MANY_SESSIONS), host.fleet(MANY_SESSIONS, 5)
    guest.call("open", 0, ADDING)
    first = [acted(guest, 0) for _ in range(3)]
    state, follows = guest.snapshot(), [acted(guest, 0) for _ in range(3)]
    fleet.call("open", 1, ADDING, only=[2])
    fleet.guests[3].close()
    for _ in range(2):
        fleet.restore(state)

        assert len(fleet) == 5
        assert follows != first
        for each in fleet.guests:
            assert each.live_handles == 1
            assert [acted(each, 0) for _ in range(3)] == follows


def test_the_guests_of_a_fleet_that_failed_closed_joined_and_left_are_back(host):
    fleet = host.fleet(COUNTER, 5)
    fleet.update()
    state = fleet.snapshot()
    fleet.call("boom", only=[1])
    fleet.guests[3].close()
    fleet.remove(fleet.guests[0])
    fleet.join(3)
    fleet.update()
    fleet.restore(state)

    assert len(fleet) == 5
    assert fleet.update() == {}
    assert fleet.call("frames").values == [2] * 5


def test_a_fleet_is_filled_up_although_closed_guests_take_those_that_join(host):
    fleet = host.fleet(COUNTER, 4)
    state = fleet.snapshot()
    fleet.remove(fleet.guests[0])
    fleet.guests[1].close()
    fleet.restore(state)

    assert fleet.call("frames").values == [0] * 4


def test_a_guest_that_had_failed_is_closed_by_a_restore(host):
    fleet = host.fleet(COUNTER, 3)
    fleet.call("boom", only=[1])
    state = fleet.snapshot()
    fleet.replace(fleet.guests[1])
    fleet.restore(state)

    assert [type(error) for error in fleet.update().values()] == [GuestFailed]
    assert fleet.call("frames").values == [1, None, 1]


def test_rows_that_wait_are_submitted_after_a_restore(many):
    many.call("push", ADDING, 7, 3.0, 1)
    many.call("push", ADDING, 5, 2.0, 1)
    state = many.snapshot()
    for _ in range(2):
        many.call("push", ADDING, 9, 9.0, 1)
        many.restore(state)
        assert many.call("submit", ADDING, 2, 1) == 0
        assert [many.call("action", row) for row in range(2)] == [3.0, 3.0]

    many.restore(GuestSnapshot.load(bytes(state)))
    assert many.call("submit", ADDING, 2, 1) == 0
    assert [many.call("action", row) for row in range(2)] == [3.0, 3.0]


def test_the_function_that_starts_a_language_runs_after_a_restore_if_it_had_not(host):
    path = GUESTS / "c_started.wasm"
    before = host.load(path).snapshot()
    guest = host.load(path)
    guest.call("_start") if "_start" in guest.module.functions else guest.update()
    guest.restore(before)

    assert calls_of(guest).is_initialized
    guest.update()


def test_a_guest_that_was_not_initialized_is_not_after_a_restore(host):
    source = module(
        "(global $set (mut i32) (i32.const 0))",
        function("ark_initialize", "(global.set $set (i32.const 1))"),
        function("is_set", "(global.get $set)", result="i32"),
    )
    state = host.load(source, initialize=False).snapshot()
    guest = host.load(source)
    guest.restore(GuestSnapshot.load(bytes(state)))

    assert guest.call("is_set") == 0
    guest.initialize()
    assert guest.call("is_set") == 1


def test_the_state_of_another_module_is_refused(host, many):
    state = many.snapshot()
    other = host.load(COUNTER, name="counter")
    with pytest.raises(StateRefused, match="another module: it is of many"):
        other.restore(state)
    with pytest.raises(StateRefused, match="another module: it is of many"):
        host.restore(bytes(state), COUNTER)

    assert other.call("frames") == 0


def test_a_guest_in_a_call_is_neither_saved_nor_restored(host, on_thread):
    fleet = host.fleet(COUNTER, 2)
    state, whole = fleet.guests[0].snapshot(), fleet.snapshot()
    works = (
        fleet.snapshot,
        fleet.guests[1].snapshot,
        lambda: fleet.restore(whole),
        lambda: fleet.guests[0].restore(state),
    )
    with calls_of(fleet.guests[0]).fiber.call_guard.kept("it"):
        errors = [on_thread(work).result() for work in works]

    assert [type(error) for error in errors] == [GuestBusy] * 4


def test_a_guest_that_failed_or_is_closed_is_neither_saved_nor_restored(host):
    guest, closed = host.load(COUNTER), host.load(COUNTER)
    state = guest.snapshot()
    with pytest.raises(GuestTrap):
        guest.call("boom")
    closed.close()

    for each in (guest, closed):
        with pytest.raises(GuestFailed):
            each.snapshot()
        with pytest.raises(GuestFailed):
            each.restore(state)


@pytest.mark.parametrize("kind", [bytes, bytearray, memoryview])
def test_the_bytes_of_a_snapshot_are_not_given_to_the_guests_own_code(host, kind):
    guest = host.load(COUNTER)
    state = bytes(guest.snapshot())
    with pytest.raises(UsageError, match=r"bytes of a snapshot.*GuestSnapshot\.load"):
        guest.restore(kind(state))
    guest.update()
    guest.restore(GuestSnapshot.load(kind(state)))
    assert guest.call("frames") == 0


def test_the_state_of_a_fleet_is_no_guests(host):
    guest, fleet = host.load(COUNTER), host.fleet(COUNTER, 1)
    with pytest.raises(UsageError, match=r"takes the result of Guest\.snapshot"):
        guest.restore(fleet.snapshot())
    with pytest.raises(UsageError, match=r"takes the result of Fleet\.snapshot"):
        fleet.restore(bytes(guest.snapshot()))


def rewritten(state, **changes):
    """The file of a state with another first guest."""
    head, content = bytes(state)[:13], bytes(state)[45:]
    body = msgspec.msgpack.decode(zlib.decompress(content))
    body["guests"][0] |= changes
    return sealed(msgspec.msgpack.encode(body), head)


def sealed(body, head=b"arkml-state\n\x01"):
    content = zlib.compress(body)
    return head + hashlib.sha256(content).digest() + content


def test_a_file_that_was_cut_or_altered_anywhere_is_refused(host):
    data = bytes(host.load(COUNTER).snapshot())
    found = [data[:end] for end in range(0, len(data), 7)]
    found += [data[:at] + bytes((data[at] ^ 1,)) + data[at + 1 :] for at in range(len(data))]
    found += [data + b"\0"]

    for each in found:
        with pytest.raises(StateRefused):
            GuestSnapshot.load(each)


def test_a_file_of_a_later_release_says_so(host):
    data = bytearray(bytes(host.load(COUNTER).snapshot()))
    data[12] = 2
    with pytest.raises(StateRefused, match="version 2, of a later release"):
        GuestSnapshot.load(data)


def test_a_fleets_file_is_not_a_guests(host):
    fleet = host.fleet(COUNTER, 2)
    with pytest.raises(StateRefused, match="of a fleet, not of a guest"):
        GuestSnapshot.load(bytes(fleet.snapshot()))
    with pytest.raises(StateRefused, match="of a guest, not of a fleet"):
        FleetSnapshot.load(bytes(fleet.guests[0].snapshot()))

    assert isinstance(read_state(bytes(fleet.snapshot())), FleetSnapshot)


def words(*values, size=8):
    return b"".join(value.to_bytes(size, "little") for value in values)


def handles(generations, free=()):
    return {"generations": words(*generations), "free": words(*free, size=4)}


MEMORY = PackedMemory(65_536, 4_096, bytes(16), b"")
AGENTS = {
    "count": 2, "width": 1, "ids": words(1, 1), "steps": words(0, 0), "ended": bytes(2),
    "state": bytes(8),
}  # fmt: skip
SEEN = {
    "count": 1, "width": 0, "ids": words(1), "steps": words(3), "ended": bytes(1), "state": b"",
}  # fmt: skip
ONE = {"handles": handles([0]), "keys": 5}
SESSION = {
    "index": 0, "key": 0, "run": None, "widths": [1, 1], "model": None, "agents": None,
    "others": {},
}  # fmt: skip


@pytest.mark.parametrize(
    "changes",
    [
        {"memory": MEMORY._replace(size=5)},
        {"memory": MEMORY._replace(size=2 * 65_536)},
        {"memory": MEMORY._replace(page=0)},
        {"memory": MEMORY._replace(size=-65_536, page=-4_096)},
        {"memory": MEMORY._replace(page=1, held=bytes(65_536))},
        {"memory": MEMORY._replace(page=5_000)},
        {"memory": MEMORY._replace(page=8_192)},
        {"memory": MEMORY._replace(held=bytes(15))},
        {"memory": MEMORY._replace(held=b"\1" + bytes(15))},
        {"memory": MEMORY._replace(held=b"\2" + bytes(15))},
        {"memory": MEMORY._replace(content=bytes(4_095))},
        {"memory": MEMORY[:3]},
        {"globals": b""},
        {"globals": bytes(5)},
        {"keys": 1 << 31},
        {"keys": -1},
        {"handles": handles([0], [0, 0])},
        {"handles": handles([0], [1])},
        {"handles": handles([1 << 33])},
        {"handles": handles([0]) | {"free": b"123"}},
        {"brains": handles([], [0])},
        {"sessions": [SESSION]},
        {"sessions": [SESSION], "handles": handles([0])},
        {"sessions": [SESSION, SESSION], "handles": handles([0, 0]), "keys": 5},
        {"sessions": [SESSION, SESSION | {"index": 1}], "handles": handles([0, 0]), "keys": 5},
        {"sessions": [SESSION], "handles": handles([0], [0]), "keys": 5},
        {"sessions": [SESSION | {"model": 9}], **ONE},
        {"sessions": [SESSION | {"agents": AGENTS}], **ONE},
        {"sessions": [SESSION | {"agents": AGENTS | {"count": 1}}], **ONE},
        {"sessions": [SESSION | {"others": {2: SEEN | {"width": 1, "state": bytes(4)}}}], **ONE},
        {"sessions": [SESSION | {"others": dict.fromkeys((1, 2, 3), SEEN)}], **ONE},
        {"sessions": [SESSION | {"run": "x" * 1_025}], **ONE},
        {"random": [3, [0] * 625, None, 1]},
        {"random": [3, [0] * 624, None]},
        {"random": [3, [0] * 624 + [999], None]},
        {"random": [9, [0] * 625, None]},
        {"timers": {str(number): 0.0 for number in range(101)}},
        {"is_initialized": 3},
        {"more": 1},
    ],
    ids=repr,
)  # fmt: skip
def test_a_file_that_contradicts_itself_is_refused(host, changes):
    data = rewritten(host.load(COUNTER).snapshot(), **changes)
    with pytest.raises(StateRefused, match="damaged"):
        GuestSnapshot.load(data)


@pytest.mark.parametrize("guests", [[None], ["it", "it"], ["it", None]])
def test_a_file_of_a_guest_with_none_or_more_is_refused(host, guests):
    state = host.load(COUNTER).snapshot()
    body = msgspec.msgpack.decode(zlib.decompress(bytes(state)[45:]))
    body["guests"] = [body["guests"][0] if each == "it" else each for each in guests]
    for read in (GuestSnapshot.load, read_state):
        with pytest.raises(StateRefused, match="damaged"):
            read(sealed(msgspec.msgpack.encode(body)))


@pytest.mark.parametrize("types", [["f32"], [], ["i32", "i32"]])
def test_a_file_whose_globals_have_other_types_is_refused_and_changes_nothing(host, types):
    guest, fleet = host.load(COUNTER), host.fleet(COUNTER, 2)
    guest.update()
    body = msgspec.msgpack.decode(zlib.decompress(bytes(guest.snapshot())[45:]))
    body["globals"] = types
    body["guests"][0]["globals"] = bytes(4 * len(types))
    state = GuestSnapshot.load(sealed(msgspec.msgpack.encode(body)))
    for subject in (guest, fleet):
        with pytest.raises(StateRefused, match="globals have other types"):
            subject.restore(state)

    assert guest.call("frames") == 1
    assert fleet.call("frames").values == [0, 0]


def test_a_file_that_was_rewritten_without_a_change_is_taken(host):
    guest = host.load(COUNTER)
    guest.update()
    host.restore(rewritten(guest.snapshot()), COUNTER)


def test_sessions_of_a_file_that_cannot_be_opened_fail_the_guest_that_gets_them(many, host):
    session = SESSION | {"widths": [7, 7], "model": 0}
    changed = rewritten(many.snapshot(), sessions=[session], **ONE)
    with pytest.raises(StateRefused, match="a session cannot be opened again"):
        many.restore(GuestSnapshot.load(changed))

    assert many.failure is not None
    with pytest.raises(GuestFailed, match="was not restored"):
        many.call("turn")
    with pytest.raises(StateRefused, match="cannot be opened again"):
        host.restore(changed, MANY_SESSIONS)


def test_a_state_with_a_session_of_a_run_changes_nothing_where_there_is_none(many):
    session = SESSION | {"run": "abc"}
    changed = rewritten(many.snapshot(), sessions=[session], **ONE)
    before = seen(many)
    with pytest.raises(StateRefused, match="lacks a session of the run abc that"):
        many.restore(GuestSnapshot.load(changed))

    assert seen(many) == before
    assert len(actions(many, 1)) == len(MODELS)


def test_a_state_over_the_limits_changes_nothing(host, make_host):
    guest = host.load(MANY_SESSIONS)
    guest.call("grow", 30)
    guest.call("open", 0, ADDING)
    state = guest.snapshot()
    small = make_host(limits=Limits(memory_bytes=1 * MIB)).load(MANY_SESSIONS)
    with pytest.raises(StateRefused, match="2,097,152 bytes of memory"):
        small.restore(state)
    crowded = rewritten(state, handles=handles([0] * 5_000, range(1, 5_000)))
    with pytest.raises(StateRefused, match=r"5,000 handles, over the limit of 4,096"):
        guest.restore(GuestSnapshot.load(crowded))

    assert small.call("turn") == guest.call("turn") == 1


def zeros(size):
    """A memory of zeros in a file, all of which it holds."""
    return PackedMemory(size, 4_096, b"\1" * (size // 4_096), bytes(size))


def test_a_file_that_unpacks_to_more_than_is_allowed_is_refused_before_it_is_unpacked(host):
    state = host.load(COUNTER).snapshot()
    bomb = rewritten(state, memory=zeros(64 * MIB))

    assert len(bomb) < MIB
    with pytest.raises(StateRefused, match="over 1,048,576 bytes"):
        GuestSnapshot.load(bomb, most_bytes=MIB)
    for none in (0, -1, None):
        with pytest.raises(UsageError, match=r"most_bytes is .*: it takes a whole number from 1"):
            GuestSnapshot.load(bomb, most_bytes=none)


def test_a_host_unpacks_no_more_than_a_guest_may_have(host, make_host):
    small = make_host(limits=Limits(guest_bytes=8 * MIB))
    state = host.load(COUNTER).snapshot()
    with pytest.raises(StateRefused, match=f"over {8 * MIB:,} bytes"):
        small.restore(rewritten(state, memory=zeros(64 * MIB)), COUNTER)


def until_full(guest):
    """Snapshots of a guest, until it has no room for one more."""
    with suppress(GuestMemoryFull):
        while True:
            yield guest.snapshot()


def test_snapshots_are_charged_to_the_guest_while_they_live(make_host):
    guest = make_host(limits=Limits(guest_bytes=4 * MIB)).load(COUNTER)
    guest.write_memory(0, b"x" * (128 << 10))
    kept = list(until_full(guest))
    held = guest.account.snapshot_bytes

    assert 25 <= len(kept) <= 30
    assert len(kept) * kept[0].nbytes <= held <= 4 * MIB
    kept.clear()
    gc.collect()
    assert guest.account.snapshot_bytes == 0
    assert guest.call("grow", 20) == 2


def test_ten_thousand_snapshots_that_are_dropped_leave_nothing(host):
    guest = host.load(COUNTER)
    for _ in range(10_000):
        guest.snapshot()

    assert guest.account.snapshot_bytes == 0


def test_snapshots_without_memory_are_charged_as_well(make_host):
    source = b'(module (global (mut i32) (i32.const 1)) (func (export "f")))'
    guest = make_host(limits=Limits(guest_bytes=1 * MIB)).load(source)

    assert 0 < len(list(until_full(guest))) < 1_000


def test_models_that_only_snapshots_hold_are_charged_once(many):
    states = [many.snapshot()]
    one = many.account.snapshot_bytes
    states += [many.snapshot(), many.snapshot()]

    assert 3 * one - many.account.snapshot_bytes == 2 * sum(map(len, MODELS.values()))
    del states
    gc.collect()
    assert many.account.snapshot_bytes == 0


def test_guests_are_saved_and_restored_on_many_threads():
    failures = []

    def work():
        try:
            with Host() as own:
                guest = own.load(MANY_SESSIONS)
                guest.call("open", 0, ADDING)
                for turn in range(40):
                    state = guest.snapshot()
                    acted(guest, 0)
                    guest.call("grow", turn % 2)
                    guest.restore(state)
                    assert acted(guest, 0) == turn + 1
        except BaseException as error:  # noqa: BLE001  the test looks at it
            failures.append(error)

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert failures == []


def test_snapshots_that_are_dropped_on_other_threads_are_not_charged(host):
    guest = host.load(COUNTER)
    kept = [guest.snapshot() for _ in range(400)]

    def drop():
        while kept:
            try:
                kept.pop()
            except IndexError:
                return

    threads = [threading.Thread(target=drop) for _ in range(4)]
    for thread in threads:
        thread.start()
    while kept:
        assert guest.account.snapshot_bytes >= 0
    for thread in threads:
        thread.join()

    assert guest.account.snapshot_bytes == 0


def test_ctrl_c_comes_after_a_restore_that_is_whole():
    ended = python(
        """
import signal, sys
from arkml import Host
from arkml.guests.instance import Instance
from tests.integration.test_snapshots import COUNTER
with Host() as host:
    guest = host.load(COUNTER)
    guest.update()
    state = guest.snapshot()
    guest.update()
    end = Instance.end_load
    def interrupted(self, *state):
        signal.raise_signal(signal.SIGINT)
        end(self, *state)
    Instance.end_load = interrupted
    try:
        guest.restore(state)
    except KeyboardInterrupt:
        print("interrupted", guest.failure, guest.call("frames"))
"""
    )

    assert ended.stdout.strip() == "interrupted None 1", ended.stderr


def test_a_guest_whose_file_has_no_utf_8_name_is_saved(host, tmp_path):
    source = tmp_path / os.fsdecode(b"bad\xff.wasm")
    source.write_bytes(COUNTER)
    guest, fleet = host.load(source), host.fleet(source, 2)
    guest.snapshot().save(tmp_path / "guest.state")
    fleet.snapshot().save(tmp_path / "fleet.state")

    assert guest.name == "bad\udcff.wasm"
    assert GuestSnapshot.load(tmp_path / "guest.state").name == r"bad\udcff.wasm"
    assert FleetSnapshot.load(tmp_path / "fleet.state").name == r"bad\udcff.wasm"


def test_a_file_is_written_and_read_by_its_name(host, tmp_path):
    guest = host.load(COUNTER, name="counter")
    guest.update()
    guest.snapshot().save(tmp_path / "a.state")
    again = host.restore(tmp_path / "a.state", COUNTER)

    assert again.call("frames") == 1
    with pytest.raises(UsageError, match="cannot be read"):
        host.restore(tmp_path / "none.state", COUNTER)
    with pytest.raises(UsageError, match="cannot be written"):
        guest.snapshot().save(tmp_path / "none" / "a.state")
    with pytest.raises(StateRefused, match="is not the state of a guest"):
        host.restore(ROOT / "README.md", COUNTER)
