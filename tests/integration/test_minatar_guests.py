"""The games of MinAtar: their rules, as their boards show them, and what players earn."""

from dataclasses import dataclass
from functools import cache

import numpy as np
import pytest
from tests.integration.guest_text import GUESTS
from tests.integration.minatar_players import PLAYERS

from arkml import GuestEnv

SHAPES = {"breakout": (4, 3), "freeway": (7, 3), "asterix": (4, 5), "space_invaders": (6, 4)}
"""The channels of each game, and its choices."""
MOST_STEPS = {"breakout": 1_000, "freeway": 2_500, "asterix": 1_000, "space_invaders": 1_000}
GYMNAX = {
    "breakout": (0.395, 0.66),
    "freeway": (0.385, 0.63),
    "asterix": (0.512, 0.87),
    "space_invaders": (4.06, 3.27),
}
"""Mean and standard deviation of the returns of random play in gymnax (fixtures/guests/README)."""
BY_HAND = {"breakout": 10, "freeway": 15, "asterix": 10, "space_invaders": 24}
"""What players of `minatar_players` earn at least."""
GAMES = list(SHAPES)


@dataclass
class Steps:
    """
    Steps of many agents, t in time and n beside each other.

    Attributes:
        boards: bool, [t, n, 10, 10, channels].
        choices: int, [t, n], made at each board; that of an episode's last board has no effect.
        scores: The metric `score` of the episodes that ended, by step and agent.

    """

    boards: np.ndarray
    choices: np.ndarray
    rewards: np.ndarray
    started: np.ndarray
    terminated: np.ndarray
    truncated: np.ndarray
    scores: dict[tuple[int, int], float]

    @property
    def moved(self):
        """Mask of the steps that led to a board of the same episode, bool, [t - 1, n]."""
        return ~self.started[1:]

    def pairs(self):
        """The boards before and after each step, [m, 10, 10, channels]."""
        return self.boards[:-1][self.moved], self.boards[1:][self.moved]

    def earned(self):
        return self.rewards[1:][self.moved]

    def lost(self):
        """Mask of the steps that ended an episode with Terminal."""
        return self.terminated[1:][self.moved]

    def first_returns(self):
        """The return of the first episode of each agent, for those that ended."""
        ended = self.terminated | self.truncated
        is_first = np.cumsum(ended, axis=0) - ended == 0
        return np.where(is_first, self.rewards, 0).sum(axis=0)[ended.any(axis=0)]


def played(game, is_random, agents, count, seed=1):
    """Steps of a player, or of random choices."""
    channels, choices = SHAPES[game]
    chance, kept, scores = np.random.default_rng(7), [], {}
    with GuestEnv(GUESTS / f"c_minatar_{game}.wasm", configure=(agents, "{seed}")) as environment:
        (decision,) = environment.reset(seed=seed).decisions
        for at in range(count):
            acts = ~decision.ended
            boards = decision.observations.reshape(agents, 10, 10, channels)
            chosen = np.zeros(agents, int)
            chosen[acts] = (
                chance.integers(0, choices, acts.sum())
                if is_random
                else PLAYERS[game](boards[acts])
            )
            assert set(np.unique(boards)) <= {0, 1}
            kept.append((boards > 0, chosen, decision.rewards, decision.started,
                         decision.terminated, decision.truncated))  # fmt: skip
            for item in decision.metadata:
                assert item.name == "score"
                scores[at, int(decision.rows_of(np.array([item.row]))[0])] = item.value
            (decision,) = environment.step(chosen[acts, None].astype(np.float32)).decisions
    return Steps(*map(np.stack, zip(*kept, strict=True)), scores)


@cache
def by_hand(game):
    return played(game, False, 32, 2_501 if game == "freeway" else 1_100)


@cache
def at_random(game, count=400):
    return played(game, True, 32, count)


def places(cells):
    """Row and column of the only cell of each board that is set, int, [m] each."""
    assert (cells.sum(axis=(-2, -1)) == 1).all()
    return cells.any(axis=-1).argmax(axis=-1), cells.any(axis=-2).argmax(axis=-1)


