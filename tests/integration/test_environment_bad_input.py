"""What learners and guests do wrong is an error of its own, and harms nothing else."""

import gymnasium
import numpy as np
import pytest
from tests.integration.command_line import GUESTS

from arkml import GuestEnv, Host, Limits
from arkml.envs.core.fleet_env import FleetEnv
from arkml.envs.gymnasium_env import GuestGymEnv
from arkml.envs.gymnasium_fleet import GuestFleetVectorEnv
from arkml.envs.gymnasium_vector import GuestVectorEnv
from arkml.envs.llapi.base_env import ActionTuple
from arkml.envs.llapi.exception import (
    UnityActionException,
    UnityCommunicatorStoppedException,
    UnityEnvironmentException,
)
from arkml.envs.llapi.guest_unity_env import GuestUnityEnv
from arkml.envs.pettingzoo_env import parallel_env
from arkml.envs.relayrl import (
    EnvironmentError as RelayRLError,
)
from arkml.envs.relayrl import (
    GuestScalarEnvironment,
    GuestVectorEnvironment,
)
from arkml.errors import (
    GuestBusy,
    GuestStalled,
    GuestTimeout,
    InstanceLimitExceeded,
    InvalidActions,
    UsageError,
)
from arkml.guests.guest import calls_of

WALKERS, CHOOSERS = GUESTS / "c_walkers.wasm", GUESTS / "c_choosers.wasm"
FIXED, NEXT = 0, 2
NONE, STALL, TRAP, LEAVE, DESERT, JOIN, SKIP, SECOND, GROW, HANG = range(10)
START = -0.6796875  # of the first walker
ResetNeeded = gymnasium.error.ResetNeeded


class Stepped:
    """One agent behind an interface."""

    def __init__(self, options):
        self.options = options

    def open(self):
        self.env = self.make(WALKERS, **self.options)
        return self

    def reset(self):
        return self.env.reset()

    def close(self):
        self.env.close()


class Plain(Stepped):
    make = GuestEnv
    wrong, closed, early, other_closed = InvalidActions, UsageError, UsageError, UsageError

    def step(self, action):
        step = self.env.step(one_row(action))
        if step.has_ended:
            return None, str(step.error)
        return step.decisions[0].observations[0].tolist(), None


class Single(Stepped):
    make = GuestGymEnv
    wrong, closed, early = InvalidActions, UsageError, ResetNeeded

    def step(self, action):
        observation, _, _, _, info = self.env.step(action)
        return observation.tolist(), info.get("error")


class Vector(Stepped):
    make = GuestVectorEnv
    wrong, closed, early = InvalidActions, UsageError, ResetNeeded

    def step(self, action):
        observations, _, _, _, info = self.env.step(one_row(action))
        return observations[0].tolist(), info["error"][0] if "error" in info else None


class Fleet(Stepped):
    make = GuestFleetVectorEnv
    wrong, closed, early = InvalidActions, UsageError, ResetNeeded

    def step(self, action):
        observations, _, _, _, info = self.env.step(one_row(action))
        return observations[0].tolist(), info["error"][0] if "error" in info else None


class Parallel(Stepped):
    make = staticmethod(parallel_env)
    wrong, closed, early = InvalidActions, UsageError, UsageError

    def step(self, action):
        observations, _, _, _, infos = self.env.step({"red/0": action})
        return observations["red/0"].tolist(), infos["red/0"].get("error")


class Scalar(Stepped):
    make = GuestScalarEnvironment
    wrong = closed = early = RelayRLError.EnvironmentError

    def step(self, action):
        step = self.env.step(action)
        return step.observation.tolist(), dict(step.info or []).get("error")


class Many(Stepped):
    make = GuestVectorEnvironment
    wrong = closed = early = RelayRLError.EnvironmentError

    def open(self):
        super().open()
        self.ids = self.env.init_num_envs(1)
        return self

    def reset(self):
        return self.env.reset(self.ids)

    def step(self, action):
        (step,) = self.env.step([(self.ids[0], action)])
        return step.observation.tolist(), dict(step.info or []).get("error")


