"""Masks in each interface: one form, whether something is masked in a step or not."""

import contextlib

import gymnasium
import numpy as np
import pytest
from tests.integration.command_line import GUESTS
from tests.integration.test_environment import INITIAL, RUNNING, TERMINAL, scripted

from arkml import GuestEnv
from arkml.envs.core.decisions import Behavior, Decision
from arkml.envs.gymnasium_env import GuestGymEnv
from arkml.envs.gymnasium_fleet import GuestFleetVectorEnv
from arkml.envs.gymnasium_vector import GuestVectorEnv
from arkml.envs.llapi.envs.unity_aec_env import UnityAECEnv
from arkml.envs.llapi.envs.unity_parallel_env import UnityParallelEnv
from arkml.envs.llapi.guest_unity_env import GuestUnityEnv
from arkml.envs.llapi.player_messages import AreaIds, agents_to_proto
from arkml.envs.pettingzoo_env import parallel_env
from arkml.envs.slots import Slots
from arkml.policies.external import ExternalPolicy

CHOOSERS = GUESTS / "c_choosers.wasm"
PICKERS, DRIVERS, BOTH = 1, 2, 3
STEPS = 30
LEVER = {"actions": {"discrete": [3]}}
NEVER_MASKED = scripted(
    [(1, INITIAL, 0), (2, INITIAL, 0)],
    [(1, RUNNING, 1), (2, RUNNING, 1)],
    [(1, RUNNING, 1)],  # the second is skipped
    [(1, TERMINAL, 1), (2, TERMINAL, 1)],
    [(3, INITIAL, 0), (4, INITIAL, 0)],
)
ALONE = scripted([(1, INITIAL, 0)], [(1, RUNNING, 1)], [(1, TERMINAL, 1)])
FAILING = scripted([(1, INITIAL, 0)], [(1, RUNNING, 1)], after="unreachable")


@pytest.fixture
def make():
    with contextlib.ExitStack() as stack:

        def env(kind, module=CHOOSERS, **options):
            made = kind(module, **options)
            stack.callback(made.close)
            return made

        yield env


def form(value):
    """Return the kinds, shapes and dtypes of a value, without its numbers."""
    if isinstance(value, dict):
        return {key: form(part) for key, part in value.items()}
    if isinstance(value, list | tuple):
        return [type(value).__name__, *map(form, value)]
    if isinstance(value, np.ndarray):
        return (value.shape, str(value.dtype))
    return type(value).__name__


def forms(values):
    """The forms that there are among values, each once."""
    found = []
    for value in values:
        if form(value) not in found:
            found.append(form(value))
    return found


def seen_by_gymnasium(env, steps=STEPS):
    """The observations and masks of some episodes."""
    env.action_space.seed(1)
    observation, info = env.reset(seed=1)
    seen = [(observation, info["action_mask"])]
    for _ in range(steps):
        observation, _, terminated, truncated, info = env.step(env.action_space.sample())
        seen.append((observation, info["action_mask"]))
        if isinstance(env, gymnasium.Env) and (terminated or truncated):
            env.reset()
    return seen


@pytest.mark.parametrize("kinds", [PICKERS, DRIVERS])
@pytest.mark.parametrize("kind", [GuestGymEnv, GuestVectorEnv, GuestFleetVectorEnv])
def test_gymnasium_tells_masks_in_one_form(make, kind, kinds):
    seen = seen_by_gymnasium(make(kind, configure=(1, kinds)))
    masks = [str(mask) for _, mask in seen]

    assert len(forms(seen)) == 1
    assert len(set(masks)) > 1  # something was masked, and then not


@pytest.mark.parametrize(
    ("kind", "mask"),
    [
        (GuestGymEnv, [1, 1, 1]),
        (GuestVectorEnv, [[1, 1, 1]]),
        (GuestFleetVectorEnv, [[1, 1, 1]]),
    ],
)
def test_gymnasium_tells_masks_of_a_guest_that_masks_nothing(make, kind, mask):
    env = make(kind, ALONE, spec=LEVER)
    action = env.action_space.sample()
    _, info = env.reset()
    told = [info, env.step(action)[4], env.step(action)[4]]

    assert [one["action_mask"].tolist() for one in told] == [mask] * 3
    assert {one["action_mask"].dtype for one in told} == {np.dtype(np.int8)}