def episodes(steps):
    """Yield slices of the boards of each episode, with its agent."""
    for agent in range(steps.boards.shape[1]):
        starts = np.flatnonzero(steps.started[:, agent])
        for first, end in zip(starts, [*starts[1:], len(steps.boards)], strict=True):
            yield slice(first, end), agent


@pytest.mark.parametrize("game", GAMES)
def test_a_row_is_a_board_with_the_channels_of_the_game(game):
    channels, choices = SHAPES[game]
    with GuestEnv(GUESTS / f"c_minatar_{game}.wasm") as environment:
        (decision,) = environment.reset(seed=1).decisions
        (screen,) = decision.behavior.spec.observations

        assert (screen.name, screen.shape) == ("screen", (10, 10, channels))
        assert decision.behavior.spec.actions.branches == (choices,)
        assert decision.observations.shape == (16, 100 * channels)


@pytest.mark.parametrize("game", GAMES)
def test_an_episode_depends_on_its_seed_and_agent_and_not_on_their_number(game):
    few, many = played(game, False, 4, 60), played(game, False, 8, 60)
    other = played(game, False, 4, 60, seed=2)
    ended = (few.terminated | few.truncated).any(axis=1)
    first = np.argmax(ended) if ended.any() else 60

    assert first > 2
    assert (few.boards[:first] == many.boards[:first, :4]).all()
    assert not np.array_equal(few.boards, other.boards)


@pytest.mark.parametrize("game", GAMES)
def test_random_choices_earn_what_they_earn_in_gymnax(game):
    mean, deviation = GYMNAX[game]
    returns = played(game, True, 256, MOST_STEPS[game] + 1).first_returns()

    assert len(returns) == 256
    assert abs(returns.mean() - mean) < 4 * deviation / 256**0.5


@pytest.mark.parametrize("game", GAMES)
def test_a_player_earns_what_random_choices_do_not(game):
    steps = by_hand(game)

    assert steps.first_returns().mean() > BY_HAND[game] > 4 * GYMNAX[game][0]


@pytest.mark.parametrize("game", GAMES)
def test_the_metric_of_an_episode_is_its_return(game):
    steps = by_hand(game)
    ended = steps.terminated | steps.truncated
    assert ended.any()
    assert len(steps.scores) == ended.sum()
    for episode, agent in episodes(steps):
        if ended[episode.stop - 1, agent]:
            assert steps.scores[episode.stop - 1, agent] == steps.rewards[episode, agent].sum()


@pytest.mark.parametrize("game", GAMES)
def test_an_episode_is_cut_where_gymnax_cuts_it_and_not_before(game):
    steps = by_hand(game)
    lengths = {
        episode.stop - episode.start - 1
        for episode, agent in episodes(steps)
        if steps.truncated[episode.stop - 1, agent]
    }

    assert lengths <= {MOST_STEPS[game]}
    assert steps.terminated.any() == (game != "freeway")
    assert lengths or game == "space_invaders"


def test_a_tenth_of_the_choices_are_the_last_ones_again():
    steps = at_random("breakout", count=1_000)
    (before, after), chosen = steps.pairs(), steps.choices[:-1][steps.moved]
    start, end = places(before[..., 0])[1], places(after[..., 0])[1]
    is_free = (start > 0) & (start < 9)
    went = np.array([0, -1, 1])[chosen] != end - start

    assert 0.1 * 2 / 3 - 0.01 < went[is_free].mean() < 0.1 * 2 / 3 + 0.01


def test_breakout_gives_1_for_a_brick_that_is_gone_and_new_rows_after_the_last():
    steps = by_hand("breakout")
    before, after = (board[..., 3] for board in steps.pairs())
    gone, come = before & ~after, after & ~before
    is_filled = come.any(axis=(1, 2))

    assert set(np.unique(steps.earned())) == {0, 1}
    np.testing.assert_array_equal(gone.sum(axis=(1, 2)), steps.earned())
    assert is_filled.sum() > 3
    assert not before[is_filled].any()
    assert (after[is_filled].sum(axis=(1, 2)) == 30).all()
    assert after[is_filled][:, 1:4].all()