class Unity(Stepped):
    make = GuestUnityEnv
    wrong, closed, early = UnityActionException, UnityEnvironmentException, UnityActionException
    name = "red?team=0"

    def step(self, action):
        self.env.set_actions(self.name, ActionTuple(continuous=one_row(action)))
        self.env.step()
        deciding, ended = self.env.get_steps(self.name)
        if len(ended):
            return ended.obs[0][0].tolist(), str(self.env.failure)
        return deciding.obs[0][0].tolist(), None


def one_row(action):
    """The action as that of the first of many agents."""
    return action[None] if isinstance(action, np.ndarray) else [action]


INTERFACES = [Plain, Single, Vector, Fleet, Parallel, Scalar, Many, Unity]
STEPPED = pytest.mark.parametrize("interface", INTERFACES, ids=lambda made: made.__name__)


@pytest.fixture(scope="module")
def host():
    with Host() as made:
        yield made


@pytest.fixture
def begin(host):
    """Opens environments of one agent, and another beside each, which must not be harmed."""
    made = []

    def opened(interface, fault=NONE, late=0, **options):
        settings = {"configure": (1, FIXED, 1, fault, late), "idle_calls": 50, **options}
        if "limits" not in options:
            settings["host"] = host
        made.append(interface(settings).open())
        return made[-1]

    neighbor = GuestEnv(WALKERS, host=host, configure=(2, NEXT, 1, 0, 0))
    neighbor.reset()
    yield opened
    step = neighbor.step([[0.5], [0.5]]).decisions[0]
    assert step.observations[0].tolist() == [START + 0.0625, 0.125]
    for found in [neighbor, *made]:
        if not (isinstance(found, Unity) and found.env._env is None):
            found.close()


WRONG = {
    "another shape": np.zeros(3, "f4"),
    "another rank": np.zeros((1, 1, 1), "f4"),
    "text": "left",
    "texts": np.array(["left"]),
    "bytes": b"\x01",
    "nothing": None,
    "an object": np.array([None]),
    "a dict": {"force": 1},
    "complex": np.array([1j]),
    "a date": np.array(["2000-01-01"], "M8[D]"),
    "no number": np.array([np.nan]),
    "infinite": np.array([-np.inf]),
    "too large for 32 bits": np.array([1e300]),
}


@STEPPED
@pytest.mark.parametrize("action", WRONG.values(), ids=WRONG)
def test_what_is_no_action_is_refused_and_nothing_moves(begin, interface, action):
    env = begin(interface)
    env.reset()
    with pytest.raises(interface.wrong):
        env.step(action)

    assert env.step(np.array([0.5]))[0] == [START + 0.0625, 0.125]


@pytest.mark.parametrize("interface", [Single, Vector, Fleet, Parallel, Scalar, Many])
@pytest.mark.parametrize("action", [1.0001, -3, 1e9])
def test_what_is_out_of_range_is_refused_where_there_is_one(begin, interface, action):
    env = begin(interface)
    env.reset()
    with pytest.raises(interface.wrong, match="from -1 to 1"):
        env.step(np.array([action]))

    assert env.step(np.array([0.5]))[0] == [START + 0.0625, 0.125]


@pytest.mark.parametrize("interface", [Plain, Unity])
def test_the_others_give_the_guest_what_they_are_given(begin, interface):
    env = begin(interface)
    env.reset()

    assert env.step(np.array([3.0]))[0] == [START + 0.375, 0.125]


@STEPPED
@pytest.mark.parametrize("kind", ["f2", "f4", "f8", "i1", "i8", "u2", "?"])
def test_numbers_of_any_kind_are_actions(begin, interface, kind):
    env = begin(interface)
    env.reset()

    assert env.step(np.array([1], kind))[0] == [START + 0.125, 0.125]


