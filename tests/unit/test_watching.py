"""The pace and the frames of a guest that is watched, and the streams of those who watch it."""

import asyncio
import gc
import json
import weakref

import numpy as np
import pytest

from arkml.batches import ROW, Batch
from arkml.errors import GuestTrap, HiveRefused
from arkml.hive.protocol.watch_messages import GuestReport, PlayerJob
from arkml.server.serve_options import WatchOptions
from arkml.server.watch_player import WatchedVersion
from arkml.server.watches import PlayedVersion, Watches
from arkml.watching.frames import WatchedFrames
from arkml.watching.pace import BYTES_PER_SECOND, SHARE, WatchPace
from arkml.watching.player import ending_of

RUNNING, TERMINAL, INITIAL = 0, 1, 3
JOB = PlayerJob(
    guest=GuestReport("0" * 64, "guest.wasm", "walker"), version=1, module_bytes=0, policy_bytes=0
)


class Clock:
    """A time that passes while one sleeps or works."""

    def __init__(self):
        self.now = self.used = 0.0

    def sleep(self, seconds):
        self.now += seconds

    def work(self, seconds):
        self.now += seconds
        self.used += seconds

    def pace(self, rate):
        return WatchPace(rate, clock=lambda: self.now, spent=lambda: self.used, sleep=self.sleep)


def test_frames_come_at_the_rate_and_late_ones_are_not_made_up_for():
    clock = Clock()
    pace = clock.pace(10)
    times = []
    for work in (0.01, 0.02, 0.0):
        clock.work(work)
        pace.wait()
        times.append(clock.now)
    clock.now += 5.0  # the machine was asleep
    pace.wait()
    times.append(clock.now)
    pace.wait()
    times.append(clock.now)

    assert times == pytest.approx([0.1, 0.2, 0.3, 5.3, 5.4])


def test_a_guest_that_takes_long_is_played_slower_and_takes_its_share_of_a_core():
    clock = Clock()
    pace = clock.pace(30)
    for _ in range(100):
        clock.work(0.2)
        pace.wait()

    assert clock.used / clock.now == pytest.approx(SHARE)


def test_frames_that_nobody_sees_wait_for_the_share_of_a_core_alone():
    clock = Clock()
    pace = clock.pace(30)
    for _ in range(100):
        clock.work(0.001)
        pace.wait(is_seen=False)
    unseen = clock.now
    pace.wait()

    assert unseen == pytest.approx(100 * 0.001 / SHARE)
    assert clock.now - unseen == pytest.approx(1 / 30)


