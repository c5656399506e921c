import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from arkml.errors import Unavailable
from arkml.policies.agents import AgentTable
from arkml.policies.workspace import PolicyWorkspace


def words(*values):
    return np.array(values, np.uint64)


def act(table, ids, key=1, *, ended=None, state=None):
    """Let the agents act once; returns how often the agent of each row had acted before."""
    visit = table.visit(np.asarray(key, np.uint64), words(*ids))
    steps = table.steps(visit).tolist()
    table.advance(visit, None if ended is None else np.array(ended), state)
    return steps


def states(table, ids, key=1):
    """The first number of the state of each agent."""
    return table.state(table.visit(np.asarray(key, np.uint64), words(*ids)))[:, 0].tolist()


def test_an_agents_step_counts_how_often_it_acted_before():
    table = AgentTable()

    assert act(table, [5, 9]) == [0, 0]
    assert act(table, [9]) == [1]
    assert act(table, [9, 5, 3]) == [2, 1, 0]
    assert act(table, [9, 5, 3]) == [3, 2, 1]


def test_agents_without_a_last_row_count_as_vanished_once_many_others_have_come():
    table = AgentTable()
    for first in range(0, 40, 2):
        ended = [False, first >= 20]
        act(table, [first, first + 1, 100])
        act(table, [first, first + 1, 100], ended=[*ended, False])

    assert table.count_vanished() == 16  # those of the first 8 of 20 changes
    for _ in range(40):  # one change
        act(table, [100])
    assert table.count_vanished() == 18


def test_agents_of_different_sessions_are_different():
    table = AgentTable()
    act(table, [5, 5, 5], key=[1, 2, 2])

    assert act(table, [5, 5], key=[2, 1]) == [2, 1]
    assert act(table, [5], key=2) == [3]


def test_rows_of_one_agent_are_successive_steps():
    table = AgentTable()

    assert act(table, [5, 9, 5, 5, 9]) == [0, 0, 1, 2, 1]
    assert act(table, [9, 9, 5]) == [2, 3, 3]


def test_the_state_of_an_agent_is_zero_at_first_and_then_what_was_left():
    table = AgentTable(1)
    act(table, [5, 9], state=np.array([[50], [90]], np.float32))

    assert states(table, [9, 7, 5]) == [90, 0, 50]


def test_an_agent_whose_episode_ended_keeps_its_steps():
    table = AgentTable()
    act(table, [5], ended=[True])

    assert act(table, [5]) == [1]


def test_a_forgotten_sessions_agents_start_anew_and_others_do_not():
    table = AgentTable(1)
    act(table, [5, 5], key=[1, 2], state=np.ones((2, 1), np.float32))
    table.forget(1)
    table.forget(3)

    assert len(table) == 1
    assert states(table, [5]) == [0]
    assert states(table, [5], key=2) == [1]
    assert act(table, [5, 5], key=[1, 2]) == [0, 1]


def test_ended_agents_over_the_limit_are_forgotten_the_longest_unseen_first():
    table = AgentTable(ended_agents=8)
    act(table, [100])
    for agent in range(20):
        act(table, [agent], ended=[True])

    assert len(table) <= 1 + 8 + 2
    assert act(table, [100]) == [1]
    assert act(table, [19, 18, 17]) == [1, 1, 1]
    assert act(table, [0, 1, 2]) == [0, 0, 0]


def test_agents_are_forgotten_as_if_all_of_them_were_looked_at_each_time():
    """Sessions whose agents end with any row, or play on, and are new or come back."""
    random, workspace = np.random.default_rng(7), PolicyWorkspace()
    made, looking = (AgentTable(ended_agents=40, agents=200, workspace=workspace) for _ in range(2))
    first = 0
    for _ in range(600):
        key, count = int(random.integers(0, 3)), int(random.integers(1, 30))
        first += int(random.integers(0, 12))
        ids = first + random.permutation(40)[:count]
        ended = random.random(count) < random.choice([0.05, 0.9])
        looking._few_until.clear()
        for table in (made, looking):
            act(table, ids, key=key, ended=ended)
        if random.random() < 0.02:
            for table in (made, looking):
                table.load(key, table.save(key))

        assert [made.save(key).ids.tolist() for key in range(3)] == [
            looking.save(key).ids.tolist() for key in range(3)
        ]
    assert first > 3_000
    assert len(made) <= 3 * 200


def test_live_agents_over_the_limit_are_forgotten_the_longest_unseen_first():
    table = AgentTable(agents=16)
    for agent in range(40):
        act(table, [agent, 1000])

    assert len(table) <= 16
    assert act(table, [1000]) == [40]
    assert act(table, [39, 0]) == [1, 0]


