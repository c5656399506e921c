"""The memory of a learner: links, n-step returns, drawing, statistics of episodes."""

import resource
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from arkml.abi.codes import EpisodeState
from arkml.hive.protocol.audit import AUDIT, checksum, row_hashes
from arkml.hive.protocol.rows import RowColumns, RowKind
from arkml.learning.replay_buffer import BatchBlock, ReplayBuffer, empty_block, most_batches
from arkml.learning.row_memory import HEADROOM
from arkml.learning.trajectories import TrajectoryIndex, linear_recurrence

RUNNING, TERMINAL, INTERRUPTED, INITIAL = EpisodeState


def columns(rows):
    """Rows of (agent, step, state, reward); the feature tells a row apart from all others."""
    found = RowColumns.empty(len(rows), 1, 1)
    for number, (agent, step, state, reward) in enumerate(rows):
        found.agent[number], found.step[number], found.state[number] = agent, step, state
        found.reward[number] = reward
        found.features[number] = agent * 1_000 + step
        found.action[number] = step / 100
    return found


def episode(agent, length, end=TERMINAL, start=0):
    """An episode's rows. The reward that leads to a row is the number of the row's step."""
    states = [INITIAL, *[RUNNING] * (length - 1), end]
    return [(agent, step, states[step], float(step)) for step in range(start, length + 1)]


def memory(*bodies, capacity=1_000, gamma=0.5, masking=True, kind=RowKind.TRAINING):
    made = ReplayBuffer(capacity, 1, 1, gamma=gamma, masking=masking)
    for rows in bodies:
        made.add(0, kind, columns(rows))
    return made


def linked(of):
    """The slots of all rows that have a next one."""
    return np.flatnonzero(of._steps["next"][: of.held] >= 0)


def gathered(of, slots, length=1):
    """One batch of the transitions that begin at these slots."""
    block = empty_block(1, len(slots), 1, 1)
    of.gather(slots[None], length, block)
    return BatchBlock(*(column[0] for column in block))


def transitions(of, length=1):
    """All transitions, as (from, action, to, reward, discount)."""
    found = gathered(of, linked(of), length)
    parts = (
        found.features[:, 0],
        found.actions[:, 0],
        found.following[:, 0],
        found.rewards,
        found.discounts,
    )
    return {tuple(float(part[row]) for part in parts) for row in range(len(found.rewards))}


def pairs(of):
    return {(int(t[0]), int(t[2])) for t in transitions(of)}


def test_rows_of_consecutive_steps_are_linked_within_a_body_and_across_bodies():
    rows = episode(1, 4)

    assert pairs(memory(rows)) == {(1000, 1001), (1001, 1002), (1002, 1003), (1003, 1004)}
    assert pairs(memory(rows[:2], rows[2:])) == pairs(memory(rows))
    assert pairs(memory(*[[row] for row in rows])) == pairs(memory(rows))


def test_the_newest_row_makes_no_transition():
    made = memory([(1, 0, INITIAL, 0.0)])

    assert made.transitions == 0
    assert made.held == 1


def test_a_gap_ends_a_chain_without_a_terminal():
    rows = episode(1, 5)
    made = memory(rows[:3] + rows[4:])

    assert pairs(made) == {(1000, 1001), (1001, 1002), (1004, 1005)}
    assert {t[4] for t in transitions(made, 5) if t[0] < 1003} == {0.25, 0.5}


def test_only_terminal_says_that_nothing_follows_and_only_with_masking():
    over = {(1000.0, 0.0, 1001.0, 1.0, 0.0)}
    going_on = {(1000.0, 0.0, 1001.0, 1.0, 0.5)}

    assert transitions(memory(episode(1, 1, TERMINAL))) == over
    assert transitions(memory(episode(1, 1, INTERRUPTED))) == going_on
    assert transitions(memory(episode(1, 1, TERMINAL), masking=False)) == going_on


def test_nothing_follows_the_end_of_an_episode():
    made = memory([*episode(1, 2), (1, 3, RUNNING, 0.0)], [(1, 4, RUNNING, 0.0)])

    assert (1002, 1003) not in pairs(made)


def test_an_initial_row_follows_nothing():
    made = memory([(1, 0, INITIAL, 0.0), (1, 1, INITIAL, 0.0)])

    assert made.transitions == 0


