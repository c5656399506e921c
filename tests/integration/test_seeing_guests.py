"""Guests whose rows hold entities and pictures: what they show, and that it can be acted on."""

import json

import numpy as np
import pytest
from tests.integration.guest_text import GUESTS
from tests.integration.seeing_controllers import CEILING, EXIT, FLOOR, explore, sort

from arkml import GuestEnv, Host, evaluate

SORTER, FLAT = GUESTS / "c_sorter.wasm", GUESTS / "c_sorter_flat.wasm"
GALLERY = GUESTS / "c_gallery.wasm"
SIZE = 64


def drawn(*branches):
    """A policy of random choices."""
    generator = np.random.default_rng(7)
    return lambda rows: generator.integers(0, branches, (len(rows), len(branches)))


def played(module, policy, steps, agents=16):
    """Decisions of `steps` steps of a guest with seed 1, the first one included."""
    with GuestEnv(module, configure=(agents, 1)) as environment:
        decisions = [environment.reset(seed=1).decisions[0]]
        for _ in range(steps):
            rows = decisions[-1].observations[~decisions[-1].ended]
            decisions.append(environment.step(policy(rows)).decisions[0])
    return decisions


def episodes_of(decisions, metric):
    """The return of each episode that has ended, with its metric."""
    totals, ended = {}, []
    for decision in decisions:
        for agent, reward in zip(decision.agents.tolist(), decision.rewards.tolist(), strict=True):
            totals[agent] = totals.get(agent, 0.0) + reward
        ends = decision.agents[decision.ended].tolist()
        assert {item.name for item in decision.metadata} <= {metric}
        values = [item.value for item in decision.metadata]
        ended += zip([totals[agent] for agent in ends], values, strict=True)
    return ended


def parts_of_sorter(rows):
    """The agent itself, the number of tiles and the tiles, of each row."""
    return rows[:, :4], rows[:, 4].astype(int), rows[:, 5:].reshape(-1, 20, 6)


@pytest.mark.parametrize("module", [SORTER, FLAT])
def test_tiles_are_sorted_by_hand_and_not_by_chance(module):
    by_hand = evaluate(module, sort, episodes=100)
    by_chance = evaluate(module, drawn(5, 5), episodes=100)

    assert by_hand.mean_return >= 0.95
    assert by_chance.mean_return <= 0.1
    assert by_hand.lengths.max() < 200


def test_both_sorters_have_equal_rows_and_one_declares_entities():
    rows = [
        np.concatenate([decision.observations for decision in played(module, sort, 120)])
        for module in (SORTER, FLAT)
    ]
    with Host() as host:
        specs = [json.loads(host.load(module).info.spec) for module in (SORTER, FLAT)]
    kinds = [
        [part.get("kind") for part in spec["behaviors"]["sorter"]["observations"]] for spec in specs
    ]

    np.testing.assert_array_equal(*rows)
    assert kinds == [[None, "entities"], [None]]


def test_tiles_are_numbered_at_random_places_of_the_row_with_zeros_behind_them():
    rows = np.concatenate([d.observations for d in played(SORTER, sort, 200, agents=64)])
    me, counts, tiles = parts_of_sorter(rows)
    there = np.arange(20) < counts[:, None]
    numbers = np.rint(20 * tiles[:, :, 3]).astype(int)
    first = {tuple(row) for row in numbers[me[:, 3] == 0]}

    assert set(counts) == set(range(2, 21))
    np.testing.assert_array_equal(me[:, 2], (counts / 20).astype(np.float32))
    assert not tiles[~there].any()
    for row, count in zip(numbers, counts, strict=True):
        assert sorted(row[:count]) == list(range(1, count + 1))
    assert len(first) > 60
    np.testing.assert_allclose(np.hypot(*tiles[there][:, :2].T), tiles[there][:, 2], rtol=1e-5)
    around = np.repeat(me[:, None, :2], 20, axis=1)[there] + tiles[there][:, :2]
    np.testing.assert_allclose(np.hypot(*around.T), 0.8, rtol=1e-4)


def test_turns_of_tiles_follow_their_numbers_and_which_were_touched():
    rows = np.concatenate([d.observations for d in played(SORTER, sort, 200)])
    me, counts, tiles = parts_of_sorter(rows)
    done = np.rint(me[:, 3] * counts)[:, None]
    there = np.arange(20) < counts[:, None]
    number, touched, turn = np.rint(20 * tiles[:, :, 3]), tiles[:, :, 4], tiles[:, :, 5]

    np.testing.assert_array_equal(touched[there], (number <= done)[there])
    wanted = np.where(number > done, 1 / np.maximum(number - done, 1), 0)
    np.testing.assert_allclose(turn[there], wanted[there], rtol=1e-6)


def test_a_sorter_measures_the_share_of_the_tiles_that_was_touched_in_order():
    careless = drawn(5, 5)
    policy = lambda rows: np.where(rows[:, 3:4] < 0.4, sort(rows), careless(rows))  # noqa: E731
    episodes = episodes_of(played(SORTER, policy, 400), "sorted")
    totals, shares = np.transpose(episodes)

    assert len(episodes) > 30
    assert 0.3 < shares.mean() < 0.9
    np.testing.assert_allclose(totals, shares, atol=1e-5)


def test_the_exit_of_a_gallery_is_found_by_its_sight_and_hardly_by_chance():
    by_hand = episodes_of(played(GALLERY, explore, 300), "found")
    by_chance = episodes_of(played(GALLERY, drawn(3), 300), "found")

    assert np.mean([found for _, found in by_hand]) > 0.6
    assert np.mean([found for _, found in by_chance]) < 0.2
    for total, found in by_hand + by_chance:
        assert 0.69 < total <= 1.0 if found else total == pytest.approx(-0.3, abs=1e-5)


def test_a_gallery_shows_colors_in_whole_numbers_and_begins_where_no_exit_is_near():
    decisions = played(GALLERY, explore, 100)
    views = np.concatenate([d.observations for d in decisions]).reshape(-1, SIZE, SIZE, 3)
    firsts = np.concatenate([d.observations[d.started] for d in decisions])
    exits = (firsts.reshape(-1, SIZE, SIZE, 3) == EXIT).all(-1)

    np.testing.assert_array_equal(views, np.rint(views))
    assert views.min() >= 0
    assert views.max() == 255
    assert exits.mean(axis=(1, 2)).max() < 0.1
    assert (views[:, 0] == CEILING).all(-1).any()
    assert (views[:, -1] == FLOOR).all(-1).any()
    assert len({view.tobytes() for view in firsts}) > 0.8 * len(firsts)


def test_the_exported_view_of_an_agent_is_its_row(host):
    with GuestEnv(GALLERY, configure=(4, 1)) as environment:
        rows = environment.reset(seed=1).decisions[0].observations
    guest = host.load(GALLERY)
    assert guest.call("configure", 4, 1) == 0
    for place, row in enumerate(rows):
        at = guest.call("view", place)
        with guest.memory() as memory:
            np.testing.assert_array_equal(np.frombuffer(memory, np.float32, 3 * SIZE**2, at), row)

    assert guest.call("view", 4) == 0