@pytest.mark.parametrize("kind", [GuestVectorEnv, GuestFleetVectorEnv])
@pytest.mark.parametrize("mode", ["NextStep", "SameStep"])
def test_a_place_without_an_agent_has_a_mask_too(make, kind, mode):
    env = make(kind, FAILING, spec=LEVER, restart="on-failure", autoreset_mode=mode)
    _, info = env.reset()
    told = [info, *(env.step([0])[4] for _ in range(4))]

    assert any("error" in one for one in told)
    assert [one["action_mask"].tolist() for one in told] == [[[1, 1, 1]]] * 5


def test_a_place_that_was_always_empty_has_a_mask_too(make):
    env = make(GuestVectorEnv, ALONE, spec=LEVER, num_envs=2)
    _, info = env.reset()

    assert info["present"].tolist() == [True, False]
    assert info["action_mask"].tolist() == [[1, 1, 1]] * 2


def test_a_mask_that_was_given_out_is_the_callers(make):
    env = make(GuestVectorEnv, NEVER_MASKED, spec=LEVER)
    _, info = env.reset()
    info["action_mask"][...] = 0
    *_, later = env.step([0, 0])
    later["action_mask"][...] = 0
    *_, last = env.step([0, 0])

    assert last["action_mask"].tolist() == [[1, 1, 1]] * 2


@pytest.mark.parametrize("module", [CHOOSERS, NEVER_MASKED])
def test_pettingzoo_tells_masks_in_one_form(make, module):
    options = {"configure": (2, PICKERS)} if module is CHOOSERS else {"spec": LEVER}
    env = make(parallel_env, module, **options)
    observations, infos = env.reset(seed=1)
    seen = [(observations[name], infos[name]["action_mask"]) for name in env.agents]
    acted = []
    while env.agents and len(seen) < 60:
        actions = {name: env.action_space(name).sample() for name in env.agents}
        observations, _, _, _, infos = env.step(actions)
        seen += [(observations[name], infos[name]["action_mask"]) for name in infos]
        acted += [infos[name].get("acted", True) for name in infos]

    assert len(forms(seen)) == 1
    assert all(acted) == (module is CHOOSERS)


def test_agents_that_are_not_shown_take_choices_that_are_allowed(make, monkeypatch):
    answers = []

    def step(self, actions):
        answers.append((self.decision, np.asarray(actions)))
        return original(self, actions)

    original, _ = GuestEnv.step, monkeypatch.setattr(GuestEnv, "step", step)
    env = make(parallel_env, CHOOSERS, configure=(4, PICKERS), spawn="hide")
    _, infos = env.reset(seed=1)
    shown = []
    while env.agents:
        shown.append(len(env.agents))
        masks = {name: infos[name]["action_mask"] for name in env.agents}
        chosen = {name: [mask.argmax() for mask in both] for name, both in masks.items()}
        *_, infos = env.step(chosen)

    assert any(len(given) > seen for (_, given), seen in zip(answers, shown, strict=True))
    assert not any(takes_a_masked_choice(*answer) for answer in answers)


def takes_a_masked_choice(decision, actions):
    acting = ~decision.ended
    return any(
        mask[acting][range(len(actions)), actions[:, branch].astype(int)].any()
        for branch, mask in enumerate(decision.masks)
    )


def test_agents_of_other_behaviors_take_choices_that_are_allowed(make, monkeypatch):
    taken = []

    def act(self, batch):
        original(self, batch)
        taken.append((batch.actions.copy(), self.masks.rows.copy()))

    original, _ = ExternalPolicy.act, monkeypatch.setattr(ExternalPolicy, "act", act)
    env = make(GuestEnv, CHOOSERS, configure=(4, BOTH), behaviors=["driver"])
    env.reset(seed=1)
    for _ in range(3):
        env.step(np.zeros((len(env.decision.acting_agents), 3)))
    actions, allowed = taken[0]
    first = actions[:, 0].astype(int)

    assert set(first) == {0, 1}  # 0 is masked in the first cell
    assert allowed[range(len(first)), first].all()


def test_agents_without_a_place_take_choices_that_are_allowed():
    slots = Slots(2)
    slots.acting = np.array([0, -1])
    masks = (np.array([[True, False, False], [True, True, False]]),)
    going = np.zeros(2, bool)
    decision = Decision(
        Behavior("lever", 1, 1, LEVER), np.arange(2, dtype=np.int32), np.zeros((2, 1), np.float32),
        np.zeros(2, np.float32), going, going, going, np.arange(2), masks=masks,
    )  # fmt: skip

    assert slots.chosen(np.ones((2, 1), np.float32), decision).tolist() == [[1], [2]]