@STEPPED
def test_a_step_before_the_first_reset_is_refused(begin, interface):
    env = begin(interface)
    with pytest.raises(interface.early):
        env.step(np.array([0.5]))

    env.reset()
    assert env.step(np.array([0.5]))[0] == [START + 0.0625, 0.125]


@STEPPED
def test_a_closed_environment_is_stepped_and_reset_no_more(begin, interface):
    env = begin(interface)
    env.reset()
    env.close()
    with pytest.raises(interface.closed, match=r"is closed|No Unity environment is loaded"):
        env.step(np.array([0.5]))
    with pytest.raises(interface.closed, match=r"is closed|No Unity environment is loaded"):
        env.reset()


@pytest.mark.parametrize("texts", [{"configure": "a\udcff"}, {"args": "a\udcff"}])
def test_texts_that_are_not_utf_8_are_refused(texts):
    with Host() as host, pytest.raises(UsageError, match=r"is 'a\\udcff': U\+DCFF in it"):
        GuestEnv(WALKERS, host=host, **texts)


def test_arguments_for_an_entry_that_takes_none_are_refused(host):
    with pytest.raises(UsageError, match=r"args is '{seed}': ark_applet_update of .* takes no arg"):
        GuestEnv(WALKERS, host=host, args="{seed}")


def test_a_configuration_that_the_guest_refuses_is_said(host, caplog):
    with GuestEnv(GUESTS / "c_cartpole.wasm", host=host, configure=(5_000, 1)) as env:
        env.reset(seed=1)

    (said,) = [one.message for one in caplog.records if "configuration" in one.message]
    assert "configure answered 5 (INVALID_ARGUMENTS) to (5000, 1)" in said


@pytest.mark.parametrize("cycles", [0, -1, True, 5.5, float("nan"), "7"])
def test_a_number_of_cycles_is_a_whole_number_from_1(host, cycles):
    with pytest.raises(UsageError, match=r"max_cycles is .*: it takes a whole number from 1"):
        parallel_env(WALKERS, host=host, max_cycles=cycles)


def test_an_environment_with_the_host_of_others_is_closed_for_itself():
    with Host() as host:
        env = GuestEnv(WALKERS, host=host, configure=(1, FIXED, 1, 0, 0))
        env.reset()
        env.close()
        with pytest.raises(UsageError, match="closed"):
            env.reset()
        with GuestEnv(WALKERS, host=host, configure=(1, FIXED, 1, 0, 0)) as other:
            assert len(other.reset().decisions) == 1


@pytest.mark.parametrize("actions", [None, [0.0], "red/0", {"red/7": [0.0]}, {7: [0.0]}, {}])
def test_unknown_agents_are_refused_by_pettingzoo(begin, actions):
    env = begin(Parallel)
    env.reset()
    with pytest.raises((InvalidActions, UsageError)):
        env.env.step(actions)
    with pytest.raises(KeyError):
        env.env.action_space("blue/0")

    assert env.step(np.array([0.5]))[0] == [START + 0.0625, 0.125]


@pytest.mark.parametrize("asked", [None, 3, "ids", ["x"], [None], [("x", [0.0])], [[1]], [(1,)]])
def test_unknown_environments_are_refused_by_relayrl(begin, asked):
    env = begin(Many)
    env.reset()
    for call in (env.env.step, env.env.reset):
        with pytest.raises(RelayRLError.EnvironmentError):
            call(asked)

    assert env.step(np.array([0.5]))[0] == [START + 0.0625, 0.125]


def test_unknown_behaviors_and_agents_are_refused_by_ml_agents(begin):
    env = begin(Unity)
    env.reset()
    half = ActionTuple(continuous=np.array([[0.5]]))
    for name in ("red", "blue?team=0", ""):
        with pytest.raises(UnityActionException, match="does not correspond"):
            env.env.set_actions(name, half)
        with pytest.raises(UnityActionException, match="does not correspond"):
            env.env.get_steps(name)
    for actions in (None, np.array([[0.5]]), ActionTuple()):
        with pytest.raises(UnityActionException):
            env.env.set_actions(env.name, actions)
    with pytest.raises(IndexError, match="agent_id 7"):
        env.env.set_action_for_agent(env.name, 7, half)

    assert env.step(np.array([0.5]))[0] == [START + 0.0625, 0.125]


