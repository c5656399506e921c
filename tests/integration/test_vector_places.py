"""Vector environments have the attributes, pictures and resets of Gymnasium's own."""

import gymnasium
import numpy as np
import pytest
from gymnasium.vector import AutoresetMode
from gymnasium.wrappers.vector import DictInfoToList
from tests.integration.command_line import GUESTS
from tests.integration.hostile_environments import GIVES
from tests.integration.test_environment import INITIAL, RUNNING, scripted
from tests.integration.test_environment_fleet import FRAGILE
from tests.integration.test_environment_memory import NAMER

from arkml.envs.core.decisions import Demonstrations
from arkml.envs.gymnasium_fleet import GuestFleetVectorEnv
from arkml.envs.gymnasium_vector import GuestVectorEnv
from arkml.errors import UsageError

CARTPOLE, WALKERS = GUESTS / "c_cartpole.wasm", GUESTS / "c_walkers_seeded.wasm"
PENDULUM = GUESTS / "c_pendulum.wasm"
ONE = {"configure": (1, "{seed}")}
SAME, NEXT = 1, 2
BOTH = pytest.mark.parametrize("kind", [GuestVectorEnv, GuestFleetVectorEnv])


@pytest.fixture
def make():
    made = []

    def env(kind, module=PENDULUM, count=3, **options):
        if kind is GuestFleetVectorEnv:
            options = {"num_envs": count, **ONE, **options}
        else:
            options = {"configure": (count, "{seed}"), **options}
        made.append(kind(module, **options))
        return made[-1]

    yield env
    for one in made:
        one.close()


# Attributes.


@BOTH
def test_the_mode_is_in_the_metadata_and_an_attribute(make, kind):
    envs = make(kind, autoreset_mode="SameStep")

    assert envs.autoreset_mode is envs.metadata["autoreset_mode"] is AutoresetMode.SAME_STEP


@BOTH
def test_attributes_are_those_of_the_environment_for_each_place(make, kind):
    envs = make(kind)

    assert envs.get_attr("render_mode") == (None,) * 3
    assert envs.get_attr("seedable") == (True,) * 3
    assert envs.call("num_envs") == (3,) * 3
    with pytest.raises(AttributeError, match="no attribute 'gravity'"):
        envs.get_attr("gravity")
    with pytest.raises(AttributeError, match="private"):
        envs.get_attr("_mode")


@BOTH
def test_a_method_is_called_once_for_all_places(make, kind):
    envs = make(kind)
    envs.reset(seed=1)

    assert envs.call("send_message", b"\0") == (False,) * 3


@BOTH
def test_an_attribute_is_set_for_all_places_alike(make, kind):
    envs = make(kind)
    pace = envs.get_attr("pace")[0]
    envs.set_attr("render_mode", ["rgb_array"] * 3)

    assert envs.render_mode == "rgb_array"
    assert envs.get_attr("pace") == (pace,) * 3
    with pytest.raises(UsageError, match="share it"):
        envs.set_attr("render_mode", [None, "rgb_array", None])
    with pytest.raises(AttributeError, match="gravity"):
        envs.set_attr("gravity", 1)


# Pictures.


@BOTH
def test_each_place_has_a_picture(make, kind):
    envs = make(kind, render_mode="rgb_array")
    envs.reset(seed=1)
    before = envs.render()
    envs.step(np.ones((3, 1), "f4"))
    after = envs.call("render")

    assert len(before) == len(after) == 3
    assert {picture.shape for picture in before + after} == {(256, 256, 3)}
    assert not any(map(np.array_equal, before, after))
    assert not np.array_equal(after[0], after[1])


@BOTH
def test_nothing_is_drawn_without_a_render_mode(make, kind):
    envs = make(kind)
    envs.reset(seed=1)

    assert envs.render() is None
    with pytest.raises(UsageError, match="'rgb_array'"):
        make(kind, render_mode="human")


