import numpy as np
import pytest

from arkml.errors import Unavailable
from arkml.policies.agents import AgentTable


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