def test_the_ball_of_breakout_flies_along_diagonals_and_turns_where_it_breaks_a_brick():
    steps = by_hand("breakout")
    before, after = steps.pairs()
    (y, x), (next_y, next_x) = places(before[..., 1]), places(after[..., 1])
    np.testing.assert_array_equal(places(after[..., 2]), (y, x))  # the trail
    breaks = steps.earned() == 1

    assert (np.abs(next_x - x)[(x > 0) & (x < 9)] == 1).all()
    assert (next_y[breaks] == y[breaks]).all()
    for episode, agent in episodes(steps):
        ball = places(steps.boards[episode, agent][..., 1])[0]
        (hits,) = np.nonzero(steps.rewards[episode, agent] == 1)
        hits = hits[(hits > 2) & (hits < len(ball) - 1)]
        came = np.sign(ball[hits - 1] - ball[hits - 2])
        left = np.sign(ball[hits + 1] - ball[hits])
        assert (came * left <= 0).all()


def test_a_ball_that_the_paddle_of_breakout_misses_ends_the_episode():
    steps = by_hand("breakout")
    before, after = steps.pairs()
    comes_down = (places(before[..., 1])[0] == 8) & (places(before[..., 2])[0] == 7)
    paddle, ball, trail = (places(after[..., channel])[1] for channel in range(3))
    is_caught = (paddle == ball) | (paddle == trail)

    assert comes_down.sum() > 200
    np.testing.assert_array_equal(steps.lost(), comes_down & ~is_caught)
    np.testing.assert_array_equal(steps.lost(), places(after[..., 1])[0] == 9)


def cars(boards):
    """Column and speed of the car of each lane, below 0 to the left, int, [m, 8] each."""
    lanes = boards[..., 1:9, :, :]
    x = lanes[..., 1].argmax(axis=-1)
    behind = lanes[..., 2:].any(axis=-1).argmax(axis=-1)
    speed = 1 + lanes[..., 2:].any(axis=-2).argmax(axis=-1)
    return x, np.where((x - behind) % 10 == 1, speed, -speed)


def test_a_chicken_of_freeway_at_the_top_gets_1_and_meets_other_cars():
    steps = by_hand("freeway")
    before, after = steps.pairs()
    start, end = (places(board[..., 0])[0] for board in (before, after))
    crosses = steps.earned() == 1
    speeds, others = cars(before)[1], cars(after)[1]

    assert set(np.unique(steps.earned())) == {0, 1}
    assert (places(before[..., 0])[1] == 4).all()
    assert (start[crosses] == 1).all()
    assert (end[crosses] == 9).all()
    np.testing.assert_array_equal((speeds != others).any(axis=1), crosses)
    assert set(np.unique(others)) == {-5, -4, -3, -2, -1, 1, 2, 3, 4, 5}
    assert 0.18 < (np.abs(others[crosses]) == 1).mean() < 0.22


def test_a_chicken_of_freeway_that_meets_a_car_is_at_the_bottom_again():
    steps = by_hand("freeway")
    before, after = steps.pairs()
    start, end = (places(board[..., 0])[0] for board in (before, after))
    near = before[..., 4, 1] | after[..., 4, 1]  # cars in the column of the chicken, by row
    is_hit = (steps.earned() == 0) & (start < 9) & (end == 9)
    each = np.arange(len(start))

    assert is_hit.sum() > 500
    assert (near[each, start] | near[each, start - 1])[is_hit].all()
    assert not after[each, end, 4, 1].any()
    assert set(np.unique((start - end)[~is_hit & (steps.earned() == 0)])) == {0, 1}


def test_a_chicken_of_freeway_moves_each_third_step_and_a_car_by_its_speed():
    steps = by_hand("freeway")
    for episode, agent in episodes(steps):
        boards = steps.boards[episode, agent]
        row = places(boards[..., 0])[0]
        goes_up = np.flatnonzero(row[1:] == row[:-1] - 1)
        x, speed = cars(boards)

        assert (np.diff(goes_up) >= 3).all()
        for lane in range(8 if len(row) > 1 else 0):
            moves = np.flatnonzero(x[1:, lane] != x[:-1, lane])
            crosses = np.cumsum(steps.rewards[episode, agent])[1:]
            is_same = crosses[moves[1:]] == crosses[moves[:-1]]
            waits = 1 + np.abs(speed[1:, lane][moves[1:]])
            ways = np.sign(speed[1:, lane][moves])
            assert (np.diff(moves)[is_same] == waits[is_same]).all()
            assert ((x[moves + 1, lane] - x[moves, lane] - ways) % 10 == 0).all()
    gaps = np.diff(np.flatnonzero(np.diff(places(steps.boards[:, 0][..., 0])[0]) == -1))
    assert gaps.min() == 3