def test_sessions_and_kinds_have_agents_of_their_own():
    made = ReplayBuffer(100, 1, 1, gamma=0.5)
    first, second = columns([(1, 0, INITIAL, 0.0)]), columns([(1, 1, RUNNING, 0.0)])
    made.add(0, RowKind.TRAINING, first)
    made.add(1, RowKind.TRAINING, second)
    made.add(0, RowKind.AUGMENTED, second)
    alone = made.transitions
    made.add(0, RowKind.TRAINING, second)

    assert alone == 0
    assert made.transitions == 1


def test_lost_rows_end_all_chains_of_their_session():
    made = ReplayBuffer(100, 1, 1, gamma=0.5)
    for session in (0, 1):
        made.add(session, RowKind.TRAINING, columns([(1, 0, INITIAL, 0.0)]))
    made.cut(0)
    for session in (0, 1):
        made.add(session, RowKind.TRAINING, columns([(1, 1, RUNNING, 0.0)]))

    assert made.transitions == 1


def test_n_steps_stop_at_the_end_at_a_gap_and_at_the_newest_row():
    ended = transitions(memory(episode(1, 3)), 3)
    open_ = transitions(memory(episode(1, 9)[:4]), 3)

    assert ended == {
        (1000.0, 0.0, 1003.0, 1 + 2 / 2 + 3 / 4, 0.0),
        (1001.0, float(np.float32(0.01)), 1003.0, 2 + 3 / 2, 0.0),
        (1002.0, float(np.float32(0.02)), 1003.0, 3.0, 0.0),
    }
    assert {(t[0], t[2], t[4]) for t in open_} == {
        (1000.0, 1003.0, 0.125),
        (1001.0, 1003.0, 0.25),
        (1002.0, 1003.0, 0.5),
    }


def test_overwritten_rows_are_gone_and_link_nothing():
    made = memory(*[[row] for row in episode(1, 9)], capacity=4)
    late = memory([(1, 0, INITIAL, 0.0)], episode(2, 4), [(1, 1, RUNNING, 0.0)], capacity=4)

    assert pairs(made) == {(1006, 1007), (1007, 1008), (1008, 1009)}
    assert made.transitions == 3
    assert made.rows == 10
    assert not any(a < 2000 for a, _ in pairs(late))


def test_a_body_larger_than_the_memory_leaves_its_newest_rows():
    made = memory(episode(1, 30), capacity=8)

    assert pairs(made) == {(1000 + step, 1001 + step) for step in range(23, 30)}
    assert made.audit().checksum == checksum(row_hashes(0, 0, columns(episode(1, 30)[-8:])))


def test_actions_are_given_back_within_their_bounds():
    made = ReplayBuffer(10, 1, 1, gamma=0.5)
    rows = columns(episode(1, 1))
    rows.action[:] = 7.0
    made.add(0, RowKind.AUGMENTED, rows)

    assert gathered(made, linked(made)).actions.tolist() == [[1.0]]


def test_a_share_of_what_is_drawn_comes_from_demonstrations():
    made = memory(episode(1, 50))
    made.add(0, RowKind.DEMONSTRATION, columns(episode(2, 3)))
    random = np.random.default_rng(0)

    assert shown(made, made.draw(random, 5, 64, 0.25)).sum(1).tolist() == [16] * 5


def test_few_demonstrations_are_drawn_eight_times_as_often_as_other_rows():
    made = memory(episode(1, 399), episode(3, 398))
    made.add(0, RowKind.DEMONSTRATION, columns(episode(2, 3)))
    share = 8 * 3 / (8 * 3 + 797)
    random = np.random.default_rng(0)
    drawn = [shown(made, made.draw(random, 2, 256, 0.5)).sum(1) for _ in range(50)]

    assert {count for counts in drawn for count in counts} == {7, 8}  # 7.48 on average
    assert np.mean(drawn) == pytest.approx(256 * share, rel=0.01)


@pytest.mark.parametrize("batches", [1, 50])
def test_a_share_below_one_in_a_batch_is_drawn_now_and_then(batches):
    made = memory(episode(1, 900))
    made.add(0, RowKind.DEMONSTRATION, columns(episode(2, 1)))
    random = np.random.default_rng(0)
    drawn = [shown(made, made.draw(random, batches, 32, 0.5)).sum() for _ in range(2_000)]

    assert np.mean(drawn) == pytest.approx(batches * 32 * 8 / 908, rel=0.1)


