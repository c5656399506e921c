"""Rounds of a fleet: whatever one guest does changes nothing for the others."""

import numpy as np
import pytest
from tests.conformance import models
from tests.conformance.echo import Echo
from tests.conformance.guest_group import PAGES, GuestGroup, Row, same_bits
from tests.conformance.scripted_guest import module, step
from tests.conformance.test_noise_and_memory import WIDTH, Stage, row

from arkml import Host
from arkml.abi.codes import EpisodeState, ErrorCode
from arkml.errors import GuestBusy, GuestError, GuestFailed, Unavailable, UsageError
from arkml.guests.guest import calls_of
from arkml.sessions.session_table import TrainingStart

SEVERAL = (1, 3, 5)


@pytest.fixture
def stage():
    made = Stage()
    yield made
    for host in made.hosts:
        host.close()


def usual(places, frame, *, agents=1):
    return {place: [[row(agent, frame=frame) for agent in range(agents)]] for place in places}


def compacts(group):
    """Whether the last round copied rows together."""
    return any(part._moves for part in group.as_fleet._parts.batcher._groups)


@pytest.mark.parametrize("model", [models.dense(WIDTH, WIDTH), models.wandering(WIDTH)])
@pytest.mark.parametrize("rows", [1, 2, 4])
def test_compaction_and_adjacent_regions_give_the_same_bits(stage, model, rows):
    adjacent, compacted = (stage.group(model, 7, fleet=True) for _ in range(2))
    everyone = range(7)
    spare = {k: [[Row(900 + a, (0.0,) * WIDTH) for a in range(2 * rows + 1)]] for k in everyone}
    compacted.frame(spare)  # its regions have room for more rows than will come
    for frame in range(5):
        here = adjacent.frame(usual(everyone, frame, agents=rows))
        there = compacted.frame(usual(everyone, frame, agents=rows))

        assert (compacts(adjacent), compacts(compacted)) == (False, True)
        assert all(same_bits(here[place], there[place]) for place in everyone)


def test_a_fleet_in_disorder_answers_the_others_as_ever(stage):
    model = models.wandering(WIDTH)
    calm, wild = (stage.group(model, 6, fleet=True) for _ in range(2))
    alone = stage.group(model, 8)
    for frame in range(10):
        expected = calm.frame(usual(range(6), frame))
        if frame == 4:
            wild.as_fleet.join(1)
            wild.guests = wild.as_fleet.guests
            wild.start(model, WIDTH, WIDTH, only=[6])
        rows, extra = disorder(frame)
        found = wild.frame(rows, extra=extra)
        singles = alone.frame({k: v for k, v in rows.items() if k != 3})

        for place in (0, 5):
            assert same_bits(found[place], expected[place])
        for place in set(found) - {3}:
            assert same_bits(found[place], singles[place])
        if frame >= 3:
            assert isinstance(found[3], GuestError if frame == 3 else GuestFailed)


def disorder(frame):
    """0 and 5 are calm; 1 changes its rows, 2 skips, 3 fails, 4 ends, 6 joins."""
    rows = usual((0, 3, 5), frame)
    rows[1] = [[row(agent, frame=frame) for agent in range(frame % 4)]]
    if frame % 3:
        rows[2] = usual([2], frame)[2]
    rows[4] = usual([4], frame)[4] if frame < 5 else []
    if frame >= 4:
        rows[6] = usual([6], frame, agents=2)[6]
    extra = {3: step("trap")} if frame == 3 else {}
    return {place: rows[place] for place in sorted(rows)}, extra


def test_a_guest_that_fails_before_its_submit_leaves_the_round_to_the_others(stage):
    group, other = (stage.group(models.wandering(WIDTH), 4, fleet=True) for _ in range(2))
    expected = other.frame(usual(range(4), 0))
    rows = usual(range(4), 0)
    rows[2] = []
    found = group.frame(rows, extra={2: step("trap")})

    assert isinstance(found[2], GuestError)
    assert group.guests[2].failure is found[2]
    assert all(same_bits(found[place], expected[place]) for place in (0, 1, 3))


def test_each_submit_is_a_step_however_many_a_guest_makes(stage):
    model = models.wandering(WIDTH)
    fleet, alone = stage.group(model, 5, fleet=True), stage.group(model, 5)
    for frame in range(3):
        rows = {
            place: [[row(agent, frame=frame) for agent in range(1 + k % 3)] for k in range(place)]
            for place in range(5)
        }
        here, there = fleet.frame(rows), alone.frame(rows)

        assert [len(here[place]) for place in range(5)] == list(range(5))
        assert all(same_bits(here[place], there[place]) for place in range(5))


