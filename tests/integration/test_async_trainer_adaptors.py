"""Gymnasium environments, guests and the learner's SAC as parts of the asynchronous trainer."""

import io
import os
import pickle
import signal
import subprocess
import sys
import zipfile
from pathlib import Path

import gymnasium
import numpy as np
import onnxruntime as ort
import pytest
from gymnasium import spaces
from tests.integration.command_line import ENVIRONMENT, GUESTS
from tests.integration.processes_alive import is_running
from tests.integration.test_environment import INITIAL, INTERRUPTED, RUNNING, scripted
from tests.integration.test_environment_fleet import FRAGILE
from tests.integration.test_train_ending import descendants_of
from tests.waiting import eventually

from arkml.async_trainer import ActorManagerConfig, AsyncTrainerConfig, util
from arkml.async_trainer.__main__ import main
from arkml.async_trainer.adaptors.guest_env import AgentsConfig, GuestsConfig
from arkml.async_trainer.adaptors.gymnasium_env import GymnasiumConfig
from arkml.async_trainer.adaptors.sac_agent import POLICY, SacAgent, SacAgentConfig
from arkml.async_trainer.adaptors.sac_rows import (
    SacItem,
    SacReplayBuffer,
    SacReplayBufferConfig,
    SacStepProcessor,
    SacStepProcessorConfig,
)
from arkml.async_trainer.core import DefaultEvaluator, NullRecorder, Sampler, Step
from arkml.envs.core.guest_env import GuestEnv
from arkml.errors import GuestError, InvalidActions, InvalidSettings, UsageError
from arkml.hive.protocol.rows import RowColumns, RowKind
from arkml.hive.protocol.settings import Settings
from arkml.learning.checkpoint_files import CheckpointDamaged
from arkml.learning.normalizer import Normalizer
from arkml.learning.sac import Sac
from arkml.learning.tensors import flatten

SHARED = Path("/dev/shm")
PENDULUM, CARTPOLE = GUESTS / "c_pendulum_plain.wasm", GUESTS / "c_cartpole.wasm"
WALKERS = GUESTS / "c_walkers.wasm"
ONE = {"configure": (1, "{seed}")}
SAME, NEXT, LATER = 1, 2, 3  # when a walker is replaced
NO_FAULT, ONE_MORE = 0, 5  # faults of walkers
SMALL = {"hidden": 8, "batch_size": 16, "memory_max_size": 1_000}
SCALE = np.array([2.4, 3.0, np.deg2rad(12), 3.0])


@pytest.fixture
def build():
    made = []

    def env(config, seed=0):
        made.append(config.builds.build(config, seed))
        return made[-1]

    yield env
    for one in made:
        one.close()


class Coins(gymnasium.Env):
    """An environment of nested observations and choices that ends at once."""

    observation_space = spaces.Dict({"coin": spaces.Discrete(2), "place": spaces.Box(-1, 1, (2,))})
    action_space = spaces.MultiDiscrete([2, 3])

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed, options=options)
        return {"coin": 1, "place": np.zeros(2, "f4")}, {}

    def step(self, action):
        assert action in self.action_space
        return {"coin": 0, "place": np.ones(2, "f4")}, float(action.sum()), True, False, {}


class Letters(gymnasium.Env):
    """An environment whose observations have no fixed size."""

    observation_space = spaces.Sequence(spaces.Discrete(26))
    action_space = spaces.Discrete(2)


def test_gymnasium_environments_step_side_by_side(build):
    env = build(GymnasiumConfig("CartPole-v1", count=3))
    first = env.reset()
    steps = [env.step_with_reset(np.array([1, 0, 1]))[0] for _ in range(30)]

    ends = np.array([step.is_terminated for step in steps])
    fresh = next(step for step in steps if step.is_done)
    assert first.shape == steps[0].obs.shape == (3, 4)
    assert first.dtype == np.float32
    assert (steps[0].reward == 1).all()
    assert ends.any()
    assert all((step.init_obs is not None) == step.is_done for step in steps)
    ended = fresh.is_terminated == 1
    assert (np.abs(fresh.init_obs[ended]) <= 0.05).all()
    assert (fresh.init_obs[~ended] == fresh.obs[~ended]).all()
    assert (np.abs(fresh.obs[ended]).max(axis=1) > 0.2).all()


def test_an_episode_of_a_number_is_always_the_same_one(build):
    env, other = (build(GymnasiumConfig("CartPole-v1", count=2), seed) for seed in (1, 2))

    assert (env.reset_with_index(7) == other.reset_with_index(7)).all()
    assert (env.reset_with_index(7) != env.reset_with_index(8)).any()