def test_without_a_share_demonstrations_are_drawn_like_other_rows():
    made = memory(episode(1, 300))
    made.add(0, RowKind.DEMONSTRATION, columns(episode(2, 100)))
    drawn = made.draw(np.random.default_rng(0), 50, 256, 0.0)

    assert shown(made, drawn).mean() == pytest.approx(0.25, abs=0.02)


def test_whatever_the_share_there_is_something_to_draw_as_long_as_there_are_transitions():
    random = np.random.default_rng(0)
    without = memory(episode(1, 5))
    only = memory(episode(2, 5), kind=RowKind.DEMONSTRATION)

    assert not shown(without, without.draw(random, 2, 8, 0.5)).any()
    assert shown(only, only.draw(random, 2, 8, 0.5)).all()


def shown(of, slots):
    """True for slots of demonstrations, which are those of the agents from 2 up to 3."""
    return of._values.features[slots][..., 0] // 1_000 == 2


def test_play_never_overwrites_demonstrations():
    made = memory(episode(1, 19), capacity=20)  # the others have all of it already
    made.add(0, RowKind.DEMONSTRATION, columns(episode(2, 4)))
    for start in range(0, 300, 7):
        made.add(0, RowKind.TRAINING, columns([(4, start + n, RUNNING, 0.0) for n in range(7)]))

    assert made.held == 20
    assert {pair for pair in pairs(made) if pair[0] < 3_000} == {
        (2_000, 2_001), (2_001, 2_002), (2_002, 2_003), (2_003, 2_004),
    }  # fmt: skip
    assert len(pairs(made)) == made.transitions == 4 + 14


