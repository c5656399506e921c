"""The rollout buffer: rows that can be learned from, chains, versions, masks, audits."""

from itertools import chain

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from arkml.abi.codes import EpisodeState
from arkml.hive.protocol.audit import checksum, row_hashes
from arkml.hive.protocol.rows import META, NO_ROW, RowColumns, RowKind
from arkml.hive.protocol.settings import Settings
from arkml.learning.rollout_buffer import RolloutBuffer

RUNNING, TERMINAL, INTERRUPTED, INITIAL = EpisodeState


def columns(rows, version=1):
    """Rows of (agent, step, state, reward); the feature tells a row apart from all others."""
    made = RowColumns.empty(len(rows), 1, 1)
    for number, (agent, step, state, reward) in enumerate(rows):
        made.agent[number], made.step[number], made.state[number] = agent, step, state
        made.reward[number] = reward
        made.features[number] = agent * 1_000 + step
        made.action[number] = step / 100
    made.version[:] = version
    return made


def episode(agent, length, end=TERMINAL, start=0):
    """An episode's rows. The reward that leads to a row is the number of the row's step."""
    states = [INITIAL, *[RUNNING] * (length - 1), end]
    return [(agent, step, states[step], float(step)) for step in range(start, length + 1)]


def buffer(*bodies, lag=1, rollout_rows=100, masking=True, versions=(1,)):
    made = RolloutBuffer(
        Settings(1, 1, rollout_rows=rollout_rows, use_terminal_masking=masking, algorithm="ppo"),
        lag=lag,
    )
    for version in versions:
        made.published(version)
    for rows in bodies:
        made.add(0, RowKind.TRAINING, columns(rows))
    return made


def steps(of):
    """Rows to learn from, as (row, next row, reward, done, True if the chain continues there)."""
    rollout = of.take()
    features = rollout.features[:, 0].astype(int)
    count = len(rollout.following)
    return {
        (
            int(features[row]),
            int(features[rollout.following[row]]),
            float(rollout.rewards[row]),
            bool(rollout.dones[row]),
            bool(rollout.following[row] < count),
        )
        for row in range(count)
    }


def test_a_row_is_learned_from_with_the_reward_that_comes_with_the_next_row():
    made = buffer(episode(1, 2, TERMINAL))

    assert steps(made) == {(1000, 1001, 1.0, False, True), (1001, 1002, 2.0, True, False)}


def test_rows_are_linked_within_a_body_and_across_bodies():
    rows = episode(1, 4)

    assert steps(buffer(rows[:2], rows[2:])) == steps(buffer(rows))
    assert steps(buffer(*[[row] for row in rows])) == steps(buffer(rows))


def test_only_terminal_has_no_future_and_only_with_masking():
    ends = {(1000, 1001, 1.0, True, False)}
    continues = {(1000, 1001, 1.0, False, False)}

    assert steps(buffer(episode(1, 1, TERMINAL))) == ends
    assert steps(buffer(episode(1, 1, INTERRUPTED))) == continues
    assert steps(buffer(episode(1, 1, TERMINAL), masking=False)) == continues


def test_an_open_chain_ends_at_its_newest_row():
    made = buffer(episode(1, 9)[:3])

    assert steps(made) == {(1000, 1001, 1.0, False, True), (1001, 1002, 2.0, False, False)}


def test_a_gap_ends_a_chain_and_begins_another():
    rows = episode(1, 5)
    made = buffer(rows[:3] + rows[4:])

    assert steps(made) == {
        (1000, 1001, 1.0, False, True),
        (1001, 1002, 2.0, False, False),
        (1004, 1005, 5.0, True, False),
    }


def test_lost_rows_end_the_chains_of_their_session_only():
    made = buffer()
    for session in (0, 1):
        made.add(session, RowKind.TRAINING, columns([(1, 0, INITIAL, 0.0)]))
    made.cut(0)
    for session in (0, 1):
        made.add(session, RowKind.TRAINING, columns([(1, 1, RUNNING, 0.0)]))

    assert made.transitions == 1


@pytest.mark.parametrize("kind", [RowKind.DEMONSTRATION, RowKind.AUGMENTED])
def test_rows_of_other_kinds_are_not_learned_from(kind):
    made = buffer()
    added = made.add(0, kind, columns(episode(1, 3)))

    assert (made.transitions, made.held, made.rows, made.stale_rows) == (0, 0, 4, 0)
    assert added.episodes.returns.tolist() == [6.0]


def test_an_empty_body_changes_nothing():
    made = buffer(episode(1, 2))
    added = made.add(0, RowKind.TRAINING, columns([]))

    assert len(added.returns) == len(added.episodes.rows) == 0
    assert (made.rows, made.transitions) == (3, 2)


def test_rows_of_no_policy_are_not_learned_from_and_are_not_late():
    made = buffer()
    made.add(0, RowKind.TRAINING, columns(episode(1, 3), version=0))

    assert (made.transitions, made.stale_rows) == (0, 0)


def test_a_rollout_is_full_when_its_rows_are_linked():
    rows = episode(1, 9)
    made = buffer(rows[:3], rollout_rows=3)
    before = made.is_full
    made.add(0, RowKind.TRAINING, columns(rows[3:4]))

    assert (before, made.is_full) == (False, True)