def test_environments_of_actors_begin_differently_and_again_alike(build):
    config = GymnasiumConfig("CartPole-v1", count=3)
    firsts = [build(config, seed).reset() for seed in (0, 1, 2)]

    assert len(np.unique(np.concatenate(firsts), axis=0)) == 9
    assert (build(config, 1).reset() == firsts[1]).all()


def test_nested_spaces_are_flattened(build):
    env = build(GymnasiumConfig(Coins, count=2))
    first = env.reset()
    step, _ = env.step(np.array([[1.0, 2.0], [0.0, 1.0]]))

    assert first.tolist() == [[0, 1, 0, 0]] * 2
    assert step.obs.tolist() == [[1, 0, 1, 1]] * 2
    assert step.reward.tolist() == [3, 1]


def test_rescaled_actions_stand_for_the_bounds_of_a_box(build):
    plain, rescaled = (
        build(GymnasiumConfig("Pendulum-v1", rescales=rescales)) for rescales in (False, True)
    )
    plain.reset()
    rescaled.reset()

    expected, _ = plain.step(np.array([[2.0]]))
    found, _ = rescaled.step(np.array([[1.0]]))
    assert found.obs.tolist() == expected.obs.tolist()


@pytest.mark.parametrize(
    ("config", "message"),
    [
        (
            lambda: GymnasiumConfig("CartPole-v1", count=0),
            "count is 0: it takes a whole number from 1",
        ),
        (lambda: GymnasiumConfig(dict), "made dict, not a gymnasium.Env"),
        (lambda: GymnasiumConfig(Letters), "the observations of .* no fixed size"),
        (lambda: GymnasiumConfig("CartPole-v1", rescales=True), "for actions of a Box"),
        (lambda: GuestsConfig(PENDULUM, count=0), "count is 0: it takes a whole number from 1"),
        (lambda: AgentsConfig(PENDULUM, seed=-1), "seed is -1: a whole number from 0"),
        (lambda: GuestsConfig("nowhere.wasm"), "nowhere.wasm' cannot be read"),
        (lambda: AgentsConfig(PENDULUM, {"host": None}), "options has 'host'"),
        (
            lambda: GuestsConfig(WALKERS, {"configure": (2, NEXT, 1, 0, 0)}),
            "and this guest has several",
        ),
    ],
)
def test_environments_that_cannot_be_are_refused(build, config, message):
    with pytest.raises(UsageError, match=message):
        build(config())


@pytest.mark.parametrize("actions", [np.zeros((2, 1)), np.zeros((3, 2)), np.full((3, 1), np.nan)])
def test_actions_that_do_not_fit_guests_are_refused(build, actions):
    env = build(GuestsConfig(PENDULUM, ONE, count=3))
    env.reset()

    with pytest.raises(InvalidActions):
        env.step(actions)
    env.step(np.zeros((3, 1)))


def test_actions_that_do_not_fit_a_gymnasium_environment_are_refused(build):
    env = build(GymnasiumConfig("Pendulum-v1", count=2))
    env.reset()

    with pytest.raises(UsageError, match="1 actions for 2 environments"):
        env.step(np.zeros((1, 1)))
    with pytest.raises(UsageError, match="is not an action of Box"):
        env.step(np.zeros((2, 3)))


@pytest.mark.parametrize("kind", [GuestsConfig, AgentsConfig])
def test_an_episode_of_a_guest_is_followed_by_the_next(build, kind):
    env = build(kind(PENDULUM, ONE))
    first = env.reset()
    steps = [env.step_with_reset(np.full((1, 1), 0.5))[0] for _ in range(201)]

    assert first.shape == (1, 3)
    assert [n for n, step in enumerate(steps) if step.is_done] == [199]
    assert steps[199].is_truncated.tolist() == [1]
    assert steps[199].is_terminated.tolist() == [0]
    assert steps[199].init_obs.shape == (1, 3)
    assert not np.allclose(steps[199].init_obs, steps[199].obs)
    assert not np.allclose(steps[199].init_obs, first)


def test_guests_of_actors_begin_differently_and_again_alike(build):
    config = GuestsConfig(PENDULUM, ONE, count=3)
    firsts = [build(config, seed).reset() for seed in (0, 1)]

    assert len(np.unique(np.concatenate(firsts), axis=0)) == 6
    assert (build(config, 1).reset() == firsts[1]).all()
    assert (build(GuestsConfig(PENDULUM, ONE, seed=1), 1).reset() != firsts[1]).any()
    assert (build(config, 5).reset_with_index(2) == build(config, 6).reset_with_index(2)).all()