def test_regions_grow_in_the_middle_of_a_round(stage):
    model = models.wandering(WIDTH)
    fleet, alone = stage.group(model, 4, fleet=True), stage.group(model, 4)
    for frame, counts in enumerate(((1, 1, 1, 1), (1, 9, 1, 70), (300, 1, 2, 3), (1, 1, 1, 1))):
        rows = {k: usual([k], frame, agents=count)[k] for k, count in enumerate(counts)}
        here, there = fleet.frame(rows), alone.frame(rows)

        assert all(same_bits(here[place], there[place]) for place in range(4))


@pytest.mark.parametrize("changed", [[1], [0, 1, 2], [0, 1, 2, 3]])
def test_a_session_that_takes_the_place_of_another_is_answered_by_its_own_policy(stage, changed):
    fleet = stage.group(models.same(WIDTH), 4, fleet=True)
    rows = usual(range(4), 1)
    for _ in range(2):
        before = fleet.frame(rows)
    fleet.stop(only=changed)
    fleet.start(models.adding(WIDTH), WIDTH, WIDTH, only=changed)
    after = [fleet.frame(rows) for _ in range(3)]

    for place in range(4):
        (actions,) = before[place]
        for times, answers in enumerate(after, 1):
            factor = times if place in changed else 1
            assert answers[place][0].tolist() == (factor * actions).tolist()


def test_a_region_that_moved_between_two_equal_rounds_is_read_where_it_is(stage):
    fleet = stage.group(models.same(WIDTH), 4, fleet=True)
    for frame in range(3):
        assert moved(fleet, 2 + frame) == [0] * (2 + frame) + [ErrorCode.INVALID_ARGUMENTS]
        for again in range(2):
            rows = usual(range(4), 10 * frame + again)
            answers = fleet.frame(rows)
            for place, ((made,),) in rows.items():
                assert answers[place][0].tolist() == [list(made.features)]


def moved(fleet, count):
    """Let guest 2 push rows of which a wrong submit leaves nothing but a larger region."""
    steps = fleet.steps(2, usual([2], 99, agents=count)[2])[:-1]
    submit = "ark-ml-v1.ml__submit_inference_observations"
    steps.append(step(submit, fleet._handles[2], 0x18000, 1, 0x18000, 1))
    fleet.write(fleet.guests[2], steps)
    fleet._call([2])
    return fleet.codes(fleet.guests[2], count + 1)


@pytest.mark.parametrize("only", [[0, 0], [1, 0, 1], [0, -2], [-1, 1]])
def test_a_guest_is_in_one_call_at_a_time_even_of_its_fleet(stage, only):
    fleet = stage.group(models.adding(WIDTH), 2, fleet=True)
    fleet.frame(usual(range(2), 1))

    with pytest.raises((GuestBusy, UsageError)):
        fleet.as_fleet.call("entry", 0, 0, only=only)
    answers = fleet.frame(usual(range(2), 1))
    assert [answers[place][0].tolist() for place in range(2)] == [[[0, 2, 0]]] * 2


def test_guests_of_one_fleet_may_use_different_models(stage):
    fleet = stage.group(models.same(WIDTH), 4, fleet=True)
    fleet.start(models.adding(WIDTH), WIDTH, WIDTH, only=SEVERAL[:2])
    rows = usual(range(4), 1, agents=2)
    fleet.frame(rows)
    answers = fleet.frame(rows)

    for place, (actions,) in answers.items():
        factor = 2 if place in SEVERAL else 1
        expected = [[factor * number for number in made.features] for made in rows[place][0]]
        assert actions.tolist() == expected


def test_rows_that_ended_and_rows_that_are_not_finite_stay_with_their_owner(stage):
    fleet = stage.group(models.same(WIDTH), 3, fleet=True)
    bad = Row(1, (np.nan, 1.0, np.inf))
    ended = Row(2, (1.0, 2.0, 3.0), EpisodeState.TERMINAL)
    answers = fleet.frame({0: usual([0], 1)[0], 1: [[bad]], 2: [[ended, bad]]})
    statistics = [guest.statistics for guest in fleet.guests]

    assert answers[0][0].tolist() == [[0, 1, 0]]
    assert answers[1][0].tolist() == [[0, 1, 0]]
    assert answers[2][0].tolist() == [[0, 0, 0], [0, 1, 0]]
    assert [s.non_finite_features for s in statistics] == [0, 2, 2]
    assert [s.non_finite_actions for s in statistics] == [0, 2, 2]
    assert [s.rows for s in statistics] == [1, 1, 2]
    assert fleet.as_fleet.statistics.rows == 4