def test_masks_of_places_that_are_not_reset_stay(make):
    env = make(
        GuestFleetVectorEnv, CHOOSERS, num_envs=4, configure=(1, PICKERS),
        autoreset_mode="Disabled",
    )  # fmt: skip
    _, before = env.reset(seed=1)
    _, after = env.reset(options={"reset_mask": np.array([True, False, False, False])})

    assert not before["action_mask"][0][1:].all()
    for old, new in zip(before["action_mask"], after["action_mask"], strict=True):
        assert old[1:].tolist() == new[1:].tolist()


@pytest.mark.parametrize(("module", "masks"), [(CHOOSERS, [3, 2]), (NEVER_MASKED, [3])])
def test_a_decision_has_a_mask_for_each_branch(make, module, masks):
    options = {"configure": (2, PICKERS)} if module is CHOOSERS else {"spec": LEVER}
    env = make(GuestEnv, module, **options)
    decision = env.reset(seed=1).decisions[0]
    shapes = []
    for _ in range(5):
        shapes.append([mask.shape for mask in decision.masks])
        waiting = len(decision.acting_agents), decision.behavior.num_actions
        decision = env.step(np.zeros(waiting)).decisions[0]

    assert all([width for _, width in found] == masks for found in shapes)


def test_the_agents_of_a_guest_that_is_over_have_masks(make):
    env = make(GuestEnv, FAILING, spec=LEVER)
    env.reset()
    env.step([[0]])
    (decision,) = env.step([[0]]).decisions

    assert decision.truncated.all()
    assert [mask.tolist() for mask in decision.masks] == [[[False] * 3]]


def test_ml_agents_have_masks_where_agents_decide_as_in_the_original(make):
    env = make(GuestUnityEnv, NEVER_MASKED, spec=LEVER)
    env.reset()
    masks = []
    for _ in range(4):
        masks.append(env.get_steps("script?team=0")[0].action_mask)
        env.step()

    assert [None if found is None else [mask.shape for mask in found] for found in masks] == [
        [(2, 3)], [(2, 3)], [(1, 3)], None,
    ]  # fmt: skip
    assert not any(mask.any() for found in masks for mask in found or ())


def test_ml_agents_have_no_masks_without_branches(make):
    env = make(GuestUnityEnv, NEVER_MASKED)
    env.reset()

    assert env.get_steps("script?team=0")[0].action_mask is None


def test_the_observations_of_agents_that_decide_have_one_form_in_the_wrappers_of_ml_agents(make):
    env = UnityParallelEnv(make(GuestUnityEnv, configure=(2, PICKERS), seed=1))
    observations, _ = env.reset()
    seen = list(observations.values())
    for _ in range(STEPS):
        actions = {name: env.action_space(name).sample() for name in env.agents}
        observations, _, terminated, truncated, _ = env.step(actions)
        seen += [
            value for name, value in observations.items() if not terminated[name] | truncated[name]
        ]
        if not env.agents:
            observations, _ = env.reset()

    assert len(forms(seen)) == 1
    assert set(seen[0]) == {"observation", "action_mask"}


def test_agents_that_take_turns_with_ml_agents_see_masks_while_nothing_is_masked(make):
    env = UnityAECEnv(make(GuestUnityEnv, NEVER_MASKED, spec=LEVER))
    env.reset()
    first = env.last()[0]

    assert [mask.tolist() for mask in first["action_mask"]] == [[False] * 3]


def test_a_player_sends_no_masks_while_nothing_is_masked(make):
    env = make(GuestUnityEnv, NEVER_MASKED, spec=LEVER)
    env.reset()
    deciding, ended = env.get_steps("script?team=0")
    spec = env.behavior_specs["script?team=0"]
    plain = [
        list(sent.action_mask) for sent in agents_to_proto(deciding, ended, spec, AreaIds(0, 1))
    ]
    deciding.action_mask[0][1, 2] = True
    some = [
        list(sent.action_mask) for sent in agents_to_proto(deciding, ended, spec, AreaIds(0, 1))
    ]

    assert plain == [[], []]
    assert some == [[False] * 3, [False, False, True]]