@pytest.mark.parametrize("choice", [3, -1, 1 << 32, (1 << 32) + 1, np.nan, 1e300])
def test_ml_agents_refuse_choices_that_no_branch_has_however_they_come(choice):
    env = GuestUnityEnv(CHOOSERS, configure=(1, 1), seed=3)
    env.reset()
    with pytest.raises(UnityActionException):
        env.set_actions("picker?team=0", ActionTuple(discrete=np.array([[choice, 0]])))
    env.close()


@STEPPED
def test_behaviors_that_the_guest_does_not_have_are_refused(begin, interface):
    wanted = (UsageError, RelayRLError.EnvironmentError)
    with pytest.raises(wanted, match=r"behaviors=\['blue'\]: c_walkers.wasm has red"):
        begin(interface, behaviors=["blue"]).reset()


QUICK = {"limits": Limits(run_seconds=0.1)}
NEVER_THERE = {
    "no agents": (DESERT, GuestStalled, "submitted nothing in 50 calls"),
    "no submit": (STALL, GuestStalled, "submitted nothing in 50 calls"),
    "no end of a frame": (HANG, GuestTimeout, "over its budget of 0.1 s"),
}


@STEPPED
@pytest.mark.parametrize(("fault", "error", "words"), NEVER_THERE.values(), ids=NEVER_THERE)
def test_a_guest_that_never_comes_to_a_decision_does_not_start(
    begin, interface, fault, error, words
):
    with pytest.raises((error, RelayRLError.EnvironmentError), match=words):
        begin(interface, fault, **QUICK).reset()


@STEPPED
@pytest.mark.parametrize("kind", NEVER_THERE)
def test_a_guest_that_comes_to_no_decision_any_more_is_truncated(begin, interface, kind):
    fault, _, words = NEVER_THERE[kind]
    env = begin(interface, fault, late=2, **QUICK)
    env.reset()
    env.step(np.array([0.5]))
    _, told = env.step(np.array([0.5]))
    with pytest.raises((UsageError, ResetNeeded, RelayRLError.EnvironmentError,
                        UnityCommunicatorStoppedException, UnityActionException)):  # fmt: skip
        env.step(np.array([0.5]))
    env.reset()

    assert words in told
    assert env.step(np.array([0.5]))[0] == [START + 0.0625, 0.125]


def test_the_deadline_of_a_step_is_in_seconds():
    idle = 1 << 40
    with GuestEnv(
        WALKERS, configure=(1, FIXED, 1, DESERT, 1), seconds=0.05, idle_calls=idle
    ) as env:
        env.reset()
        step = env.step([[0.5]])

    assert isinstance(step.error, GuestStalled)
    assert "submitted nothing in 0.05 s" in str(step.error)


MORE = {"another agent": JOIN, "another behavior": SECOND}


@pytest.mark.parametrize("fault", MORE.values(), ids=MORE)
@pytest.mark.parametrize("interface", [Single, Vector])
def test_a_guest_with_more_than_an_interface_has_needs_a_reset(begin, interface, fault):
    env = begin(interface, fault, late=1)
    env.reset()
    if fault == SECOND:  # which comes after the first in each frame
        env.step(np.array([0.5]))
    with pytest.raises(UsageError, match=r"has one agent|num_envs|behaviors="):
        env.step(np.array([0.5]))
    with pytest.raises(ResetNeeded):
        env.step(np.array([0.5]))
    before = env.env.guest_env.guest
    env.reset()

    assert env.env.guest_env.guest is not before