def opened(group, policies):
    """Give each guest a training session of a policy."""
    for place, policy in enumerate(policies):
        start = TrainingStart(policy, WIDTH, WIDTH)
        group._handles[place] = calls_of(group.guests[place]).services.sessions.open_training(start)
    group._width = WIDTH


@pytest.fixture
def fakes(stage):
    """A fleet of four whose guests train; the first two share a policy."""
    host = Host()
    stage.hosts.append(host)
    group = GuestGroup.fleet(host, host.compile(module(PAGES), name="group"), 4)
    first, second = Echo(WIDTH, WIDTH), Echo(WIDTH, WIDTH)
    opened(group, [first, first, second, second])
    return group, first, second


def test_a_policy_that_fails_fails_only_those_who_asked_it(fakes, caplog):
    group, first, second = fakes
    first.failure = Unavailable("not now")
    codes = []
    for _ in range(2):
        for place in range(4):
            submitted(group, place)
        group.as_fleet.call("entry", 0, 0)
        codes.append([group.codes(guest, 2)[1] for guest in group.guests])
        first.failure, second.failure = None, RuntimeError("a bug")

    assert codes[0] == [ErrorCode.UNAVAILABLE] * 2 + [0, 0]
    assert codes[1] == [0, 0] + [ErrorCode.INTERNAL_ERROR] * 2
    assert any(record.exc_info for record in caplog.records)


def submitted(group, place, given=(0, 0)):
    """Write a frame of one training row into a guest."""
    guest, handle = group.guests[place], group._handles[place]
    data = np.array([place, 1, 2, 10 + place, 20, 30], "<f4").tobytes()
    guest.write_memory(0x80, data)
    push = "ark-ml-v1.ml__push_training_observation"
    submit = "ark-ml-v1.ml__submit_training_observations"
    group.write(
        guest,
        [
            step(push, handle, place, 0, place / 2, 0x80, WIDTH, *given, 0.25),
            step(submit, handle, 0x400, WIDTH, 0x500, 1),
        ],
    )


@pytest.mark.parametrize("spare", [0, 3])
def test_rows_of_training_sessions_reach_one_policy_with_their_actions(fakes, spare):
    group, first, _ = fakes
    opened(group, [first] * 4)
    if spare:
        calls_of(group.guests[1]).services.sessions.open_training(
            TrainingStart(first, WIDTH, WIDTH)
        )
    for place in range(4):
        submitted(group, place, (0x80 + 12, WIDTH) if place % 2 else (0, 0))
    group.as_fleet.call("entry", 0, 0)
    (seen,) = first.batches

    assert sorted(seen.rows["id"].tolist()) == [0, 1, 2, 3]
    for place, agent in enumerate(seen.rows["id"].tolist()):
        assert seen.features[place].tolist() == [agent, 1, 2]
        assert seen.rows["reward"][place] == agent / 2
        assert seen.rows["given"][place] == (WIDTH if agent % 2 else 0)
        if agent % 2:
            assert seen.pushed_actions[place].tolist() == [10 + agent, 20, 30]
        answer = group.guests[agent].read_memory(0x400, 4 * WIDTH)
        assert np.frombuffer(answer, "<f4").tolist() == [place + k / 16 for k in range(WIDTH)]


def test_answers_of_ml_v5_are_batched_like_all_others(stage):
    model = models.wandering(WIDTH)
    fleet, alone = stage.group(model, 3, fleet=True), stage.group(model, 3)
    found = []
    for group in (fleet, alone):
        for place in range(3):
            steps = group.steps(place, usual([place], 1, agents=2)[place])[:-1]
            handle = group._handles[place]
            steps.append(step("ark-ml-v5.ml__submit_inference_observations", handle, 0x20))
            steps.append(step("ark-core-v4.core__take_host_return_vec", 0x400, 4 + 2 * (9 + 12)))
            group.write(group.guests[place], steps)
        group._call(list(range(3)))
        found.append([guest.read_memory(0x400, 46) for guest in group.guests])
        for guest in group.guests:
            assert group.codes(guest, 4) == [0] * 4

    assert found[0] == found[1]
    assert len(set(found[0])) == 3