def test_more_agents_at_once_than_the_state_may_take_are_refused_without_a_trace():
    table = AgentTable(100, state_bytes=400 * 10)
    act(table, [1, 2], state=np.ones((2, 100), np.float32))

    with pytest.raises(Unavailable, match="11 agents"):
        act(table, range(11))
    assert act(table, [1, 2]) == [1, 1]
    assert states(table, [1, 2]) == [1, 1]


def test_thousands_of_agents_come_and_go_like_in_a_plain_dictionary():
    random = np.random.default_rng(1)
    table = AgentTable(1)
    steps, sums = {}, {}
    for _ in range(60):
        count = int(random.integers(0, 400))
        ids = random.integers(0, 500, count, np.uint64)
        keys = random.integers(0, 4, count, np.uint64)
        visit = table.visit(keys, ids)
        expected = []
        for agent in zip(keys.tolist(), ids.tolist(), strict=True):
            expected.append(steps.get(agent, 0))
            steps[agent] = expected[-1] + 1
        state = table.state(visit)
        rows = np.arange(count) if visit.inverse is None else visit.inverse
        for agent, row in zip(zip(keys.tolist(), ids.tolist(), strict=True), rows, strict=True):
            assert state[row, 0] == sums.get(agent, 0)
        for agent, row in zip(zip(keys.tolist(), ids.tolist(), strict=True), rows, strict=True):
            sums[agent] = sums.get(agent, 0) + 1
            state[row, 0] += 1

        assert table.steps(visit).tolist() == expected
        table.advance(visit, np.zeros(count, bool), state)
        if random.random() < 0.1:
            key = int(random.integers(0, 4))
            table.forget(key)
            steps = {agent: n for agent, n in steps.items() if agent[0] != key}
            sums = {agent: n for agent, n in sums.items() if agent[0] != key}
        assert len(table) == len(steps)


def test_fresh_agents_of_one_session_never_evict_those_of_another():
    table = AgentTable(1, ended_agents=4, agents=16)
    act(table, range(10), key=1, ended=[True] * 4 + [False] * 6, state=np.ones((10, 1), np.float32))
    for start in range(0, 400, 8):
        act(table, range(start, start + 8), key=2, ended=[start % 16 == 0] * 8)

    assert len(table) <= 10 + 16
    assert states(table, range(10)) == [1] * 10
    assert act(table, range(10)) == [1] * 10


def test_a_session_with_too_many_agents_is_named_and_nobody_is_forgotten():
    table = AgentTable(agents=16)
    act(table, range(16), key=1)
    act(table, range(12), key=2)
    ids, keys = [*range(100, 105), *range(17)], [2] * 5 + [0xAB] * 17

    with pytest.raises(Unavailable, match="17 agents of session 0xab"):
        act(table, ids, keys)
    assert len(table) == 28
    assert act(table, range(12), key=2) == [1] * 12


def test_many_sessions_may_hold_more_together_than_one_of_them_may():
    table = AgentTable(agents=16)
    keys = np.repeat(np.arange(50), 16)
    act(table, [*range(16)] * 50, keys)

    assert len(table) == 800
    assert act(table, [*range(16)] * 50, keys) == [1] * 800


def test_the_sessions_of_one_guest_share_what_it_may_keep():
    entry = AgentTable(4)._entry_bytes
    table = AgentTable(4, workspace=PolicyWorkspace(agent_bytes=20 * entry))
    first, second, other = 7 << 32, 7 << 32 | 1, 8 << 32
    act(table, range(15), key=first)

    with pytest.raises(Unavailable, match="guest 7"):
        act(table, range(6), key=second)
    assert act(table, range(15), key=other) == [0] * 15
    table.forget(first)
    assert act(table, range(6), key=second) == [0] * 6
    assert table.held(7) == 6 * entry


def test_the_room_for_wide_states_grows_with_the_agents():
    table = AgentTable(1 << 20)
    act(table, [1])

    assert len(table._state) < 16


def test_agents_that_leave_do_not_keep_the_memory_of_their_states():
    table = AgentTable(1_000)
    for start in range(0, 6_000, 1_000):
        act(table, range(start, start + 1_000), key=1 + (start >= 1_000))
    before = states(table, [7])
    act(table, [7], state=np.full((1, 1_000), 3, np.float32))
    table.forget(2)

    assert before == [0]
    assert states(table, [7, 8]) == [3, 0]
    assert act(table, [7, 999, 2_000]) == [2, 1, 0]
    assert table._state.nbytes < 10 << 20