def test_an_empty_place_is_blank(make):
    envs = make(GuestVectorEnv, WALKERS, configure=(2, NEXT, 1, 0, 0), num_envs=3,
                render_mode="rgb_array")  # fmt: skip
    envs.reset(seed=1)
    colors = [len(np.unique(picture)) for picture in envs.render()]

    assert colors[2] == 2  # those of the paper
    assert min(colors[:2]) > 2


# Infos.


def told(envs, steps=12):
    """The infos of steps of zeros, a dict for each place, as Gymnasium's own wrapper has them."""
    wrapped = DictInfoToList(envs)
    wrapped.reset(seed=1)
    return [wrapped.step(np.zeros((envs.num_envs, 1), "f4"))[4] for _ in range(steps)]


FAILS, LEAVES = 2, 3  # faults of a walker
TURNS = [(1, INITIAL, 0)], [(1, RUNNING, 1)]


@pytest.mark.parametrize(
    ("kind", "options", "name"),
    [
        (GuestVectorEnv, {"configure": (2, SAME, 1, 0, 0)}, "auto_answered"),
        (GuestVectorEnv, {"configure": (2, NEXT, 1, LEAVES, 4)}, "guest_done"),
        (GuestFleetVectorEnv, {"configure": (1, NEXT, 1, LEAVES, 4)}, "guest_done"),
        (GuestVectorEnv, {"configure": (2, NEXT, 1, FAILS, 3)}, "error"),
        (GuestFleetVectorEnv, {"configure": (1, NEXT, 1, FAILS, 3)}, "error"),
    ],
)
def test_infos_of_guests_have_the_form_of_gymnasium(make, kind, options, name):
    module = GUESTS / "c_walkers.wasm"
    infos = told(make(kind, module, count=2, restart="on-failure", **options))

    said = [[one[name] for one in info] for info in infos if any(name in one for one in info)]
    assert said
    assert all(one == other and one for one, other in said)


@BOTH
def test_demonstrations_are_infos_of_the_guest_that_gave_them(make, kind):
    infos = told(make(kind, GIVES, count=1, configure=None), 2)

    assert [type(info["demonstrations"][0]) for (info,) in infos] == [Demonstrations] * 2


@BOTH
def test_metadata_does_not_take_the_keys_of_the_environment(make, kind):
    guest = NAMER.replace(b"name 0000", b"error\\00\\00\\00\\00")
    configure = {"configure": None}
    named = told(make(kind, NAMER, count=1, **configure), 3)
    infos = told(make(kind, guest, count=1, **configure), 3)

    assert all("name 0001" in info for (info,) in named[:1])
    assert not any("error" in info for (info,) in infos)


@BOTH
@pytest.mark.parametrize("turns", [1, 2], ids=["of a reset", "of a step"])
def test_observations_that_are_changed_in_place_are_not_those_that_end_an_episode(
    make, kind, turns
):
    guest = scripted(*TURNS[:turns], after="unreachable")
    envs = make(kind, guest, count=1, configure=None)
    observations, _ = envs.reset()
    for _ in range(turns - 1):
        observations = envs.step(np.zeros((1, 1), "f4"))[0]
    last = observations.tolist()
    observations[:] = 99
    observations, _, _, truncated, _ = envs.step(np.zeros((1, 1), "f4"))

    assert truncated.all()
    assert observations.tolist() == last


# Resets of some places.


def played(envs, steps, reset):
    """Observations, rewards and ends of `steps` steps of fixed actions."""
    actions = np.random.default_rng(5).uniform(-1, 1, (steps, 4, 1)).astype("f4")
    shown = [envs.reset(seed=3)[0].copy()]
    ends = 0
    for action in actions:
        observations, rewards, terminated, truncated, _ = envs.step(action)
        over = terminated | truncated
        if reset and over.any():
            last = observations.copy()
            observations, _ = envs.reset(options={"reset_mask": over})
            assert np.array_equal(observations[~over], last[~over])
        ends += int(over.sum())
        shown += [observations.copy(), rewards[:, None].copy(), over[:, None]]
    return ends, np.concatenate([np.asarray(part, "f4").ravel() for part in shown])