@pytest.mark.parametrize("fault", MORE.values(), ids=MORE)
@pytest.mark.parametrize("interface", [Scalar, Many])
def test_relayrl_truncates_a_guest_with_more_than_one_agent(begin, interface, fault):
    env = begin(interface, fault, late=1)
    env.reset()
    told = [env.step(np.array([0.5]))[1]]
    if told[0] is None:
        told.append(env.step(np.array([0.5]))[1])
    with pytest.raises(RelayRLError.EnvironmentError, match="the episode has ended"):
        env.step(np.array([0.5]))
    env.reset()

    assert "a RelayRL environment has one" in told[-1]


@pytest.mark.parametrize("fault", MORE.values(), ids=MORE)
def test_a_fleet_truncates_a_guest_with_more_than_one_agent_and_the_rest_go_on(fault):
    late = "{seed}"  # in the first guest at once, in the second after 50 submits
    envs = GuestFleetVectorEnv(WALKERS, num_envs=2, configure=(1, FIXED, 1, fault, late))
    envs.reset(seed=[1, 50])
    steps = [envs.step(np.full((2, 1), 0.5, "f4")) for _ in range(5)]
    envs.close()
    truncated = np.array([step[3] for step in steps])

    assert truncated[:, 0].sum() == 1
    assert not truncated[:, 1].any()
    assert "a fleet has one" in steps[int(truncated[:, 0].argmax())][4]["error"][0]
    assert steps[-1][4]["present"].tolist() == [False, True]
    assert steps[-1][0][1].tolist() == [START + 0.0625 * 5, 0.125 * 5]


@pytest.mark.parametrize("fault", MORE.values(), ids=MORE)
@pytest.mark.parametrize("spawn", ["show", "hide"])
def test_pettingzoo_lets_them_join_or_hides_them(fault, spawn):
    game = parallel_env(WALKERS, spawn=spawn, configure=(1, FIXED, 1, fault, 1))
    game.reset()
    for _ in range(3):
        game.step({name: np.zeros(game.action_space(name).shape) for name in game.agents})
    joined = "red/1" if fault == JOIN else "blue/1"
    agents = game.agents
    game.close()

    assert agents == (["red/0", joined] if spawn == "show" else ["red/0"])


@pytest.mark.parametrize("fault", MORE.values(), ids=MORE)
def test_ml_agents_see_whoever_comes(fault):
    env = GuestUnityEnv(WALKERS, configure=(1, FIXED, 1, fault, 1))
    env.reset()
    found = []
    for _ in range(3):
        env.step()
        found.append({name: len(env.get_steps(name)[0]) for name in env.behavior_specs})
    env.close()

    if fault == JOIN:
        assert found == [{"red?team=0": 2}] * 3
    else:
        assert found[1] == {"red?team=0": 0, "blue?team=0": 1}


@STEPPED
def test_a_guest_whose_memory_grows_between_its_submits_plays_on(begin, interface):
    env = begin(interface, GROW, late=0)
    env.reset()
    found = [env.step(np.array([0.5]))[0] for _ in range(5)]

    assert found == [[START + 0.0625 * n, 0.125 * n] for n in range(1, 6)]


def test_memory_that_grows_while_a_guest_is_suspended_takes_the_actions_all_the_same():
    with GuestEnv(WALKERS, configure=(2, FIXED, 1, 0, 0)) as env:
        env.reset()
        for n in range(1, 4):
            calls_of(env.guest).instance._sandbox._native_memory.grow(16)
            with pytest.raises(GuestBusy):
                env.guest.call("ark_alloc", 1 << 20, 8)
            seen = env.step([[0.5], [-0.5]]).decisions[0].observations

            assert seen[0].tolist() == [START + 0.0625 * n, 0.125 * n]


def test_memory_over_the_limit_fails_the_guest_alone():
    limits = Limits(memory_bytes=4 << 20)
    with (
        GuestEnv(WALKERS, configure=(1, FIXED, 1, GROW, 0), limits=limits) as greedy,
        GuestEnv(WALKERS, configure=(1, FIXED, 1, NONE, 0), limits=limits) as modest,
    ):
        modest.reset()
        step = greedy.reset()
        for _ in range(100):
            if step.has_ended:
                break
            step = greedy.step([[0.5]])
            last = modest.step([[0.5]])

    assert step.decisions[0].truncated.all()
    assert "a call was refused" in str(step.error)
    assert not last.has_ended


