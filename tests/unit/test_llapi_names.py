"""Names that tests and trainers of ML-Agents import are where the original has them."""

import logging
import threading
from unittest import mock

import numpy as np
import pytest

from arkml.envs.llapi import base_env, logging_util, rpc_utils, timers
from arkml.envs.llapi.environment import UnityEnvironment
from arkml.envs.llapi.mock_communicator import MockCommunicator
from arkml.errors import ArkmlError


@pytest.fixture
def connect():
    """An environment whose player is not there, and its connection."""
    made = []

    def env(*, log_folder=None, **options):
        communicator = MockCommunicator(**options)
        with mock.patch.object(UnityEnvironment, "_get_communicator", return_value=communicator):
            made.append(UnityEnvironment(log_folder=log_folder))
        return made[-1], communicator

    yield env
    for one in made:
        if one._loaded:
            one.close()


# The mock communicator.


def test_the_folder_of_logs_is_named_as_it_was_given(connect):
    env, _ = connect(log_folder="./logs")

    assert "./logs/Player-0.log" in env._executable_args()


def test_an_environment_steps_the_agents_of_a_mock_communicator(connect):
    env, communicator = connect()
    env.reset()
    spec = env.behavior_specs["RealFakeBrain"]
    decisions, terminals = env.get_steps("RealFakeBrain")
    env.set_actions("RealFakeBrain", spec.action_spec.random_action(len(decisions)))
    env.step()

    assert spec.action_spec.continuous_size == 2
    assert decisions.agent_id.tolist() == [0, 1]
    assert terminals.agent_id.tolist() == [2]
    assert np.array_equal(decisions.obs[0], [[1, 2, 3]] * 2)
    assert communicator.steps == 2


def test_a_mock_communicator_has_branches_and_other_names(connect):
    env, communicator = connect(discrete_action=True, brain_name="Fake", num_agents=1)
    env.close()

    assert env.behavior_specs["Fake"].action_spec.discrete_branches == (3, 2)
    assert communicator.has_been_closed


# Private names.


def test_versions_of_messages_are_compared_as_the_original_compares_them():
    compatible = UnityEnvironment._check_communication_compatibility

    assert compatible("1.1.0", "1.0.0", "0.15.0")
    assert not compatible("2.0.0", "1.0.0", "0.15.0")
    assert not compatible("0.17.0", "0.16.0", "0.15.0")


def test_only_the_numbers_of_signals_have_a_name():
    names = [UnityEnvironment._returncode_to_signal_name(code) for code in (-2, 42, "SIGINT")]

    assert names == ["SIGINT", None, None]


def test_actions_of_other_types_are_made_from_the_base_of_action_tuples():
    class LogProbs(base_env._ActionTupleBase):
        @property
        def discrete_dtype(self):
            return np.float32

    probabilities = LogProbs(discrete=np.array([[0.5, 0.25]]))

    assert probabilities.discrete.dtype == np.float32
    assert probabilities.continuous.shape == (1, 0)


def test_observations_are_read_under_the_names_of_the_original(connect):
    env, communicator = connect()
    agents = communicator.exchange(None).rl_output.agentInfos["RealFakeBrain"].value
    spec = env.behavior_specs["RealFakeBrain"].observation_specs[0]

    for read in (
        rpc_utils._process_maybe_compressed_observation,
        rpc_utils._process_rank_one_or_two_observation,
    ):
        assert np.array_equal(read(0, spec, agents), [[1, 2, 3]] * 3)


# The log.


def test_a_level_is_that_of_all_loggers_before_and_after():
    before = logging_util.get_logger("a trainer's module")
    logging_util.set_log_level(logging_util.ERROR)
    after = logging_util.get_logger("another one")
    levels = {before.level, after.level, logging.getLogger("arkml.envs.llapi").level}
    logging_util.set_log_level(logging_util.NOTSET)

    assert levels == {logging.ERROR}
    assert before.level == logging.NOTSET


# Timers.


@timers.timed
def decorated():
    timers.set_gauge("sum", 3)


@pytest.fixture
def stack():
    found = timers.TimerStack()
    with mock.patch.object(timers, "_get_thread_timer", return_value=found):
        yield found


def test_sections_are_counted_inside_of_each_other(stack):
    with timers.hierarchical_timer("outer"):
        for _ in range(3):
            with timers.hierarchical_timer("inner"):
                decorated()
        with pytest.raises(ArkmlError), timers.hierarchical_timer("fails"):
            raise ArkmlError
    tree = timers.get_timer_tree()
    outer = tree["children"]["outer"]

    assert stack.stack == [stack.root]
    assert (tree["name"], tree["count"], outer["count"]) == ("root", 1, 1)
    assert outer["children"].keys() == {"inner", "fails"}
    assert outer["children"]["inner"]["children"]["decorated"]["count"] == 3
    assert outer["children"]["fails"]["count"] == 1
    assert outer["total"] >= outer["children"]["inner"]["total"] >= 0
    assert outer["self"] == pytest.approx(
        outer["total"] - sum(child["total"] for child in outer["children"].values())
    )
    assert tree["metadata"]["timer_format_version"] == timers.TIMER_FORMAT_VERSION


def test_gauges_have_their_last_value_and_their_extremes(stack):
    for value in (1.0, 5.0, float("nan"), 2.0):
        timers.set_gauge("speed", value)
    other = {"speed": timers.GaugeNode(7.0), "height": timers.GaugeNode(1.0)}
    timers.merge_gauges(other)

    assert stack.gauges["speed"].as_dict() == {"value": 7.0, "min": 1.0, "max": 7.0, "count": 4}
    assert timers.get_timer_tree()["gauges"]["height"]["count"] == 1


def test_sections_of_another_thread_are_merged_as_parallel(stack):
    other = timers.TimerStack()
    with timers.hierarchical_timer("work", other):
        pass
    stack.root.merge(other.get_root(), "worker")
    worker = timers.get_timer_tree()["children"]["worker"]

    assert worker["is_parallel"]
    assert worker["children"]["work"]["count"] == 1


def test_each_thread_has_timers_of_its_own_and_may_forget_them():
    def work():
        with timers.hierarchical_timer("work"):
            timers.add_metadata("who", "thread")

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    found = timers.get_timer_stack_for_thread(thread)
    tree = timers.get_timer_tree(found)
    timers.reset_timers(found)

    assert tree["children"]["work"]["count"] == 1
    assert tree["metadata"]["who"] == "thread"
    assert not timers.get_timer_root(found).children
    assert timers.get_timer_stack_for_thread(threading.Thread()) is None