@pytest.mark.parametrize(
    ("module", "options"),
    [
        (CARTPOLE, ONE),
        (WALKERS, {"configure": (1, SAME, 1, 0, 0)}),
        (WALKERS, {"configure": (1, NEXT, 1, 0, 0)}),
    ],
)
def test_guests_that_are_reset_by_mask_play_as_those_that_reset_themselves(make, module, options):
    options = {"count": 4, **options}
    by_itself = make(GuestFleetVectorEnv, module, autoreset_mode="SameStep", **options)
    by_mask = make(GuestFleetVectorEnv, module, autoreset_mode="Disabled", **options)
    ends, expected = played(by_itself, 80, reset=False)
    ends_by_mask, found = played(by_mask, 80, reset=True)

    assert ends == ends_by_mask > 4
    assert np.array_equal(expected, found)


def test_a_guest_that_ended_waits_for_its_reset(make):
    envs = make(GuestFleetVectorEnv, CARTPOLE, autoreset_mode="Disabled")
    envs.reset(seed=1)
    over = np.zeros(3, bool)
    while not over.any():
        _, _, terminated, truncated, _ = envs.step(np.ones((3, 1), "f4"))
        over = terminated | truncated

    with pytest.raises(gymnasium.error.ResetNeeded, match="reset_mask"):
        envs.step(np.ones((3, 1), "f4"))
    _, info = envs.reset(options={"reset_mask": over})
    envs.step(np.ones((3, 1), "f4"))
    assert info["present"].all()


def test_a_seed_or_a_reset_in_the_middle_of_an_episode_makes_a_new_instance(make):
    envs = make(GuestFleetVectorEnv, autoreset_mode="Disabled")
    first, _ = envs.reset(seed=[7, 8, 9])
    envs.step(np.ones((3, 1), "f4"))
    mask = np.array([True, False, True])
    again, _ = envs.reset(seed=[7, None, 9], options={"reset_mask": mask})
    drawn, _ = envs.reset(options={"reset_mask": mask})

    assert np.array_equal(again[mask], first[mask])
    assert not np.array_equal(again[1], first[1])
    assert not np.array_equal(drawn[0], first[0])
    assert np.array_equal(drawn[1], again[1])


@pytest.mark.parametrize(
    "mask", [None, [True, False, False], np.zeros(3, bool), np.ones(2, bool), np.ones(3)]
)
def test_a_mask_that_is_none_resets_nothing(make, mask):
    envs = make(GuestFleetVectorEnv, autoreset_mode="Disabled")
    envs.reset(seed=1)

    with pytest.raises(UsageError, match="an array of 3 bools"):
        envs.reset(options={"reset_mask": mask})


def test_a_guest_that_failed_starts_over_when_it_is_reset(make):
    envs = make(GuestFleetVectorEnv, FRAGILE, autoreset_mode="Disabled", configure=None)
    envs.reset(seed=1)
    for _ in range(3):
        _, _, _, truncated, info = envs.step(np.zeros((3, 1), "f4"))
        if truncated.any():
            break
    observations, again = envs.reset(options={"reset_mask": truncated})
    envs.step(np.zeros((3, 1), "f4"))

    assert truncated.tolist() == [False, True, False]
    assert info["error"][1] is not None
    assert again["present"].all()
    assert observations[1] != observations[0]  # the turn of the guest


def test_a_mask_wants_a_whole_reset_before_and_its_mode(make):
    mask = {"reset_mask": np.ones(3, bool)}
    with pytest.raises(UsageError, match="as a whole"):
        make(GuestFleetVectorEnv, autoreset_mode="Disabled").reset(options=mask)
    with pytest.raises(UsageError, match="autoreset_mode='Disabled'"):
        make(GuestFleetVectorEnv).reset(options=mask)


def test_agents_of_one_guest_refuse_the_mode_and_the_mask_with_the_reason(make):
    with pytest.raises(UsageError, match="begin the episodes of their agents by themselves"):
        make(GuestVectorEnv, autoreset_mode="Disabled")
    with pytest.raises(UsageError, match="begin the episodes of their agents by themselves"):
        make(GuestVectorEnv).reset(options={"reset_mask": np.ones(3, bool)})