def test_after_an_update_only_rows_of_its_policy_are_learned_from_without_a_lag():
    rows = episode(1, 9)
    made = buffer(rows[:3], lag=0)
    made.release()
    made.published(2)
    made.add(0, RowKind.TRAINING, columns(rows[3:5], version=1))
    made.add(0, RowKind.TRAINING, columns(rows[5:7], version=2))

    assert steps(made) == {(1005, 1006, 6.0, False, False)}
    assert made.stale_rows == 2


def test_with_a_lag_the_newest_row_of_a_chain_is_learned_from_in_the_next_rollout():
    rows = episode(1, 9)
    made = buffer(rows[:3])
    made.release()
    held = made.held
    made.published(2)
    made.add(0, RowKind.TRAINING, columns(rows[3:5], version=2))

    assert held == 1
    assert steps(made) == {(1002, 1003, 3.0, False, True), (1003, 1004, 4.0, False, False)}
    assert made.take().versions.tolist() == [1, 2]


def test_a_row_that_was_learned_from_is_not_learned_from_again():
    rows = episode(1, 9)
    made = buffer(rows[:4])
    first = steps(made)
    made.release()
    made.add(0, RowKind.TRAINING, columns(rows[4:6], version=1))

    assert not first & steps(made)
    assert {row for row, *_ in steps(made)} == {1003, 1004}


def test_rows_two_versions_old_are_counted_and_not_learned_from():
    rows = episode(1, 9)
    made = buffer()
    for version in (2, 3):
        made.release()
        made.published(version)
    made.add(0, RowKind.TRAINING, columns(rows[:4], version=1))
    made.add(0, RowKind.TRAINING, columns(rows[4:6], version=2))

    assert made.stale_rows == 4
    assert steps(made) == {(1004, 1005, 5.0, False, False)}


def test_a_row_that_comes_too_late_still_rewards_the_one_before_it():
    rows = episode(1, 9)
    made = buffer(rows[:2])
    made.add(0, RowKind.TRAINING, columns(rows[2:5], version=77))

    assert steps(made) == {(1000, 1001, 1.0, False, True), (1001, 1002, 2.0, False, False)}
    assert (made.stale_rows, made.held, made.rows) == (3, 3, 5)


def test_an_update_takes_twice_its_rows_at_most_and_counts_the_rest():
    rows = [(1, step, RUNNING if step else INITIAL, 1.0) for step in range(30)]
    made = buffer(rows[:12], rows[12:20], rollout_rows=4)
    taken = len(made.take().following)
    held = made.held
    made.release()

    assert (taken, held) == (8, 13)
    assert made.excess_rows == 8 + 4  # eleven were linked, the twelfth became so


def test_the_rows_of_a_published_version_again_are_those_of_its_policy():
    rows = episode(1, 9)
    made = buffer(rows[:3], versions=(4, 6), rollout_rows=2)
    made.add(0, RowKind.TRAINING, columns(rows[3:5], version=4))
    made.add(0, RowKind.TRAINING, columns(rows[5:7], version=6))

    assert made.newest_versions == {4, 6}
    assert made.take().versions.tolist() == [4, 4, 6]
    assert made.stale_rows == 3


def test_masks_are_read_from_metadata_by_its_names():
    made = RolloutBuffer(Settings(1, 3, branches=(2, 3), algorithm="ppo"))
    made.published(1)
    names = ["speed", "mask/1/2", "mask/0/1", "mask/2/0", "mask/1/3", "mask/x/0"]
    made.name_metrics(names)
    rows = RowColumns.empty(3, 1, 3, 8)
    rows.step[:] = range(3)
    rows.version[:] = 1
    rows.state[0] = INITIAL
    rows.meta[:] = np.array(
        [
            (0, 0, 1.0), (0, 1, 1.0), (1, 2, 0.0), (1, 1, -1.0),
            (1, 3, 1.0), (1, 4, 1.0), (1, 99, 1.0), (NO_ROW, 2, 1.0),
        ],
        META,
    )  # fmt: skip
    made.add(0, RowKind.TRAINING, rows)

    assert made.take().allowed.tolist() == [
        [True, True, True, True, False],
        [True, True, True, True, False],
    ]


def test_an_audit_counts_each_row_as_held_or_as_gone():
    rows = columns(episode(1, 4))
    made = buffer()
    made.add(3, RowKind.TRAINING, rows)
    made.add(5, RowKind.TRAINING, columns(episode(1, 2), version=9))
    audit = made.audit()
    made.release()
    after = made.audit()

    assert audit.rows == 5
    assert audit.sessions == {3: (5, checksum(row_hashes(3, 0, rows)))}
    assert audit.checksum == audit.sessions[3][1]
    assert (made.rows, after.rows, after.checksum) == (8, 0, 0)


def test_rows_for_which_there_is_no_memory_are_refused_with_a_reason():
    made = RolloutBuffer(Settings(1 << 16, 1, algorithm="ppo"))

    with pytest.raises(MemoryError, match=r"of 65,536 features.*rollout_rows"):
        made._reserve(1 << 40)

    assert (made.rows, made.held) == (0, 0)