def moved(features, actions):
    """The features of cart-poles one step later."""
    _, velocity, angle, speed = (features.astype(float) * SCALE).T
    across, along = np.sin(angle), np.cos(angle)
    push = (10 * np.clip(actions[:, 0], -1, 1) + 0.05 * speed**2 * across) / 1.1
    turn = (9.8 * across - along * push) / (0.5 * (4 / 3 - 0.1 * along**2 / 1.1))
    pull = push - 0.05 * turn * along / 1.1
    return features + 0.02 * np.stack([velocity, pull, speed, turn], axis=1) / SCALE


@pytest.mark.parametrize(
    "config",
    [GuestsConfig(CARTPOLE, ONE, count=5), AgentsConfig(CARTPOLE, {"configure": (5, "{seed}")})],
)
def test_every_transition_of_guests_is_a_step_of_one_agent(build, config):
    env = build(config)
    settings = Settings(4, 1, memory_max_size=20_000)
    buffer = SacReplayBuffer(settings)
    sampler, random = Sampler(env, SacStepProcessor()), RandomActions()
    for _ in range(400):
        sampler.sample_and_push(random, buffer)
    batch = buffer.batch(5_000)

    ended = batch.discounts == 0
    assert 1_800 < sampler.samples < len(buffer) < sampler.samples + 300
    assert sampler.samples - 6 <= buffer.rows.transitions <= sampler.samples
    np.testing.assert_allclose(moved(batch.features, batch.actions), batch.following, atol=1e-4)
    assert 0.01 < ended.mean() < 0.2
    assert (np.abs(batch.following[ended][:, [0, 2]]).max(axis=1) > 1).all()
    assert (np.abs(batch.following[~ended][:, [0, 2]]).max(axis=1) <= 1).all()


class RandomActions:
    def __init__(self):
        self.random = np.random.default_rng(1)

    def sample(self, obs):
        return self.random.uniform(-1, 1, (len(obs), 1)).astype("f4")


@pytest.mark.parametrize(
    "config",
    [
        GuestsConfig(GUESTS / "c_choosers.wasm", {"configure": (1, 1)}, count=3),
        AgentsConfig(GUESTS / "c_choosers.wasm", {"configure": (3, 1)}),
    ],
    ids=["guests", "agents"],
)
def test_masks_that_rows_do_not_have_are_told_once(build, config, caplog):
    env = build(config)
    env.reset(None)
    for _ in range(3):
        env.step(np.ones((3, 2), np.float32))

    assert caplog.text.count("picker masks choices, of which observations of the trainer") == 1


@pytest.mark.parametrize("refill", [SAME, NEXT, LATER])
def test_agents_that_come_and_go_are_stepped(build, refill):
    env = build(AgentsConfig(WALKERS, {"configure": (3, refill, 1, NO_FAULT, 0)}))
    processor, obs = SacStepProcessor(), env.reset()
    processor.reset(obs)
    counts, ends = set(), 0
    for _ in range(40):
        step, _ = env.step_with_reset(np.zeros((len(obs), 1), "f4"))
        item = processor.process(step)
        ends += int((step.is_terminated | step.is_truncated).sum())
        assert len(item) == len(obs) == len(step.obs)
        if step.continues is not None:
            kept = step.continues >= 0
            assert (step.init_obs[kept] == step.obs[step.continues[kept]]).all()
        obs = step.obs if step.init_obs is None else step.init_obs
        counts.add(len(obs))

    assert ends > 10
    assert max(counts) == 3
    assert (min(counts) < 3) == (refill != SAME)


def test_an_agent_that_begins_anew_under_its_id_continues_nothing(build):
    again = scripted(
        [(1, INITIAL, 0)], [(1, INTERRUPTED, 1)], [(1, INITIAL, 0)], [(1, RUNNING, 2)],
        [(1, INTERRUPTED, 3)],
    )  # fmt: skip
    env = build(AgentsConfig(again))
    env.reset()
    first, _ = env.step_with_reset(np.zeros((1, 1), "f4"))
    second, _ = env.step_with_reset(np.zeros((1, 1), "f4"))

    assert (first.is_truncated.tolist(), first.continues.tolist()) == ([1], [-1])
    assert (second.is_done, second.continues) == (False, None)


