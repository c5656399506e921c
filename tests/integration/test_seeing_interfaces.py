"""Entities and images in the interfaces of other people's learners, and what they refuse."""

import json
import warnings
from contextlib import closing

import gymnasium as gym
import numpy as np
import onnxruntime
import pytest
import torch
from gymnasium.utils.env_checker import check_env
from gymnasium.wrappers import FlattenObservation, FrameStackObservation, GrayscaleObservation
from pettingzoo.test import parallel_api_test
from stable_baselines3 import PPO
from stable_baselines3.common.vec_env import VecFrameStack, VecTransposeImage
from tests.integration.command_line import GUESTS, arkml

from arkml import evaluate
from arkml.envs.core.guest_env import GuestEnv
from arkml.envs.gymnasium_env import GuestGymEnv
from arkml.envs.llapi.guest_unity_env import GuestUnityEnv
from arkml.envs.llapi.specs import DimensionProperty
from arkml.envs.pettingzoo_env import GuestParallelEnv
from arkml.envs.sb3 import GuestSb3VecEnv
from arkml.envs.vector_env import vector_env
from arkml.errors import InvalidSpec
from arkml.hive.protocol.parts import Part
from arkml.hive.protocol.settings import Settings
from arkml.learning.normalizer import Normalizer
from arkml.learning.ppo import Ppo

SORTER, GALLERY = GUESTS / "c_sorter.wasm", GUESTS / "c_gallery.wasm"
ONE = {"configure": (1, "{seed}")}
NONE, ALONG = DimensionProperty.NONE, DimensionProperty.TRANSLATIONAL_EQUIVARIANCE


def rows_of(module, seed=1, agents=3):
    """The first rows of agents, as the guest has pushed them."""
    with GuestEnv(module, configure=(agents, "{seed}")) as env:
        return env.reset(seed=seed).decisions[0].observations.copy()


@pytest.mark.filterwarnings("ignore:.*A Box observation space (minimum|maximum) value is")
def test_an_environment_shows_entities_behind_their_number_and_zeros_for_the_others():
    env = GuestGymEnv(SORTER, **ONE)
    check_env(env, skip_render_check=True)
    seen, _ = env.reset(seed=3)
    count = int(seen["tiles_count"][0])
    (row,) = rows_of(SORTER, 3, 1)
    flat = gym.spaces.flatten(env.observation_space, seen)
    space = dict(env.observation_space.items())
    env.close()

    assert list(space) == ["me", "tiles_count", "tiles"]
    assert space["tiles_count"] == gym.spaces.Box(0, 20, (1,), np.float32)
    assert space["tiles"].shape == (20, 6)
    assert 2 <= count < 20
    assert seen["tiles"][:count].any(1).all()
    assert not seen["tiles"][count:].any()
    np.testing.assert_array_equal(flat, row)


def test_what_a_guest_leaves_behind_its_entities_is_not_shown():
    spec = {"observations": [{"name": "all", "kind": "entities", "shape": [62, 2]}]}
    env = GuestGymEnv(SORTER, spec=spec, **ONE)  # the first feature is taken for the number
    seen, _ = env.reset(seed=3)
    env.close()

    assert rows_of(SORTER, 3, 1)[0, 1:].any()
    assert seen["all_count"][0] < 1
    assert not seen["all"][1:].any()


def test_an_environment_shows_an_image_as_bytes():
    env = GuestGymEnv(GALLERY, **ONE)
    check_env(env, skip_render_check=True)
    seen, _ = env.reset(seed=3)
    env.close()

    assert env.observation_space == gym.spaces.Box(0, 255, (64, 64, 3), np.uint8)
    assert seen.dtype == np.uint8
    np.testing.assert_array_equal(seen.reshape(-1), rows_of(GALLERY, 3, 1)[0])


def test_wrappers_of_others_take_an_image():
    env = FrameStackObservation(GrayscaleObservation(GuestGymEnv(GALLERY, **ONE)), 4)
    seen, _ = env.reset(seed=3)
    env.close()

    assert (seen.shape, seen.dtype) == ((4, 64, 64), np.uint8)
    assert seen.any()


def test_wrappers_of_others_take_entities():
    env = FlattenObservation(GuestGymEnv(SORTER, **ONE))
    seen, _ = env.reset(seed=3)
    env.close()

    assert seen.shape == (125,)


@pytest.mark.parametrize("module", [SORTER, GALLERY], ids=["entities", "image"])
@pytest.mark.parametrize(
    "options", [{"per": "agent", "configure": (3, "{seed}")}, {"per": "guest", **ONE}]
)
def test_vectors_show_what_one_environment_shows(module, options):
    with vector_env(module, num_envs=3, **options) as envs:
        batch, _ = envs.reset(seed=5)
        actions = envs.action_space.sample()
        after, *_ = envs.step(actions)
        single = envs.single_observation_space
        parts = batch if isinstance(batch, dict) else {"": batch}
        spaces = dict(single.items()) if isinstance(batch, dict) else {"": single}
        is_within = envs.observation_space.contains(after)

    assert is_within
    for name, values in parts.items():
        assert values.shape == (3, *spaces[name].shape)
        assert values.dtype == spaces[name].dtype