@pytest.mark.parametrize("seed", [-1, 1.5, "one", 1 << 63])
def test_a_seed_that_is_none_is_refused_and_changes_nothing(seed):
    with GuestEnv(WALKERS, configure=(1, NEXT, 1, NONE, 0)) as env:
        env.reset()
        before = env.guest
        with pytest.raises(UsageError, match=r"seed is .*: a whole number from 0"):
            env.reset(seed=seed)

        assert env.guest is before
    fleet = FleetEnv(WALKERS, 2, configure=(1, NEXT, 1, NONE, 0))
    with fleet, pytest.raises(UsageError, match="seed is"):
        fleet.reset([1, seed])


def test_a_seed_that_configure_cannot_take_is_refused_and_changes_nothing():
    most = (1 << 32) - 1
    refused = pytest.raises(UsageError, match=rf"^seed is {most + 1}: an i32 .* from 0 to {most}$")
    seeded = {"configure": (1, NEXT, 1, NONE, "{seed}")}
    with GuestEnv(WALKERS, **seeded) as env:
        env.reset(seed=most)
        before = env.guest
        with refused:
            env.reset(seed=most + 1)

        assert env.guest is before
    with FleetEnv(WALKERS, 2, **seeded) as fleet:
        fleet.reset(most - 1)
        instances = [fleet.instance(0), fleet.instance(1)]
        for seed in (most, [1, most + 1]):
            with refused:
                fleet.reset(seed)
        with refused:
            fleet.renew([1], [most + 1])

        assert [fleet.instance(0), fleet.instance(1)] == instances


@pytest.mark.parametrize(
    ("option", "value", "sentence"),
    [
        ("behaviors", 5, "names of behaviors"),
        ("behaviors", "walker", "names of behaviors"),
        ("behaviors", [1], "names of behaviors"),
        ("configure", 5, "text, or whole numbers"),
        ("args", 5, "a text"),
        ("host", 5, "arkml.Host, or None"),
        ("spec", 5, "a dict, or the path of a JSON file"),
    ],
)
def test_an_option_of_another_kind_is_refused_by_its_name(option, value, sentence):
    with pytest.raises(UsageError, match=f"^{option} is .*: it takes {sentence}"):
        GuestEnv(WALKERS, **{option: value})


@pytest.mark.parametrize("option", ["args", "configure"])
def test_a_text_for_the_guest_that_utf8_cannot_hold_is_refused(option):
    with pytest.raises(UsageError, match=f"^{option} is .* in it is not a character"):
        GuestEnv(GUESTS / "c_pendulum.wasm", **{option: "\ud800"})


def test_arguments_of_other_kinds_are_refused_by_their_names():
    with Host() as host, host.fleet(b"(module)", 1) as fleet:
        guest = fleet.guests[0]
        for work in (
            lambda: host.load(b"(module)", name=5),
            lambda: host.fleet(guest.module, 1, name=5),
            lambda: guest.call(["f"]),
            lambda: guest.invoke(["f"]),
            lambda: fleet.call(["f"]),
            lambda: guest.run_cmdlet(5),
        ):
            with pytest.raises(UsageError, match=r"^(name|function|arguments) is .*: it takes "):
                work()
        for arguments in ("\ud800", ["\ud800"]):
            with pytest.raises(UsageError, match="in it is not a character"):
                guest.run_cmdlet(arguments)


def test_a_limit_that_is_too_small_or_too_large_is_named():
    with pytest.raises(UsageError, match=r"from 0 to 2\*\*63 - 1"):
        Limits(memory_bytes=10**30)
    with Host() as host, pytest.raises(InstanceLimitExceeded, match=r"20000 \(Limits\.instances"):
        host.fleet(b"(module)", 2**40)