@pytest.mark.parametrize("refill", [SAME, NEXT, LATER])
def test_the_evaluator_means_the_returns_of_the_agents_that_are_there_first(refill):
    config = AgentsConfig(WALKERS, {"configure": (3, refill, 1, NO_FAULT, 0)})
    evaluator = DefaultEvaluator(config, 0, 1)
    score, _ = evaluator.evaluate(Resting())
    evaluator.close()
    returns = {}
    with GuestEnv(WALKERS, configure=(3, refill, 1, NO_FAULT, 0)) as env:
        decision = env.reset(0).decisions[0]
        playing = set(decision.agents.tolist())
        while playing:
            count = len(decision.acting_agents)
            decision = env.step(np.zeros((count, 1), "f4")).decisions[0]
            for row, agent in enumerate(decision.agents.tolist()):
                if agent in playing:
                    returns[agent] = returns.get(agent, 0.0) + decision.rewards[row]
            playing -= set(decision.agents[decision.ended].tolist())

    assert len(returns) == 3
    assert score == pytest.approx(np.mean(list(returns.values())))


class Resting:
    def sample(self, obs):
        return np.zeros((len(obs), 1), "f4")


def test_an_agent_that_lives_and_is_silent_is_refused(build):
    silent = scripted([(1, INITIAL, 0), (2, INITIAL, 0)], [(1, RUNNING, 0)], [(1, INTERRUPTED, 0)])
    env = build(AgentsConfig(silent))
    obs = env.reset()

    with pytest.raises(UsageError, match="agent 1 lives and is not in this submit"):
        env.step(np.zeros((len(obs), 1), "f4"))


@pytest.mark.parametrize(
    ("config", "message"),
    [
        (AgentsConfig(WALKERS, {"configure": (2, NEXT, 2, NO_FAULT, 0)}), "one behavior"),
        (GuestsConfig(WALKERS, {"configure": (1, NEXT, 1, ONE_MORE, 3)}), "has several"),
    ],
)
def test_a_guest_that_becomes_another_is_refused(build, config, message):
    env = build(config)
    obs = env.reset()

    with pytest.raises((UsageError, GuestError), match=message):
        play(env, obs)


def test_a_guest_that_fails_raises_its_error(build):
    env = build(GuestsConfig(FRAGILE, count=2))
    obs = env.reset_with_index(1)  # with the seeds 2 and 3

    with pytest.raises(GuestError, match="unreachable"):
        play(env, obs)


def play(env, obs):
    for _ in range(6):
        step, _ = env.step_with_reset(np.zeros((len(obs), 1), "f4"))
        obs = step.obs if step.init_obs is None else step.init_obs


def test_configurations_reach_processes_in_other_directories(tmp_path, monkeypatch):
    monkeypatch.chdir(GUESTS)
    configs = [
        GuestsConfig("c_pendulum_plain.wasm", ONE),
        AgentsConfig(PENDULUM.read_bytes()),
        GymnasiumConfig("CartPole-v1", {"max_episode_steps": 7}),
        SacAgentConfig(Settings(3, 1)),
        SacReplayBufferConfig(Settings(3, 1)),
        SacStepProcessorConfig(),
    ]
    monkeypatch.chdir(tmp_path)

    copies = pickle.loads(pickle.dumps(configs))
    assert copies == configs
    env = copies[0].builds.build(copies[0], 0)
    assert env.reset().shape == (1, 3)
    env.close()


def test_another_module_at_the_path_is_refused_with_both_hashes(tmp_path, build):
    path = tmp_path / "guest.wasm"
    path.write_bytes(PENDULUM.read_bytes())
    config = GuestsConfig(path, ONE)
    path.write_bytes(CARTPOLE.read_bytes())

    with pytest.raises(UsageError, match=config.module_hash) as raised:
        build(config)
    assert GuestsConfig(path).module_hash in str(raised.value)


ACTOR = """
import sys
from arkml.async_trainer import util
from arkml.async_trainer.adaptors.guest_env import GuestsConfig
from arkml.async_trainer.adaptors.sac_agent import SacAgent, SacAgentConfig
from arkml.async_trainer.adaptors.sac_rows import SacStepProcessor
from arkml.async_trainer.core import Sampler
from arkml.hive.protocol.settings import Settings

config = GuestsConfig(sys.argv[1], {"configure": (1, "{seed}")})
env = config.builds.build(config, 0)
agent = SacAgent.build(SacAgentConfig(Settings(3, 1)))
agent.seed(0)
agent.train()
items = []
class Buffer:
    def push(self, item):
        items.append(item)
sampler = Sampler(env, SacStepProcessor())
for _ in range(5):
    sampler.sample_and_push(agent, Buffer())
env.close()
print(sorted({"jax", "jaxlib", "onnxruntime", "gymnasium"} & set(sys.modules)), len(items))
"""