def test_sessions_that_came_and_went_do_not_pile_up():
    made, body = buffer(), columns(episode(1, 2))
    for session in range(5_000):
        made.add(session, RowKind.TRAINING, body)
        if session % 2:
            made.cut(session)

    indexes = made._chains._indexes
    assert len(indexes) <= 4_096
    assert made._chains._counted == len(indexes) + sum(map(len, indexes.values()))


def test_agents_that_vanish_do_not_pile_up(monkeypatch):
    monkeypatch.setattr("arkml.learning.rollout_buffer._REMEMBERED", 2_000)
    made = buffer()
    for start in range(0, 20_000, 1_000):
        made.add(0, 0, columns([(start + n, 0, INITIAL, 0.0) for n in range(1_000)]))

    assert sum(map(len, made._chains._indexes.values())) <= 2 * 4_096


def frames(agents, length, count, last=RUNNING):
    """Frames of agents that play side by side; after `length` rows others take their places."""
    for frame in range(count):
        life, step = divmod(frame, length)
        state = INITIAL if not step else last if step == length - 1 else RUNNING
        yield [(life * agents + n, step, state, 0.0) for n in range(agents)]


@pytest.mark.parametrize("last", [RUNNING, TERMINAL])
@pytest.mark.parametrize("frames_of_body", [1, 3, 64])
def test_agents_that_vanish_are_counted_with_their_successors_at_most(last, frames_of_body):
    made = buffer(rollout_rows=10_000)
    all_frames = list(frames(8, 20, 1_000, last))
    for at in range(0, len(all_frames), frames_of_body):
        body = chain.from_iterable(all_frames[at : at + frames_of_body])
        made.add(0, RowKind.TRAINING, columns(list(body)))

    assert made.agents == 8 or (made.agents == 16 and last == RUNNING)


def test_agents_of_several_sessions_count_whatever_the_sizes_of_their_bodies():
    made = buffer(rollout_rows=10_000)
    for start in (0, 64):
        for session in range(12):
            rows = [(5, step, RUNNING if step else INITIAL, 0.0) for step in range(128)]
            made.add(session, RowKind.TRAINING, columns(rows[start : start + 64]))

    assert made.agents == 12


def test_agents_whose_rows_were_lost_are_not_counted_twice():
    made = buffer(rollout_rows=10_000)
    whole = list(frames(50, 1_000, 40))
    for number, frame in enumerate(whole):
        if number % 10 == 9:
            made.cut(0)
        else:
            made.add(0, RowKind.TRAINING, columns(frame))

    assert made.agents == 50


@st.composite
def streams(draw):
    """Frames of a few agents that come, end or vanish; versions that rise; sizes of bodies."""
    rows, step, fresh, version = [], {}, 0, 1
    for _ in range(draw(st.integers(1, 25))):
        version += draw(st.integers(0, 5)) == 0
        if draw(st.booleans()) and len(step) < 4:
            step[fresh] = -1
            fresh += 1
        for agent in sorted(step):
            step[agent] += 1
            state = draw(st.sampled_from([RUNNING, RUNNING, RUNNING, TERMINAL, INTERRUPTED]))
            if not step[agent]:
                state = INITIAL
            rows.append((agent, step[agent], state, float(draw(st.integers(-3, 3))), version))
            if state in (TERMINAL, INTERRUPTED) or draw(st.integers(0, 15)) == 0:
                del step[agent]
    return rows


@settings(deadline=None, max_examples=80)
@given(streams(), st.lists(st.integers(1, 7), min_size=1, max_size=40), st.data())
def test_whatever_is_lost_or_late_each_row_is_learned_from_once_and_with_its_own_next_row(
    stream, sizes, data
):
    made = buffer(rollout_rows=6)
    kept = [row for row in stream if data.draw(st.integers(0, 4))]
    states = {(agent, step): state for agent, step, state, *_ in stream}
    rewards = {(agent, step): reward for agent, step, _, reward, _ in stream}
    learned, newest, turn, at = [], 1, 0, 0
    while at < len(kept):
        body = kept[at : at + sizes[turn % len(sizes)]]
        at, turn = at + len(body), turn + 1
        rows = columns([row[:4] for row in body])
        rows.version[:] = [row[4] for row in body]
        made.add(0, RowKind.TRAINING, rows)
        audit = made.audit()
        assert audit.rows == made.held <= made.rows == at
        if made.is_full:
            rollout = made.take()
            assert made.transitions == len(rollout.following)
            assert set(rollout.versions.tolist()) <= {newest, newest - 1}
            learned += steps(made)
            made.release()
            newest += 1
            made.published(newest)

    assert len({row for row, *_ in learned}) == len(learned)
    for row, following, reward, done, continues in learned:
        agent, step = divmod(row, 1_000)
        assert following == row + 1
        assert reward == rewards[agent, step + 1]
        assert done == (states[agent, step + 1] == TERMINAL)
        assert not (continues and states[agent, step + 1] in (TERMINAL, INTERRUPTED))