@pytest.mark.parametrize("module", [SORTER, GALLERY], ids=["entities", "image"])
def test_pettingzoo_takes_them(module):
    env = GuestParallelEnv(module, configure=(2, "{seed}"))
    parallel_api_test(env, num_cycles=20)
    env.close()


@pytest.mark.parametrize(
    ("module", "policy"), [(SORTER, "MultiInputPolicy"), (GALLERY, "CnnPolicy")]
)
def test_stable_baselines3_learns_from_them(module, policy):
    envs = GuestSb3VecEnv(module, num_envs=2, **ONE)
    model = PPO(policy, envs, n_steps=16, batch_size=16, n_epochs=1, seed=0, device="cpu")
    before = [weight.detach().clone() for weight in model.policy.parameters()]
    model.learn(64)
    after = list(model.policy.parameters())
    is_transposed = isinstance(model.get_env(), VecTransposeImage)
    envs.close()

    assert is_transposed == (policy == "CnnPolicy")
    assert any(not one.equal(other) for one, other in zip(before, after, strict=True))


class _Logits(torch.nn.Module):
    """What a policy of stable-baselines3 says of each choice, by an image as it has it."""

    def __init__(self, policy):
        super().__init__()
        self._policy = policy

    def forward(self, view):
        seen = self._policy.extract_features(view, self._policy.features_extractor)
        return self._policy.action_net(self._policy.mlp_extractor.forward_actor(seen))


def test_a_policy_of_stable_baselines3_comes_home(tmp_path):
    """Its network has the channels first, and the guest has them last."""
    envs = GuestSb3VecEnv(GALLERY, num_envs=2, **ONE)
    options = {"n_steps": 16, "batch_size": 16, "n_epochs": 1, "seed": 0, "device": "cpu"}
    model = PPO("CnnPolicy", envs, learning_rate=1e-2, **options).learn(64)
    envs.close()
    path, view = tmp_path / "walk.onnx", torch.zeros(2, 3, 64, 64)
    names = {"input_names": ["view"], "output_names": ["logits"], "dynamic_axes": {"view": [0]}}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        made = _Logits(model.policy)
        torch.onnx.export(made, view, path, dynamo=False, opset_version=17, **names)

    def predicted(features):
        pixels = np.asarray(features).reshape(-1, 64, 64, 3).astype(np.uint8)
        chosen, _ = model.predict(pixels.transpose(0, 3, 1, 2), deterministic=True)
        return chosen[:, None].astype(np.float32)

    ours = evaluate(GALLERY, path, episodes=16)
    theirs = evaluate(GALLERY, predicted, episodes=16)

    assert list(ours.returns) == list(theirs.returns)
    assert len(set(ours.lengths)) > 1


def test_a_policy_of_several_frames_sees_what_vec_frame_stack_shows():
    """Over the ends of episodes, which agents that always turn come to after 100 steps."""
    part = Part("view", (64, 64, 3), "image")
    of = Settings(part.width, 1, (3,), parts=(part,), hidden=8, frames=4)
    model = Ppo(of, Normalizer(of.features, of.parts, active=True)).policy().model
    session = onnxruntime.InferenceSession(model, providers=["CPUExecutionProvider"])
    envs = VecFrameStack(GuestSb3VecEnv(GALLERY, num_envs=2, **ONE), 4, channels_order="last")
    stacks, past, ended = envs.reset(), np.zeros((2, 3 * part.size), np.float32), 0
    given = {"epsilon": np.zeros((2, 1), np.float32), "action_masks": np.ones((2, 3), np.float32)}
    for _ in range(110):
        view = stacks[..., -3:].astype(np.float32)
        frames = np.concatenate([past.reshape(2, 3, 64, 64, 3), view[:, None]], 1)
        np.testing.assert_array_equal(np.concatenate(list(frames.swapaxes(0, 1)), -1), stacks)
        (past,) = session.run(["frames_out"], given | {"view": view, "frames_in": past})
        stacks, _, over, _ = envs.step(np.ones(2, int))
        past[over] = 0  # as a host does where an episode begins
        ended += over.sum()
    envs.close()

    assert ended == 2


def stepped(module):
    """The spec of ML-Agents, and the observations of two agents."""
    env = GuestUnityEnv(module, configure=(2, "{seed}"), seed=1)
    env.reset()
    ((name, spec),) = env.behavior_specs.items()
    deciding, _ = env.get_steps(name)
    env.set_actions(name, spec.action_spec.random_action(len(deciding)))
    env.step()
    env.close()
    return spec.observation_specs, deciding.obs