def test_demonstrations_take_a_quarter_and_then_overwrite_each_other():
    made = memory(episode(1, 99), capacity=40)
    for agent in range(200, 230):
        made.add(0, RowKind.DEMONSTRATION, columns(episode(agent, 3)))
    held = {int(place) // 1_000 for place, _ in pairs(made)}

    assert held == {1, 227, 228, 229}  # of 228 and 229 all four rows, of 227 the last two
    assert made.held == 40
    assert made.rows == 100 + 30 * 4
    assert made._demonstrations.held == 10


def test_an_audit_knows_both_regions():
    made = ReplayBuffer(40, 1, 1, gamma=0.5)
    shown_rows, played = columns(episode(2, 9)), columns(episode(1, 99))
    made.add(4, RowKind.DEMONSTRATION, shown_rows)
    made.add(9, RowKind.TRAINING, played)
    held = made.audit()

    newest = row_hashes(9, 0, played)[-30:]
    assert held.sessions == {
        4: (10, checksum(row_hashes(4, 1, shown_rows))),
        9: (30, checksum(newest)),
    }
    assert (held.rows, made.rows - held.rows) == (40, 70)


def test_lost_rows_end_the_chains_of_demonstrations_too():
    made = memory(episode(1, 9)[:2])
    made.add(0, RowKind.DEMONSTRATION, columns(episode(2, 9)[:2]))
    made.cut(0)
    made.add(0, RowKind.DEMONSTRATION, columns(episode(2, 9)[2:4]))

    assert pairs(made) == {(1_000, 1_001), (2_000, 2_001), (2_002, 2_003)}


def test_drawing_finds_the_few_rows_that_are_linked_and_each_as_often():
    alone = [(agent, 0, INITIAL, 0.0) for agent in range(10, 500)]
    made = memory(episode(1, 4), alone)
    drawn = made.draw(np.random.default_rng(0), 4, 1_000).reshape(-1)

    assert np.bincount(drawn, minlength=4)[:4].sum() == 4_000
    assert np.bincount(drawn).min() > 800


def test_whole_episodes_are_counted_and_others_are_not():
    made = ReplayBuffer(100, 1, 1, gamma=0.5)
    cut = episode(2, 4)
    body = columns([*episode(1, 3), *cut[:1], *cut[2:], *episode(3, 2, INTERRUPTED)])
    found = made.add(0, RowKind.TRAINING, body).episodes

    assert found.returns.tolist() == [6.0, 3.0]
    assert found.lengths.tolist() == [3, 2]


def test_the_return_of_an_episode_in_many_bodies_is_whole():
    made = ReplayBuffer(100, 1, 1, gamma=0.5)
    found = [made.add(0, RowKind.TRAINING, columns([row])) for row in episode(1, 4)]

    assert found[-1].episodes.returns.tolist() == [10.0]
    assert [added.returns.tolist() for added in found] == [[], [1.0], [2.5], [4.25], [6.125]]


@pytest.mark.parametrize("capacity", [1_000, 16, 5])
def test_the_ends_of_episodes_are_told_by_the_rows_of_the_whole_body(capacity):
    made = ReplayBuffer(capacity, 1, 1, gamma=0.5)
    body = [row for agent in range(8) for row in episode(agent, 2 + agent % 3)]
    found = made.add(0, RowKind.TRAINING, columns(body)).episodes

    assert found.rows.tolist() == [at for at, row in enumerate(body) if row[2] == TERMINAL]
    assert found.lengths.tolist() == [body[at][1] for at in found.rows]


def test_agents_that_vanish_do_not_pile_up():
    made = ReplayBuffer(1_000, 1, 1, gamma=0.5)
    for start in range(0, 20_000, 1_000):
        made.add(0, 0, columns([(start + n, 0, INITIAL, 0.0) for n in range(1_000)]))

    assert sum(map(len, made._chains._indexes.values())) <= 2 * 4_096


def test_an_empty_body_changes_nothing():
    made = memory(episode(1, 2))
    added = made.add(0, 0, columns([]))

    assert len(added.returns) == 0
    assert made.transitions == 2


def test_an_audit_says_what_is_held_of_each_session():
    made = ReplayBuffer(100, 1, 1, gamma=0.5)
    rows = columns(episode(1, 2))
    made.add(4, 0, rows)
    made.add(9, 1, rows)
    held = made.audit()

    assert held.rows == 6
    assert held.sessions == {
        4: (3, checksum(row_hashes(4, 0, rows))),
        9: (3, checksum(row_hashes(9, 1, rows))),
    }
    assert held.checksum == held.sessions[4][1] ^ held.sessions[9][1]


def test_every_part_of_a_row_has_a_say_in_its_hash():
    rows = columns(episode(1, 2))
    other = columns(episode(1, 2))
    other.reward[0] = -0.0
    hashes = [
        *row_hashes(0, 0, rows).tolist(),
        row_hashes(1, 0, rows)[0],
        row_hashes(0, 1, rows)[0],
        row_hashes(0, 0, other)[0],
        row_hashes(0, 0, columns(episode(2, 2)))[0],
    ]

    assert len(set(map(int, hashes))) == 7
    assert checksum(row_hashes(0, 0, columns([]))) == 0


@given(
    st.lists(st.floats(-10, 10), max_size=70),
    st.lists(st.sampled_from([0.0, 0.5, 1.0]), min_size=70, max_size=70),
)
def test_a_recurrence_is_what_a_loop_computes(values, factors):
    found = linear_recurrence(np.array(values), np.array(factors[: len(values)]))
    expected, last = [], 0.0
    for number, value in enumerate(values):
        last = value + (factors[number] * last if number else 0.0)
        expected.append(last)

    assert found == pytest.approx(expected)


@st.composite
def streams(draw):
    """Frames of a few agents that come, end or vanish, and the sizes of the bodies they go in."""
    rows, steps, fresh = [], {}, 0
    for _ in range(draw(st.integers(1, 25))):
        if draw(st.booleans()) and len(steps) < 4:
            steps[fresh] = -1
            fresh += 1
        for agent in sorted(steps):
            steps[agent] += 1
            state = draw(st.sampled_from([RUNNING, RUNNING, RUNNING, TERMINAL, INTERRUPTED]))
            if not steps[agent]:
                state = INITIAL
            rows.append((agent, steps[agent], state, float(draw(st.integers(-3, 3)))))
            if state in (TERMINAL, INTERRUPTED) or draw(st.integers(0, 15)) == 0:
                del steps[agent]
    return rows, draw(st.lists(st.integers(1, 7), min_size=1, max_size=40))


def in_bodies(rows, sizes):
    found, at = [], 0
    while at < len(rows):
        size = sizes[len(found) % len(sizes)]
        found.append(rows[at : at + size])
        at += size
    return found


@settings(deadline=None, max_examples=60)
@given(streams(), st.data())
def test_dropped_rows_never_make_a_transition_that_was_not_there(stream, data):
    rows, sizes = stream
    kept = [row for row in rows if data.draw(st.integers(0, 3))]

    assert transitions(memory(*in_bodies(kept, sizes))) <= transitions(memory(rows))


@settings(deadline=None, max_examples=60)
@given(streams(), st.integers(1, 6), st.integers(3, 60), st.data())
def test_n_steps_are_what_a_loop_over_rows_finds(stream, length, capacity, data):
    rows, sizes = stream
    rows = [row for row in rows if data.draw(st.integers(0, 5))]
    made = memory(*in_bodies(rows, sizes), capacity=capacity)

    assert transitions(made, length) == expected_transitions(rows, length, capacity)
    assert made.transitions == len(transitions(made))


def expected_transitions(rows, length, capacity):
    held = rows[-capacity:]
    after = {(agent, step): (state, reward) for agent, step, state, reward in held}
    found = set()
    for agent, step, state, _ in held:
        total, discount, at, last = 0.0, 1.0, step, state
        while at < step + length and last not in (TERMINAL, INTERRUPTED):
            if (agent, at + 1) not in after:
                break
            at += 1
            last, reward = after[agent, at]
            total += discount * reward
            discount /= 2
        if at > step:
            places = (float(agent * 1_000 + step), float(agent * 1_000 + at))
            action = float(np.float32(step / 100))
            discount = 0.0 if last == TERMINAL else discount
            found.add((places[0], action, places[1], total, discount))
    return found


def test_wide_rows_begin_with_the_memory_of_those_that_came():
    made = ReplayBuffer(1_000_000, 7_056, 1, gamma=0.5)  # 26 GiB, were it full
    before = resident()
    rows = RowColumns.empty(1_000, 7_056, 1)
    rows.step[:] = np.arange(1_000)
    rows.features[:] = np.arange(1_000)[:, None]
    made.add(0, RowKind.TRAINING, rows)
    block = empty_block(most_batches(16, 7_056, 1), 16, 7_056, 1)
    slots = made.draw(np.random.default_rng(0), len(block.features), 16)
    made.gather(slots, 3, block)

    assert len(block.features) == 18
    assert (block.following - block.features).min() >= 1.0
    assert block.features[..., 0].tolist() == slots.tolist()
    assert resident() - before < 200 << 20  # 54 MiB of rows, 16 of the block


def resident():
    """The bytes of memory that this process takes."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * resource.getpagesize()


def test_rows_stay_what_they_were_while_the_memory_grows_and_wraps_around():
    long = [(1, step, RUNNING if step else INITIAL, 1.0) for step in range(12_000)]
    bodies = [long[at : at + 700] for at in range(0, 12_000, 700)]
    growing, whole = memory(*bodies, capacity=9_000), memory(long, capacity=9_000)

    assert transitions(growing, 3) == transitions(whole, 3)
    assert pairs(growing) == {(1_000 + n, 1_001 + n) for n in range(3_000, 11_999)}
    assert growing.audit() == whole.audit()


def test_rows_for_which_there_is_no_memory_change_nothing():
    left = [1 << 30]
    made = ReplayBuffer(1_000_000, 4_096, 1, gamma=0.5, available=lambda: left[0])
    rows = RowColumns.empty(4_200, 4_096, 1)
    rows.step[:] = np.arange(4_200)
    made.add(0, RowKind.TRAINING, rows.take(slice(0, 4)))
    left[0] = HEADROOM + 1_000
    before = (made.rows, made.held, made.transitions, made.audit())

    with pytest.raises(MemoryError, match=r"4,\d+ rows of 16,\d+ bytes: set a smaller memory_max"):
        made.add(0, RowKind.TRAINING, rows.take(slice(4, 4_200)))
    assert (made.rows, made.held, made.transitions, made.audit()) == before
    made.add(0, RowKind.TRAINING, rows.take(slice(4, 9)))
    assert made.transitions == 8


def test_more_rows_than_there_are_addresses_are_refused_at_once():
    with pytest.raises(MemoryError, match=r"4,294,967,296 rows of 65,536 features.*memory_max"):
        ReplayBuffer(1 << 32, 1 << 16, 1, gamma=0.5)


def test_the_batches_of_a_block_fit_the_bytes_given_or_are_one():
    some, one = most_batches(256, 64, 2, limit=16 << 20), most_batches(256, 7_056, 1, limit=1 << 20)
    sizes = [sum(column.nbytes for column in empty_block(n, 256, 64, 2)) for n in (some, some + 1)]

    assert sizes[0] <= 16 << 20 < sizes[1]
    assert one == 1


def test_a_block_is_filled_as_far_as_there_are_slots():
    made = memory(episode(1, 50))
    block = empty_block(3, 4, 1, 1)
    for column in block:
        column[:] = 7.0
    slots = np.arange(8).reshape(2, 4)
    made.gather(slots, 2, block)

    assert block.features[:2, :, 0].tolist() == (1_000.0 + slots).tolist()
    assert block.following[:2, :, 0].tolist() == (1_002.0 + slots).tolist()
    assert block.rewards[:2].tolist() == ((slots + 1) + 0.5 * (slots + 2)).tolist()
    assert all((column[2] == 7.0).all() for column in block)


def with_reward(rows, place, reward):
    """The rows with one more reward, out of all proportion."""
    return [(*row[:3], reward if number == place else row[3]) for number, row in enumerate(rows)]


@pytest.mark.parametrize("outlier", [1e30, -1e30, 3e38])
@pytest.mark.parametrize("place", [1, 7, 290])
@pytest.mark.parametrize("size", [1, 16, 400])
def test_a_reward_out_of_all_proportion_counts_as_the_largest_that_is_not(outlier, place, size):
    usual = [-1.0 - step % 3 for step in range(301)]
    rows = [(1, step, RUNNING if step else INITIAL, usual[step]) for step in range(301)]
    made = ReplayBuffer(1_000, 1, 1, gamma=0.5)
    parts = in_bodies(with_reward(rows, place, outlier), [size])
    returns = np.concatenate([made.add(0, 0, columns(part)).returns for part in parts])
    rewards = gathered(made, linked(made)).rewards
    # The reward of the first of all rows has nothing to be compared with at first.
    known = 3 if place == size == 1 else 0

    assert rewards[place - 1] == (0.0 if outlier > 0 else -3.0)
    assert np.delete(rewards, place - 1).tolist() == usual[1:place] + usual[place + 1 :]
    assert np.abs(returns[known:]).max() <= 6.0


def test_a_reward_that_is_rare_is_believed():
    rows = with_reward(
        [(1, step, RUNNING if step else INITIAL, 0.0) for step in range(600)], 500, 1e6
    )
    small = with_reward(
        [(1, step, RUNNING if step else INITIAL, 6e-8 * (step % 2)) for step in range(600)],
        500,
        1.0,
    )

    assert gathered(memory(rows), linked(memory(rows))).rewards.max() == 1e6
    assert gathered(memory(small), linked(memory(small))).rewards.max() == 1.0


def test_sessions_that_came_and_went_do_not_pile_up():
    made, body = memory(episode(1, 2)), columns(episode(1, 2))
    lasting = columns([(9, 0, INITIAL, 0.0)])
    made.add(5, RowKind.TRAINING, lasting)
    for session in range(6, 5_000):
        made.add(session, RowKind.TRAINING, body)
        if session % 100 == 0:  # before its rows are overwritten
            made.add(5, RowKind.TRAINING, columns([(9, session // 100, RUNNING, 0.0)]))

    indexes = made._chains._indexes
    assert len(indexes) <= 4_096
    assert made._chains._counted == len(indexes) + sum(map(len, indexes.values()))
    assert len(indexes[5, RowKind.TRAINING]) == 1


def test_chains_take_agent_ids_of_64_bits():
    chains = TrajectoryIndex(0.5)
    rows = columns(episode(0, 1))
    rows.agent[:] = 2**64 - 1
    found = chains.extend(rows, 0)

    assert found.previous.tolist() == [-1, 0]


def test_a_body_without_rows_extends_no_chain():
    chains = TrajectoryIndex(0.5)
    chains.extend(columns(episode(1, 3)[:2]), 0)
    found = chains.extend(columns([]), 2)

    assert [len(each) for each in (found.previous, found.discounted, *found.episodes)] == [0] * 5
    assert chains.extend(columns(episode(1, 3)[2:3]), 2).previous.tolist() == [1]


def test_rows_are_hashed_only_where_an_audit_is_asked_for(monkeypatch):
    audited = memory(episode(1, 10)).audit()
    monkeypatch.delenv(AUDIT)
    held = memory(episode(1, 10)).audit()

    assert audited.checksum
    assert held == (11, 0, {0: (11, 0)})