def test_gold_of_asterix_gives_1_and_is_gone():
    steps = by_hand("asterix")
    before, after = steps.pairs()
    row = places(after[..., 0])[0]
    each, takes = np.arange(len(row)), steps.earned() == 1
    things = after[..., 1] | after[..., 3]
    was_gold = before[..., 3].any(axis=2)
    is_gone = was_gold & ~things.any(axis=2) & (np.arange(10) != row[:, None])

    assert set(np.unique(steps.earned())) == {0, 1}
    assert takes.sum() > 100
    assert not things[each, row][takes].any()
    assert was_gold[each, row][takes].mean() > 0.9  # the rest came to the player at once
    assert before[..., 3][is_gone][:, [0, 9]].any(axis=1).all()  # it left at a side
    assert not (after[..., 0] & after[..., 3]).any()


def test_an_enemy_of_asterix_ends_the_episode():
    steps = at_random("asterix")
    before, after = steps.pairs()
    row, x = places(after[..., 0])
    each, lost = np.arange(len(row)), steps.lost()
    meets = (after[..., 0] & after[..., 1]).any(axis=(1, 2))
    passes = after[each, row, x, 2] & after[each, row, :, 1].any(axis=1)  # it moved on at once
    leaves = before[each, row, x, 1] & np.isin(x, (0, 9))

    assert lost.sum() > 50
    assert (meets | passes | leaves)[lost].all()
    assert not meets[~lost].any()


def times(first, time):
    """Steps from `first` to 1,000, each `time(step)` after the one before."""
    found = [first]
    while found[-1] < 1_000:
        found.append(found[-1] + time(found[-1]))
    return found


