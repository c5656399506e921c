"""Noise and recurrent state through guests: an agent's actions depend on that agent alone."""

import numpy as np
import pytest
from tests.conformance import models
from tests.conformance.guest_group import INITIAL, PAGES, GuestGroup, Row, same_bits
from tests.conformance.scripted_guest import module

from arkml import Host

WIDTH = 3


class Stage:
    """Hosts that are made alike, each with a group of guests of one model."""

    def __init__(self):
        self.hosts = []
        self.groups = []

    def group(self, model, count=1, *, fleet=False, **options):
        host = Host(**options)
        self.hosts.append(host)
        program = host.compile(module(PAGES), name="group")
        group = (GuestGroup.fleet if fleet else GuestGroup.alone)(host, program, count)
        group.start(model, WIDTH, WIDTH)
        self.groups.append(group)
        return group


@pytest.fixture
def stage():
    made = Stage()
    yield made
    for host in made.hosts:
        host.close()


def row(agent, *, frame=0, **options):
    return Row(agent, (agent / 8, frame, -agent), **options)


def by_agent(submits, answers):
    """The actions of each agent, as bytes, of all submits of a frame."""
    return {
        made.agent: actions.tobytes()
        for submit, answer in zip(submits, answers, strict=True)
        for made, actions in zip(submit, answer, strict=True)
    }


@pytest.mark.parametrize("model", [models.noisy(WIDTH), models.wandering(WIDTH)])
def test_actions_do_not_depend_on_the_order_of_a_batch(stage, model):
    first, second = stage.group(model), stage.group(model)
    random = np.random.default_rng(0)
    agents = [int(agent) for agent in random.permutation(40)]
    for frame in range(5):
        here = [[row(agent, frame=frame) for agent in agents]]
        there = [[row(int(agent), frame=frame) for agent in random.permutation(agents)]]

        assert by_agent(here, first.frame({0: here})[0]) == by_agent(
            there, second.frame({0: there})[0]
        )


@pytest.mark.parametrize("model", [models.noisy(WIDTH), models.wandering(WIDTH)])
def test_actions_do_not_depend_on_how_rows_are_cut_into_submits_and_chunks(stage, model):
    whole, parts = stage.group(model), stage.group(model)
    agents = range(2_500)  # three chunks of the policy
    for frame in range(2):
        one = [[row(agent, frame=frame) for agent in agents]]
        many = [one[0][start : start + 170] for start in range(0, 2_500, 170)]

        assert by_agent(one, whole.frame({0: one})[0]) == by_agent(many, parts.frame({0: many})[0])


@pytest.mark.parametrize("count", [1, 2, 5])
@pytest.mark.parametrize("model", [models.noisy(WIDTH), models.wandering(WIDTH)])
def test_a_guest_of_a_fleet_acts_like_a_single_guest_with_its_number(stage, model, count):
    alone, fleet = stage.group(model, 5), stage.group(model, count, fleet=True)
    for frame in range(4):
        rows = {k: [[row(a, frame=frame) for a in range(1 + (frame + k) % 3)]] for k in range(5)}
        here = alone.frame(rows)
        there = fleet.frame({place: rows[place] for place in range(count)})

        assert all(same_bits(here[place], there[place]) for place in range(count))


def test_a_dense_policy_answers_a_fleet_like_single_guests(stage):
    model = models.dense(WIDTH, WIDTH)
    alone, fleet = stage.group(model, 4), stage.group(model, 4, fleet=True)
    rows = {place: [[row(agent + place) for agent in range(3)]] for place in range(4)}
    here, there = alone.frame(rows), fleet.frame(rows)

    for place in range(4):
        np.testing.assert_allclose(here[place][0], there[place][0], atol=1e-6)


def test_the_same_seed_gives_the_same_noise_and_another_one_does_not(stage):
    rows = {0: [[row(agent) for agent in range(4)]]}
    first, again, other = (
        stage.group(models.noisy(WIDTH), seed=seed).frame(rows)[0] for seed in (5, 5, 6)
    )

    assert same_bits(first, again)
    assert (first[0] != other[0]).all()


@pytest.mark.parametrize("fleet", [False, True])
def test_a_deterministic_host_adds_no_noise(stage, fleet):
    group = stage.group(models.noisy(WIDTH), 3, fleet=fleet, deterministic=True)
    rows = {place: [[row(agent + place) for agent in range(2)]] for place in range(3)}
    for _ in range(2):
        for place, (actions,) in group.frame(rows).items():
            assert actions.tolist() == [list(made.features) for made in rows[place][0]]


def test_noise_is_standard_normal_and_new_at_every_step(stage):
    group = stage.group(models.noisy(WIDTH))
    rows = [Row(agent, (0.0,) * WIDTH) for agent in range(2_000)]
    frames = np.array([group.frame({0: [rows]})[0][0] for _ in range(4)])

    assert abs(frames.mean()) < 0.02
    assert abs(frames.std() - 1) < 0.02
    assert len(np.unique(frames)) > 0.99 * frames.size
    assert abs(np.corrcoef(frames[0].ravel(), frames[1].ravel())[0, 1]) < 0.05


def test_one_id_in_two_guests_or_two_sessions_has_noise_of_its_own(stage):
    group = stage.group(models.noisy(WIDTH), 2, fleet=True)
    rows = [[Row(7, (0.0,) * WIDTH)]]
    first = group.frame({0: rows, 1: rows})
    group.start(models.noisy(WIDTH), WIDTH, WIDTH)
    second = group.frame({0: rows, 1: rows})
    seen = {actions.tobytes() for found in (first, second) for (actions,) in found.values()}

    assert len(seen) == 4


@pytest.mark.parametrize("fleet", [False, True])
def test_an_agent_remembers_by_its_id_whoever_else_is_there(stage, fleet):
    group = stage.group(models.adding(WIDTH), 2, fleet=fleet)
    sums = {}
    random = np.random.default_rng(1)
    for frame in range(12):
        rows = {}
        for place in range(2):
            agents = random.permutation(6)[: 1 + random.integers(5)]
            rows[place] = [[row(int(agent), frame=frame) for agent in agents]]
        answers = group.frame(rows)
        for place, (submit,) in rows.items():
            for made, actions in zip(submit, answers[place][0], strict=True):
                key = place, made.agent
                sums[key] = sums.get(key, np.zeros(WIDTH)) + made.features

                assert actions.tolist() == sums[key].tolist()


def test_initial_starts_anew_for_one_guest_of_a_fleet_only(stage):
    group = stage.group(models.adding(WIDTH), 2, fleet=True)
    usual = [[Row(1, (1.0, 2.0, 3.0))]]
    group.frame({0: usual, 1: usual})
    answers = group.frame({0: [[Row(1, (1.0, 2.0, 3.0), INITIAL)]], 1: usual})

    assert answers[0][0].tolist() == [[1, 2, 3]]
    assert answers[1][0].tolist() == [[2, 4, 6]]


@pytest.mark.parametrize("fleet", [False, True])
def test_a_new_session_remembers_nothing_of_the_one_before(stage, fleet):
    group = stage.group(models.adding(WIDTH), 1, fleet=fleet)
    rows = {0: [[Row(1, (1.0, 2.0, 3.0))]]}
    group.frame(rows)
    group.start(models.adding(WIDTH), WIDTH, WIDTH)

    assert group.frame(rows)[0][0].tolist() == [[1, 2, 3]]