def test_agents_come_and_go_without_copies_of_the_others():
    table = AgentTable(1_000)
    act(table, range(2_000))
    kept = table._state
    for key in range(2, 30):
        act(table, range(16), key=key)
        kept = table._state
        table.forget(key)
        act(table, range(16), key=key + 100)
        table.forget(key + 100)

    assert table._state is kept


# Agents that move to another table.


def filled(workspace, width, agents, *, limit=100):
    """A table in which agents of sessions 1 and 2 have acted twice, with a state of their own."""
    table = AgentTable(width, workspace=workspace, agents=limit)
    for _ in range(2):
        for key in (1, 2):
            state = np.full((len(agents), width), 10 * key, np.float32) + np.arange(width)
            act(table, agents, key=key, state=state)
    return table


@pytest.mark.parametrize("keys", [[1], [1, 2]])
@pytest.mark.parametrize("known", [[], [7]])
def test_agents_move_with_their_steps_and_states(keys, known):
    workspace = PolicyWorkspace()
    old, new = filled(workspace, 2, [5, 9]), AgentTable(2, workspace=workspace)
    if known:
        act(new, known, key=3, state=np.full((1, 2), 70, np.float32))
    new.take_from(old, keys, has_states=True)

    for key in keys:
        assert states(new, [9, 5], key) == [10 * key] * 2
        assert act(new, [5, 9], key=key) == [2, 2]
    assert act(old, [5], key=1) == [0]
    assert act(old, [5], key=2) == [2 if keys == [1] else 0]
    assert states(new, known, key=3) == [70] * len(known)


def test_agents_move_without_states_of_another_width():
    workspace = PolicyWorkspace()
    old, new = filled(workspace, 2, [5, 9]), AgentTable(3, workspace=workspace)
    new.take_from(old, [1, 2], has_states=False)

    assert states(new, [5, 9]) == [0, 0]
    assert act(new, [5, 9], key=2) == [2, 2]


def test_a_session_with_more_agents_than_may_be_kept_begins_anew():
    workspace = PolicyWorkspace()
    old = filled(workspace, 1, [1, 2, 3])
    new = AgentTable(1, workspace=workspace, agents=2)
    new.take_from(old, [1, 2], has_states=True)

    assert act(new, [1, 2], key=1) == [0, 0]


def test_the_bytes_of_agents_move_with_them():
    workspace = PolicyWorkspace()
    guest = 3
    key = guest << 32
    old, new = AgentTable(4, workspace=workspace), AgentTable(4, workspace=workspace)
    act(old, [1, 2, 3], key=key)
    before = workspace.held(guest)
    new.take_from(old, [key], has_states=True)

    assert workspace.held(guest) == before > 0
    assert (len(old), len(new)) == (0, 3)
    new.forget(key)
    assert workspace.held(guest) == 0


@given(
    st.lists(
        st.tuples(
            st.sampled_from(["act", "save", "load", "forget", "load_elsewhere"]),
            st.integers(1, 3),
            st.lists(st.integers(0, 6), min_size=1, max_size=5),
        ),
        max_size=25,
    )
)
def test_agents_that_are_loaded_are_those_that_were_saved(steps):
    table, model, saved = AgentTable(1), {}, []
    for name, key, ids in steps:
        match name:
            case "act":
                once = sorted(set(ids))
                expected = [model.get((key, one), (0, 0.0))[1] for one in once]
                assert states(table, once, key) == expected
                visit = table.visit(np.asarray(key, np.uint64), words(*ids))
                state = table.state(visit) + 1
                assert table.steps(visit).tolist() == [
                    model.get((key, one), (0, 0.0))[0] + ids[:place].count(one)
                    for place, one in enumerate(ids)
                ]
                table.advance(visit, None, state)
                for one in set(ids):
                    count, sums = model.get((key, one), (0, 0.0))
                    model[key, one] = count + ids.count(one), sums + 1
            case "save":
                agents = {one: value for (of, one), value in model.items() if of == key}
                saved.append((table.save(key), agents))
            case "forget":
                table.forget(key)
                model = {both: value for both, value in model.items() if both[0] != key}
            case _ if saved:
                agents, expected = saved[ids[0] % len(saved)]
                if name == "load_elsewhere":
                    table, model = AgentTable(1), {}
                table.load(key, agents)
                model = {both: value for both, value in model.items() if both[0] != key}
                model |= {(key, one): value for one, value in expected.items()}

    assert len(table) == len(model)


def test_agents_over_the_limit_are_not_loaded():
    full, small = AgentTable(), AgentTable(agents=4)
    act(full, range(9))
    with pytest.raises(Unavailable, match="states are kept for 4 agents"):
        small.load(1, full.save(1))