def test_the_things_of_asterix_come_and_move_sooner_with_each_ramp():
    steps = by_hand("asterix")
    comes = times(11, lambda step: max(1, 10 - (step - 1) // 102))
    moves = times(6, lambda step: max(1, 5 - (step - 1) // 102 // 2))
    seen, kinds = [], []
    for episode, agent in episodes(steps):
        boards = steps.boards[episode, agent]
        things = boards[..., 1] | boards[..., 3]
        is_new = things[1:].any(axis=2) & ~things[:-1].any(axis=2)
        at = 1 + np.flatnonzero(is_new.any(axis=1))
        stays = things[1:] & things[:-1]
        is_there = things[1:].any(axis=2) & things[:-1].any(axis=2)
        is_moved = (is_there & ~stays.any(axis=2)).any(axis=1)
        seen += at.tolist()
        kinds += boards[1:, :, :, 3].any(axis=2)[is_new].tolist()

        assert is_new.sum(axis=1).max() <= 1
        assert set(at) <= set(comes)
        assert set(1 + np.flatnonzero(is_moved)) <= set(moves)
        assert len(boards) < 100 or len(at) > 0.8 * sum(step < len(boards) for step in comes)
    assert max(seen) > 500
    assert 0.3 < np.mean(kinds) < 0.37


def test_space_invaders_gives_1_for_each_alien_that_is_gone_and_then_another_wave():
    steps = by_hand("space_invaders")
    before, after = (board[..., 1].sum(axis=(1, 2)) for board in steps.pairs())
    is_new = after > before
    shot, goes_on = np.where(is_new, before, before - after), ~steps.lost()

    assert is_new.sum() > 10
    np.testing.assert_array_equal(shot[goes_on], steps.earned()[goes_on])
    assert (after[is_new] == 24).all()
    assert steps.pairs()[1][is_new][:, :4, 2:8, 1].all()


def test_a_bullet_or_an_alien_at_the_cannon_of_space_invaders_ends_the_episode():
    ends = set()
    for steps in (by_hand("space_invaders"), at_random("space_invaders")):
        before, after = steps.pairs()
        is_hit = (after[..., 0] & after[..., 5]).any(axis=(1, 2))
        is_met = (after[..., 0] & after[..., 1]).any(axis=(1, 2))
        is_left = before[:, 9, :, 1].any(axis=1)  # an alien at the bottom would go down
        lost = steps.lost()
        ends |= set(zip(is_hit[lost], is_met[lost], strict=True))

        assert lost.sum() > 30
        assert (is_hit | is_met | is_left)[lost].all()
        assert not (is_hit | is_met)[~lost].any()
    assert ends >= {(True, False), (False, True)}


def test_the_cannon_of_space_invaders_fires_each_fifth_step_and_its_bullets_rise():
    steps, gaps = by_hand("space_invaders"), []
    for episode, agent in episodes(steps):
        shots = steps.boards[episode, agent][..., 4]
        gaps += np.diff(np.flatnonzero(shots[:, 8].any(axis=1))).tolist()

        assert not (shots[1:, :8] & ~shots[:-1, 1:9]).any()
        assert not shots[:, 9].any()
    assert min(gaps) == 5


def test_the_aliens_of_space_invaders_move_sooner_the_fewer_they_are_and_with_each_wave():
    steps, most_waves = by_hand("space_invaders"), 0
    for episode, agent in episodes(steps):
        aliens = steps.boards[episode, agent][..., 1]
        counts = aliens.sum(axis=(1, 2))
        is_new = np.diff(counts) > 0
        waves = np.concatenate([[0], np.cumsum(is_new)])
        comes = (aliens[1:] & ~aliens[:-1]).any(axis=(1, 2)) & ~is_new
        moves = np.flatnonzero(comes)
        shot = np.cumsum(steps.rewards[episode, agent])[moves + 1]
        is_same = shot[1:] == shot[:-1]
        waits = np.minimum(counts[moves[:-1]], 12 - waves[moves[:-1]])
        most_waves = max(most_waves, waves.max())

        assert moves.size == 0 or moves[0] == 12
        np.testing.assert_array_equal(np.diff(moves)[is_same], waits[is_same])
    assert most_waves >= 2


def test_the_aliens_of_space_invaders_go_to_a_side_and_then_down_and_turn():
    steps = by_hand("space_invaders")
    before, after = steps.pairs()
    is_left = before[..., 2].any(axis=(1, 2))
    turns = is_left != after[..., 2].any(axis=(1, 2))
    edges = np.where(is_left, before[..., 0, 1].any(axis=1), before[..., 9, 1].any(axis=1))
    goes = (steps.earned() == 0) & ~turns & (before[..., 1] != after[..., 1]).any(axis=(1, 2))
    ways = np.where(is_left, -1, 1)[goes]

    assert turns.sum() > 50
    assert edges[turns].all()
    quiet = turns & (steps.earned() == 0)
    np.testing.assert_array_equal(after[quiet][:, 1:, :, 1], before[quiet][:, :-1, :, 1])
    for way, old, new in zip(ways, before[goes][..., 1], after[goes][..., 1], strict=True):
        np.testing.assert_array_equal(new, np.roll(old, way, axis=1))


def test_each_tenth_step_the_lowest_alien_next_to_the_cannon_of_space_invaders_fires():
    steps, seen = at_random("space_invaders"), 0
    for episode, agent in episodes(steps):
        boards = steps.boards[episode, agent]
        for step in range(1, len(boards)):
            _, _, cannon_x = np.argwhere(boards[step : step + 1, :, :, 0])[0]
            new = boards[step, :, :, 5].copy()
            new[1:] &= ~boards[step - 1, :-1, :, 5]
            if step % 10 != 1 or step == 1:
                assert not new.any()
            elif steps.rewards[step + episode.start, agent] == 0 and new.any():
                ((y, x),) = np.argwhere(new)
                aliens = np.argwhere(boards[step, :, :, 1])
                far = np.abs(aliens[:, 1] - cannon_x)
                assert abs(x - cannon_x) == far.min()
                assert x == aliens[far == far.min(), 1].min()
                assert y == aliens[aliens[:, 1] == x, 0].max()
                seen += 1
    assert seen > 100
