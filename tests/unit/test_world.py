"""Time and chance in an environment."""

import pytest

from arkml.envs.core.declared_specs import Declarations
from arkml.envs.core.experiments import Experiments
from arkml.envs.core.world import ORIGIN, Pace, SeededWorld
from arkml.errors import UsageError
from arkml.sessions.run_request import HiveAddress, TrainingRequest

SECOND = 1_000_000_000
CENTURIES = 1 << 64


def world(seed=1, **pace):
    return SeededWorld(seed, Pace(**pace))


def test_random_bytes_follow_from_the_seed_alone_and_differ_from_draw_to_draw():
    first, again, other = world(5), world(5), world(6)
    drawn = [first.random(size) for size in (16, 16, 1000)]

    assert drawn == [again.random(size) for size in (16, 16, 1000)]
    assert [len(data) for data in drawn] == [16, 16, 1000]
    assert drawn[0] != drawn[1]
    assert drawn[0] != other.random(16)


def test_a_world_goes_on_from_a_saved_one():
    first, again = world(5), world(5)
    words = [4, 11]
    first.follow(words, 0)
    again.follow(words, 1)
    first.random(16)
    first.tick()
    words[0] += 3  # frames that the clock has yet to advance by
    again.load(first.save())

    assert again.save() == first.save()
    assert again.random(16) == first.random(16)
    assert again.time_of_day() == first.time_of_day() == ORIGIN + 4 * round(SECOND / 60)


def test_the_stream_of_a_seed_is_the_same_for_ever():
    assert world(0).random(8).hex() == "8455762fb010365a"


def test_time_begins_at_the_origin_and_goes_on_by_frames():
    found = world()
    begin = found.time_of_day()
    for _ in range(60):
        found.tick()

    assert begin == found.reading() - 60 * round(SECOND / 60) == ORIGIN
    assert found.time_of_day() == found.reading()


def test_each_call_is_a_frame_after_the_one_before():
    found = world(frame_seconds=0.5)
    calls = [lambda: "first", lambda: "second"]
    times = [(begin(), found.reading() - ORIGIN) for begin in found.framed(iter(calls))]

    assert times == [("first", SECOND // 2), ("second", SECOND)]


def test_the_pace_may_change_at_any_time():
    pace = Pace(frame_seconds=0.5)
    found = SeededWorld(1, pace)
    gone = []
    for name, value in (
        ("time_scale", 20), ("capture_rate", 10), ("time_scale", 0), ("time_scale", 1),
        ("capture_rate", 0),
    ):  # fmt: skip
        setattr(pace, name, value)
        before = found.reading()
        found.tick()
        gone.append((found.reading() - before) / SECOND)

    assert gone == [10, 2, 0, 0.1, 0.5]
    assert pace.capture_rate == 2


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("time_scale", -1),
        ("time_scale", float("nan")),
        ("time_scale", float("inf")),
        ("time_scale", "fast"),
        ("capture_rate", -1),
        ("capture_rate", 1e-300),
    ],
)
def test_a_pace_that_makes_no_sense_is_refused_and_changes_nothing(name, value):
    pace = Pace()
    before = (pace.frame_seconds, pace.time_scale)
    with pytest.raises(UsageError, match=f"{name} is"):
        setattr(pace, name, value)

    assert (pace.frame_seconds, pace.time_scale) == before


@pytest.mark.parametrize("seconds", [0, -1, float("nan"), 1e12])
def test_a_frame_lasts_longer_than_nothing(seconds):
    with pytest.raises(UsageError, match="frame_seconds is"):
        Pace(seconds)


def test_who_sleeps_wakes_at_once_and_time_never_goes_back():
    found, rested = world(), []
    found.wait(ORIGIN + SECOND, 60.0, rested.append)
    late = found.reading()
    found.wait(ORIGIN, 60.0, rested.append)

    assert late == found.reading() == ORIGIN + SECOND
    assert rested == []


def test_who_waits_for_no_time_really_waits():
    found, rested = world(), []
    found.wait(None, 0.02, rested.append)

    assert rested == [0.02]
    assert found.reading() == ORIGIN


def test_the_time_of_day_fits_an_i64_for_ever():
    found = world()
    found.wait(CENTURIES, 0, lambda _: None)

    assert found.reading() == CENTURIES
    assert found.time_of_day() == (1 << 63) - 1


def test_experiments_are_named_and_dated_by_the_world():
    request = TrainingRequest(HiveAddress("localhost", 12356), "game", "game")
    listed = []
    for seed in (1, 1, 2):
        experiments = Experiments(
            None, lambda _: (2, 1), Declarations(None, None), None, world(seed)
        )
        run = experiments.start(request).result().run
        listed.append((run.id, run.info().started_at))

    assert listed[0] == listed[1]
    assert listed[0][0] != listed[2][0]
    assert listed[0][1] == ORIGIN


# Frames in a loop.


class Loop:
    """Counts frames as the shim's loop does, in a word."""

    def __init__(self, ended=0):
        self.ended = ended

    def __getitem__(self, index):
        assert index == 5
        return self.ended & 0xFFFF_FFFF


def followed(loop):
    found = world(frame_seconds=1.0)
    found.follow(loop, 5)
    return found


def test_a_frame_that_is_called_advances_the_clock_by_one():
    clock = followed(Loop())
    clock.tick()
    clock.tick()

    assert clock.reading() - ORIGIN == 2 * SECOND


def test_the_clock_has_a_frame_for_each_that_follows_one_in_the_loop():
    loop = Loop()
    clock = followed(loop)
    clock.tick()
    loop.ended += 1

    assert clock.reading() - ORIGIN == 2 * SECOND
    loop.ended += 2
    clock.settle()
    assert clock.time_of_day() - ORIGIN == 4 * SECOND


def test_a_call_after_the_end_of_a_frame_in_the_loop_is_the_frame_that_follows_it():
    loop = Loop()
    clock = followed(loop)
    clock.tick()
    loop.ended += 3  # the last one was followed by no other
    clock.tick()

    assert clock.reading() - ORIGIN == 4 * SECOND


def test_frames_that_others_have_counted_are_not_counted_again():
    loop = Loop()
    clock = followed(loop)
    loop.ended += 5
    clock.skip(5 * SECOND)

    assert clock.reading() - ORIGIN == 5 * SECOND


def test_the_number_of_frames_may_wrap_around():
    loop = Loop(0xFFFF_FFFF)
    clock = followed(loop)
    loop.ended += 1

    assert clock.reading() - ORIGIN == SECOND