def test_ml_agents_sees_entities_as_of_a_buffer_sensor():
    specs, observations = stepped(SORTER)
    me, count, tiles = specs
    rows = observations[2]

    assert [one.name for one in specs] == ["me", "tiles_count", "tiles"]
    assert (me.dimension_property, count.shape) == ((NONE,), (1,))
    assert tiles.shape == (20, 6)
    assert tiles.dimension_property == (DimensionProperty.VARIABLE_SIZE, NONE)
    assert (rows.shape, rows.dtype) == ((2, 20, 6), np.float32)
    counts = observations[1][:, 0]
    np.testing.assert_array_equal(np.square(rows).sum(2).astype(bool).sum(1), counts)


def test_ml_agents_sees_an_image_with_its_channels_first_from_0_to_1():
    (view,), (pixels,) = stepped(GALLERY)

    assert view.shape == (3, 64, 64)
    assert view.dimension_property == (NONE, ALONG, ALONG)
    assert (pixels.shape, pixels.dtype) == ((2, 3, 64, 64), np.float32)
    assert pixels.min() >= 0
    assert pixels.max() <= 1
    np.testing.assert_allclose(pixels * 255, np.rint(pixels * 255), atol=1e-3)


def shown_by_spec(parts):
    """What ML-Agents sees of a row of the sorter by another declaration."""
    env = GuestUnityEnv(SORTER, configure=(1, "{seed}"), seed=1, spec={"observations": parts})
    env.reset()
    ((name, spec),) = env.behavior_specs.items()
    deciding, _ = env.get_steps(name)
    env.close()
    return spec.observation_specs, deciding.obs


def test_ml_agents_sees_a_grid_of_categories_by_one_channel_each():
    parts = [{"name": "rest", "shape": [121]}, {"kind": "grid", "shape": [2, 2], "categories": 3}]
    (_, cells), (_, values) = shown_by_spec(parts)

    assert cells.shape == (3, 2, 2)
    assert values.shape == (1, 3, 2, 2)
    assert {*np.unique(values)} <= {0.0, 1.0}


WRONG = {
    "rank": ({"kind": "entities", "shape": [125]}, "shape [most, features], not [125]"),
    "channels": ({"kind": "image", "shape": [5, 25]}, "shape [height, width, channels]"),
    "sizes": ({"kind": "entities", "shape": [25, 5]}, "126 features, where it has 125"),
    "categories": ({"shape": [125], "categories": 3}, 'only a part of the kind "grid"'),
    "too large": (
        {"kind": "image", "shape": [4096, 4096, 3]},
        "4096 x 4096 x 3 values, and a row has 65,536 features at most",
    ),
    "too many": ({"kind": "entities", "shape": [10_000, 2]}, "10000 entities, and may have 1024"),
    "no kind": ({"kind": "picture", "shape": [125]}, "picture"),
    "zero": ({"kind": "entities", "shape": [0, 2]}, "shape"),
}


@pytest.mark.parametrize(("part", "sentence"), WRONG.values(), ids=WRONG)
def test_parts_that_do_not_add_up_are_refused(part, sentence):
    with (
        pytest.raises(InvalidSpec) as refused,
        GuestEnv(SORTER, spec={"observations": [part]}, **ONE) as env,
    ):
        env.reset(seed=1)

    assert sentence in str(refused.value)


def test_inspect_shows_kinds():
    shown = json.loads(arkml("inspect", str(SORTER), "--json").out)
    sorter = shown["spec"]["behaviors"]["sorter"]

    assert sorter["observations"] == ["me [4]", "tiles entities [20, 6]"]


def test_an_image_is_what_an_environment_renders():
    env = GuestGymEnv(GALLERY, render_mode="rgb_array", **ONE)
    envs = vector_env(GALLERY, num_envs=2, per="guest", render_mode="rgb_array", **ONE)
    both = GuestParallelEnv(GALLERY, configure=(2, "{seed}"), render_mode="rgb_array")
    with closing(env), closing(envs), closing(both):
        seen, _ = env.reset(seed=1)
        each, _ = envs.reset(seed=1)
        views, _ = both.reset(seed=1)

        assert np.array_equal(env.render(), seen.repeat(4, 0).repeat(4, 1))
        for picture, view in zip(envs.render(), each, strict=True):
            assert np.array_equal(picture, view.repeat(4, 0).repeat(4, 1))
        halves = both.render()[64:192, :128], both.render()[64:192, 129:]
    left, right = (view.repeat(2, 0).repeat(2, 1) for view in views.values())
    assert np.array_equal(halves[0], left)
    assert np.array_equal(halves[1], right[:, 1:])