def test_of_large_frames_as_many_are_shown_as_their_bytes_allow():
    clock = Clock()
    pace = clock.pace(30)
    shown = 0
    for _ in range(30 * 20):
        if pace.shows:
            pace.note(BYTES_PER_SECOND // 4)
            shown += 1
        pace.wait()

    assert shown == pytest.approx(4 * 20, abs=5)


def batch(agents, rewards, states, *, features=2):
    rows = np.zeros(len(agents), ROW)
    rows["id"], rows["reward"], rows["state"] = agents, rewards, states
    observations = np.arange(len(agents) * features, dtype=np.float32).reshape(-1, features)
    actions = np.full((len(agents), 1), 0.5, np.float32)
    return Batch(rows, observations, actions, np.zeros(len(agents), np.float32), np.uint64(9))


def test_a_frame_has_its_submits_and_returns_count_frames_that_are_not_shown():
    frames = WatchedFrames(None)
    for number, state in ((1, INITIAL), (2, RUNNING), (3, RUNNING)):
        frames.add(batch([5, 6], [1.0, 2.0], [state, state]))
        shown = frames.take(number, is_shown=number != 2)
        assert (shown is None) == (number == 2)

    [submit] = shown.submits
    assert (shown.frame, submit.agents, submit.rows) == (3, ["5", "6"], 2)
    assert submit.returns == [2.0, 4.0]
    assert submit.observations == [[0.0, 1.0], [2.0, 3.0]]
    assert (submit.actions, submit.values) == ([[0.5], [0.5]], [])
    assert not frames.has_rows


def test_what_a_frame_holds_is_copied_and_its_size_bounded():
    frames = WatchedFrames(None)
    one = batch(list(range(1000)), [0.0] * 1000, [INITIAL] * 1000, features=1000)
    frames.add(one)
    one.features[:] = -1
    shown = frames.take(1, is_shown=True)

    [submit] = shown.submits
    assert (submit.rows, len(submit.agents)) == (1000, 29)
    assert submit.observations[0][1] == 1.0
    assert len(shown.as_bytes()) < 500_000


def test_an_end_is_one_harmless_line_of_bounded_length():
    end = ending_of(GuestTrap("\x1b[31m" + "x" * 9_000 + "\nsecond"))

    assert "\x1b" not in end.reason
    assert "second" not in end.reason
    assert len(end.reason) < 600


PLAYERS = {
    "plays": """
    while True:
        n += 1
        say('frame {"frame": %d}' % n)
        time.sleep(0.001)
    """,
    "silent": "time.sleep(9999)",
    "stuck": """
    say('beat {}')
    time.sleep(9999)
    """,
    "ends": "sys.exit(3)",
    "killed": "import os, signal; os.kill(os.getpid(), signal.SIGKILL)",
    "wrong": "say('shout {}')",
    "large": "say('frame ' + 'x' * (9 << 20))",
    "beats": """
    say('beat {}')
    say('ended {"reason": "done", "calls": []}')
    """,
}


@pytest.fixture
def player(tmp_path, monkeypatch):
    """Makes the options of a hive whose players run a script."""

    def make(name, **options):
        lines = [line.removeprefix("    ") for line in PLAYERS[name].split("\n")]
        head = "import sys, time\nn = 0\ndef say(line):\n    print(line, flush=True)\n"
        (tmp_path / "scripted_player.py").write_text(head + "\n".join(lines))
        monkeypatch.setenv("PYTHONPATH", str(tmp_path))
        return WatchOptions(program="scripted_player", **options)

    return make


def watch_of(options, ended=lambda _: None):
    return WatchedVersion(options, JOB, (), is_kept=lambda: True, ended=ended)


def events_in(chunks):
    found = b"".join(chunks).decode().split("\n\n")
    parsed = [one.split("\n") for one in found if one.startswith("event")]
    return [(kind[7:], json.loads(data[6:])) for kind, data in parsed]


async def test_a_slow_watcher_misses_frames_and_a_quick_one_sees_all_that_come(player):
    watch = watch_of(player("plays", linger=0.05))
    slow, quick = watch.stream(), watch.stream()
    first = events_in([await anext(slow)])
    seen = []
    while len(seen) < 50:
        seen += events_in([await anext(quick)])
    later = events_in([await anext(slow)])

    assert first[0][0] == "frame"
    assert later[-1][1]["frame"] > first[-1][1]["frame"] + 20
    assert len(later) == 1
    await slow.aclose()
    await quick.aclose()
    await asyncio.wait([watch._playing])


async def test_a_player_goes_on_for_a_moment_after_the_last_watcher_and_for_one_who_comes(player):
    gone = []
    watch = watch_of(player("plays", linger=0.2), gone.append)
    stream = watch.stream()
    await anext(stream)
    await stream.aclose()
    again = watch.stream()
    await anext(again)
    since = asyncio.get_running_loop().time()
    while asyncio.get_running_loop().time() < since + 0.4:
        await anext(again)
    assert not gone
    await again.aclose()
    await asyncio.wait([watch._playing])

    assert gone == [watch]


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("silent", "the guest has not come to the end of a frame for 0.3 s, and was ended"),
        ("stuck", "the guest has not come to the end of a frame for 0.2 s, and was ended"),
        ("ends", "the player ended with status 3"),
        ("killed", "the player was ended by signal 9, as by a want of memory"),
        ("wrong", "the player said what is no line of a player, and was ended"),
        ("large", "the player said more than 8,388,608 bytes at once"),
        ("beats", "done"),
    ],
)
async def test_the_end_of_a_player_is_an_event_with_its_reason(player, name, reason):
    watch = watch_of(player(name, start=0.3 if name == "silent" else 60.0, hang=0.2))

    events = events_in([chunk async for chunk in watch.stream()])
    await asyncio.wait([watch._playing])
    assert events == [("ended", {"reason": reason, "calls": []})]


def version_of(number):
    return PlayedVersion("run", number, b"", JOB.guest, b"", lambda: True)


class Recorded:
    """A report that a weak reference can be had of."""

    def __init__(self, version):
        self.version = version


async def test_recordings_that_nobody_comes_back_for_are_forgotten(monkeypatch, caplog):
    made, over = [], asyncio.Event()

    async def record(_, version):
        await over.wait()
        if version.number in (1, 3):
            raise HiveRefused("no episode ended", 503)
        report = Recorded(version.number)
        made.append(weakref.ref(report))
        return report

    monkeypatch.setattr(Watches, "_record", record)
    watches = Watches(WatchOptions(total=2))
    for number in range(10):
        over.clear()
        assert await watches.record(version_of(number), 0.0) is None
        over.set()
        for _ in range(3):  # the recording goes on, and ends
            await asyncio.sleep(0)

    assert len([one for one in made if one() is not None]) <= 2 + 1  # and the newest
    assert (await watches.record(version_of(8), 1.0)).version == 8
    gc.collect()
    assert not [one for one in caplog.records if one.name == "asyncio"]