def test_an_actor_acts_without_jax():
    ended = subprocess.run(
        [sys.executable, "-c", ACTOR, str(PENDULUM)], capture_output=True, text=True, check=True
    )

    assert ended.stdout == "[] 5\n"


def agent_of(features=3, actions=1, **settings):
    return SacAgent.build(SacAgentConfig(Settings(features, actions, **{**SMALL, **settings})))


def filled(settings, samples=200, seed=0):
    """A buffer with random rows of two environments side by side."""
    random = np.random.default_rng(seed)
    buffer, processor = SacReplayBuffer(settings), SacStepProcessor()
    obs = random.standard_normal((2, settings.features)).astype("f4")
    processor.reset(obs)
    for number in range(samples // 2):
        after, act = (
            random.standard_normal((2, width)).astype("f4")
            for width in (settings.features, settings.actions)
        )
        ended = np.array([number % 10 == 9, number % 7 == 6]).astype("i1")
        step = Step(
            np.tanh(act), after, random.standard_normal(2).astype("f4"), ended, 0 * ended, 0
        )
        if ended.any():
            step.init_obs = np.where(ended[:, None] == 1, -after, after)
        buffer.push(processor.process(step))
        if step.init_obs is not None:
            processor.reset(step.init_obs)
    return buffer


def test_updates_are_those_of_the_learner():
    agent = agent_of()
    settings = agent._settings
    buffer = filled(settings)
    normalizer = Normalizer(3, active=True)
    learner = Sac(settings, normalizer)
    records = np.concatenate(list(buffer._pending))
    columns = RowColumns.empty(len(records), 3, 1)
    for name in ("agent", "step", "state", "reward", "features", "action"):
        getattr(columns, name)[:] = records[name]
    added = learner.buffer.add(0, RowKind.TRAINING, columns)
    normalizer.observe(columns.features, added.returns)
    normalizer.adopt()
    learner.train(16)
    learner.train(16)
    for _ in range(32):
        agent.opt(buffer)

    mine, theirs = flatten(agent._learning()._state), flatten(learner._state)
    assert agent.model_info()[0] == 32
    assert all((mine[name] == theirs[name]).all() for name in theirs)


def test_a_record_has_the_losses_of_the_learner():
    agent = agent_of()
    buffer = filled(agent._settings)
    agent.opt(buffer)

    record = agent.opt_with_record(buffer)
    assert agent.model_info()[0] == record.get_scalar("train/n_updates") == 2
    assert {"train/actor_loss", "train/critic_loss", "train/ent_coef"} <= record.keys()


def test_an_actor_acts_as_the_trainer_does(tmp_path):
    trainer, actor = agent_of(), agent_of(seed=5)
    buffer = filled(trainer._settings)
    for _ in range(20):
        trainer.opt(buffer)
    observations = np.random.default_rng(3).standard_normal((6, 3)).astype("f4") * 3

    n_opts, model = pickle.loads(pickle.dumps(trainer.model_info()))
    actor.sync_model(model)
    trainer.save_params(tmp_path)
    onnx = ort.InferenceSession(tmp_path / POLICY, providers=["CPUExecutionProvider"])
    given = {"observations": observations, "epsilon": np.zeros((6, 1), "f4")}
    assert n_opts == 20
    assert model.scaling.mean.any()
    assert (actor.sample(observations) == trainer.sample(observations)).all()
    np.testing.assert_allclose(
        actor.sample(observations), onnx.run(["actions"], given)[0], atol=1e-5
    )


def test_a_model_that_was_sent_stays_as_it_was():
    trainer = agent_of()
    buffer = filled(trainer._settings)
    _, model = trainer.model_info()
    before = pickle.dumps(model)
    for _ in range(20):
        trainer.opt(buffer)
    trainer.model_info()

    assert pickle.dumps(model) == before


def test_exploration_follows_from_the_seed_of_the_actor():
    observations = np.zeros((4, 3), "f4")
    drawn = []
    for seed in (0, 0, 1):
        agent = agent_of()
        agent.seed(seed)
        agent.train()
        drawn.append(agent.sample(observations))
        agent.eval()
        assert not agent.is_train()
        assert len(np.unique(agent.sample(observations))) == 1

    assert (drawn[0] == drawn[1]).all()
    assert (drawn[0] != drawn[2]).all()
    assert len(np.unique(drawn[0])) == 4
    assert np.abs(drawn[0]).max() < 1


def test_an_agent_continues_from_what_it_saved(tmp_path):
    agent, other = agent_of(), agent_of(seed=9)
    settings = agent._settings
    buffer = filled(settings)
    for _ in range(20):
        agent.opt(buffer)
    files = agent.save_params(tmp_path / "model")
    other.load_params(tmp_path / "model")
    observations = np.ones((1, 3), "f4")

    assert sorted((tmp_path / "model").iterdir()) == sorted(files)
    assert (agent.sample(observations) == other.sample(observations)).all()
    assert other.model_info()[0] == 20


def damaged_archive(method):
    """Return a zip file with one member, whose packed bytes are not of that method."""
    data = io.BytesIO()
    with zipfile.ZipFile(data, "w", method) as archive:
        archive.writestr("plain.npy", bytes(64))
    whole = data.getvalue()
    begin = whole.index(b"plain.npy") + len("plain.npy")
    return whole[:begin] + b"\xff" * 12 + whole[begin + 12 :]


METHODS = [zipfile.ZIP_DEFLATED, zipfile.ZIP_LZMA]
DAMAGED = [b"", b"PK\3\4nothing", pickle.dumps([1]), *map(damaged_archive, METHODS)]


@pytest.mark.parametrize("content", DAMAGED)
def test_a_file_of_parameters_that_is_damaged_is_refused(tmp_path, content):
    (tmp_path / "sac.npz").write_bytes(content)

    with pytest.raises(UsageError, match=r"sac\.npz is not of SacAgent"):
        agent_of().load_params(tmp_path)


def test_a_file_of_parameters_is_not_read_through_a_link(tmp_path):
    agent_of().save_params(tmp_path)
    (tmp_path / "sac.npz").rename(tmp_path / "elsewhere")
    (tmp_path / "sac.npz").symlink_to(tmp_path / "elsewhere")

    with pytest.raises(OSError, match="it is a symbolic link"):
        agent_of().load_params(tmp_path)


def test_parameters_of_other_widths_are_refused(tmp_path):
    agent_of().save_params(tmp_path)

    with pytest.raises(CheckpointDamaged, match="does not fit this run"):
        agent_of(features=4).load_params(tmp_path)


def header_of(shape, dtype="<f4"):
    """The bytes of an array in a NumPy archive, up to its content."""
    data = io.BytesIO()
    fields = {"descr": dtype, "fortran_order": False, "shape": shape}
    np.lib.format.write_array_header_1_0(data, fields)
    return data.getvalue()


@pytest.mark.parametrize(
    ("name", "content", "error", "message"),
    [
        ("more", header_of((1 << 40,)), CheckpointDamaged, "'more' is .* and the run has none"),
        ("n_opts", header_of((1 << 40,)), CheckpointDamaged, "'n_opts' is .* has int32"),
        ("plain", header_of((), f"<U{1 << 28}"), UsageError, "'plain' is not a short text"),
        ("n_opts", header_of((), "|O"), CheckpointDamaged, "'n_opts' is object"),
    ],
)
def test_parameters_are_refused_by_their_headers(tmp_path, name, content, error, message):
    agent = agent_of()
    agent.save_params(tmp_path)
    path = tmp_path / "sac.npz"
    with zipfile.ZipFile(path) as archive:
        members = {member: archive.read(member) for member in archive.namelist()}
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for member, data in (members | {f"{name}.npy": content}).items():
            archive.writestr(member, data)

    with pytest.raises(error, match=message):
        agent.load_params(tmp_path)


def test_parameters_in_a_format_that_unpacks_without_a_limit_are_refused(tmp_path):
    agent = agent_of()
    agent.save_params(tmp_path)
    with zipfile.ZipFile(tmp_path / "sac.npz", "a", zipfile.ZIP_LZMA) as archive:
        archive.writestr("more.npy", header_of((1,)))

    with pytest.raises(UsageError, match="'more' is compressed by the method 14"):
        agent.load_params(tmp_path)


def test_parameters_that_are_a_pipe_are_not_waited_for(tmp_path):
    os.mkfifo(tmp_path / "sac.npz")

    with pytest.raises(OSError, match="it is not a plain file"):
        agent_of().load_params(tmp_path)


def test_settings_that_the_agent_cannot_follow_are_refused():
    with pytest.raises(UsageError, match="SacAgent learns by 'sac'"):
        SacAgentConfig(Settings(3, 2, branches=(4,)))
    with pytest.raises(InvalidSettings, match="hidden"):
        SacAgentConfig(Settings(3, 1, hidden=0))
    with pytest.raises(UsageError, match="threads is 0"):
        SacAgentConfig(Settings(3, 1), threads=0)


def test_steps_that_have_no_place_in_the_buffer_are_refused():
    processor, buffer = SacStepProcessor(), SacReplayBuffer(Settings(3, 1))
    no = np.zeros(1, "i1")

    def step(obs, act=None, rewards=1):
        act = np.zeros((1, 1), "f4") if act is None else act
        return Step(act, obs, np.zeros(rewards, "f4"), no, no, None)

    good = np.zeros((1, 3), "f4")
    with pytest.raises(UsageError, match="was not reset"):
        processor.process(step(good))
    with pytest.raises(UsageError, match=r"shape \(1, 2, 2\): SAC takes"):
        processor.reset(np.zeros((1, 2, 2)))
    processor.reset(good)
    with pytest.raises(UsageError, match="observations are not finite: nan"):
        processor.process(step(np.full((1, 3), np.nan)))
    with pytest.raises(UsageError, match="1 actions, 2 observations"):
        processor.process(step(np.zeros((2, 3))))
    with pytest.raises(UsageError, match="an item of list"):
        buffer.push([1])
    with pytest.raises(UsageError, match="no transition in the replay buffer"):
        buffer.batch(4)
    with pytest.raises(UsageError, match="no transition in the replay buffer"):
        agent_of().opt(buffer)
    processor.process(step(good))
    with pytest.raises(UsageError, match="the actor began with 3 and 1"):
        processor.process(step(good, act=np.zeros((1, 2), "f4")))
    with pytest.raises(UsageError, match=r"shape \(1, 4\): the agent takes"):
        agent_of().sample(np.zeros((1, 4)))


def test_a_buffer_of_other_widths_refuses_items():
    records = filled(Settings(3, 1))._pending[0]

    with pytest.raises(UsageError, match="with 4 features and 1 actions"):
        SacReplayBuffer(Settings(4, 1)).push(SacItem(records, 1))


@pytest.mark.parametrize(
    ("runner", "env"),
    [
        ("threads", GuestsConfig(PENDULUM, ONE, count=2)),
        ("threads", AgentsConfig(PENDULUM, {"configure": (2, "{seed}")})),
        ("processes", GuestsConfig(PENDULUM, ONE, count=2)),
    ],
)
def test_actors_train_a_guest(runner, env):
    settings = Settings(3, 1, **SMALL)
    agent = SacAgentConfig(settings)
    evaluator = DefaultEvaluator(GuestsConfig(PENDULUM, ONE), 0, 1)
    result = util.train_async(
        agent,
        [agent, agent],
        env,
        None,
        SacStepProcessorConfig(),
        SacReplayBufferConfig(settings),
        ActorManagerConfig(n_buffer=5, runner=runner),
        AsyncTrainerConfig(
            max_opts=300, warmup_period=50, eval_interval=150, sync_interval=20,
            updates_per_sample=1,
        ),
        NullRecorder(),
        evaluator,
    )  # fmt: skip
    evaluator.close()

    assert result.agent.model_info()[0] == 300
    assert 300 <= result.samples == sum(stat.env_steps for stat in result.actor_stats)
    assert result.replacements == 0


SHORT = ("--runner", "threads", "--max-opts", 100, "--warmup-period", 50, "--eval-interval", 50)


def test_the_command_trains_and_prints_progress_and_statistics(tmp_path):
    words = (PENDULUM, "--configure", "1,{seed}", *SHORT, "--out", "kept")
    ended = subprocess.run(
        [sys.executable, "-m", "arkml.async_trainer", *map(str, words)],
        capture_output=True,
        text=True,
        cwd=tmp_path,
        check=False,
    )
    lines = ended.stdout.splitlines()

    assert ended.returncode == 0, ended.stderr
    assert "50 of 100 updates  return " in lines[0]
    assert "100 of 100 updates  return " in lines[1]
    assert "opt_steps/sec, duration" in lines[2]
    assert lines[4] == "actor_id, samples, samples/sec, duration"
    assert [line.split(",")[0] for line in lines[5:7]] == ["0", "1"]
    assert (tmp_path / "kept" / "best" / POLICY).stat().st_size > 1_000


@pytest.mark.workers
@pytest.mark.parametrize("runner", ["threads", "processes"])
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_the_command_ends_by_a_signal_with_the_best_policy_and_without_processes(
    tmp_path, runner, number
):
    words = (PENDULUM, "--configure", "1,{seed}", *SHORT, "--max-opts", 10**6)
    shared = set(SHARED.iterdir())
    with subprocess.Popen(
        [sys.executable, "-m", "arkml.async_trainer", *map(str, words), "--runner", runner,
         "--out", tmp_path],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=ENVIRONMENT,
    ) as training:  # fmt: skip
        assert "updates  return" in training.stdout.readline()
        processes = descendants_of(training.pid)
        training.send_signal(number)
        out, err = training.communicate(timeout=300)
    policy = tmp_path / "best" / POLICY

    assert (training.returncode, err) == (128 + number, "")
    assert out.splitlines()[-1] == f"interrupted: the best policy so far is in {policy.parent}"
    assert ort.InferenceSession(policy).get_inputs()
    assert len(processes) == (2 if runner == "processes" else 0)
    eventually(lambda: not any(map(is_running, processes)))
    assert set(SHARED.iterdir()) <= shared


def test_the_command_evaluates_and_keeps_what_has_fewer_updates_than_an_interval(tmp_path, capsys):
    words = (PENDULUM, "--configure", "1,{seed}", *SHORT, "--max-opts", 20, "--out", tmp_path)

    assert main([*map(str, words)]) == 0
    out = capsys.readouterr().out
    assert "20 of 20 updates  return " in out
    assert out.splitlines()[-1] == f"the best policy is in {tmp_path / 'best'}"
    assert (tmp_path / "best" / POLICY).stat().st_size > 1_000


def test_the_command_interrupted_before_it_evaluates_does_not_name_the_policy_of_another(
    tmp_path, monkeypatch, capsys
):
    def interrupt(*_):
        raise KeyboardInterrupt

    (tmp_path / "best").mkdir()
    monkeypatch.setattr("arkml.async_trainer.__main__.train_async", interrupt)
    words = (PENDULUM, "--configure", "1,{seed}", *SHORT, "--out", tmp_path)

    assert main([*map(str, words)]) == 130
    assert "best" not in capsys.readouterr().out


def test_the_command_refuses_a_directory_that_cannot_be_made_before_it_trains(tmp_path, capsys):
    (tmp_path / "file").touch()
    words = (PENDULUM, "--configure", "1,{seed}", *SHORT, "--out", tmp_path / "file")

    assert main([*map(str, words)]) == 2
    assert f"error: --out {words[-1]} cannot be made: File exists" in capsys.readouterr().err


def test_the_command_trains_the_pendulum_of_the_repository_without_a_guest(monkeypatch, capsys):
    monkeypatch.chdir(GUESTS.parents[1])

    assert main([*map(str, SHORT), "--actors", "1"]) == 0
    assert "100 of 100 updates" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ((), "there is no guest at fixtures/guests/c_pendulum_plain.wasm: give the path"),
        (("nowhere.wasm",), "there is no guest at nowhere.wasm"),
        ((PENDULUM, "--actors", 0), "0 is not 1 or more"),
        ((PENDULUM, "--actors", "two"), "argument --actors: 'two' is not a whole number"),
        ((PENDULUM, "--seed", -1), "-1 is not 0 or more"),
        ((PENDULUM, "--configure", "x"), "'x': numbers and {seed} with commas"),
    ],
)
def test_the_command_refuses_words_that_it_does_not_take(
    tmp_path, monkeypatch, capsys, words, message
):
    monkeypatch.chdir(tmp_path)

    with pytest.raises(SystemExit, match="2"):
        main([*map(str, words)])
    assert message in capsys.readouterr().err


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ((PENDULUM,), "error: a fleet has one agent a guest, and this guest has several"),
        ((GUESTS / "c_choosers.wasm", "--configure", "1,1"), "SacAgent learns by 'sac'"),
        ((PENDULUM, "--configure", "1,{seed}", "--updates-per-sample", -1), "updates_per_sample"),
    ],
)
def test_the_command_says_what_it_cannot_train(capsys, words, message):
    assert main([*map(str, (*words, *SHORT))]) == 2
    assert message in capsys.readouterr().err
