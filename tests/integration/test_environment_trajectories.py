"""What guests show through each interface is what a reference apart from the package says."""

import filecmp
import json
import subprocess
import sys

import numpy as np
import pytest
from tests.integration.command_line import GUESTS, ROOT

from arkml import GuestEnv
from arkml.envs.gymnasium_env import GuestGymEnv
from arkml.envs.gymnasium_vector import GuestVectorEnv
from arkml.envs.llapi.base_env import ActionTuple
from arkml.envs.llapi.exception import UnityCommunicatorStoppedException
from arkml.envs.llapi.guest_unity_env import GuestUnityEnv
from arkml.envs.pettingzoo_env import parallel_env
from arkml.envs.relayrl import GuestScalarEnvironment
from arkml.errors import GuestStalled, GuestTrap

FOLDER = ROOT / "fixtures" / "trajectories"
SCENARIOS = json.loads((FOLDER / "scenarios.json").read_text())


def act(behavior, seen):
    """What `act` of the reference does, on float32."""
    if behavior == "picker":
        cell, target, flag = seen
        return [2.0 if target > cell else 0.0, 1.0 - flag]
    ways = [-0.5 if position > 0 else 0.75 for position in seen[:-1]]
    gear = [1.0 if abs(seen[0]) > 0.5 else 2.0] if behavior == "driver" else []
    return ways + gear


def ones(behavior, seen):
    del seen
    return [1.0] * {"picker": 2, "driver": 3}[behavior]


def recorded(interface):
    """The lines of an interface by scenario, [(name, lines)]."""
    lines = {}
    for text in (FOLDER / f"{interface}.jsonl").read_text().splitlines():
        line = json.loads(text)
        name, at = line.pop("scenario"), line.pop("at")
        assert at == len(lines.setdefault(name, []))
        lines[name].append(line)
    return pytest.mark.parametrize(
        ("name", "expected"), [pytest.param(name, found, id=name) for name, found in lines.items()]
    )


WIDTHS = {"red": 1, "blue": 2, "picker": 2, "driver": 3}  # of actions


def features(observations):
    """An observation, or many, as the guest pushed it: its parts one after another."""
    if isinstance(observations, dict):
        return np.concatenate(list(observations.values()), axis=-1)
    return observations


def declared(behavior, rows):
    """Rows of actions as values of the space that the guest declares."""
    if behavior == "picker":
        return rows.astype(np.int64)
    if behavior == "driver":
        return {"continuous": rows[..., :2], "discrete": rows[..., 2:].astype(np.int64)}
    return rows


def branches_of(info):
    """The masks of an info, taken out of it: for each branch what can be chosen."""
    found = info.pop("action_mask", ())
    if isinstance(found, dict):
        found = found["discrete"]
    return found if isinstance(found, tuple) else (found,)


def masked(branches):
    return [
        f"mask/{branch}/{choice}"
        for branch, allowed in enumerate(branches)
        for choice in np.flatnonzero(np.asarray(allowed) == 0).tolist()
    ]


class Scenario:
    """A guest of the recordings."""

    def __init__(self, name):
        told = SCENARIOS[name]
        kinds = {1: "picker", 2: "driver"}
        is_chooser = told["module"] == "c_choosers"
        self.behavior = kinds.get(told["configure"][1], "") if is_chooser else "red"
        self.module = GUESTS / f"{told['module']}.wasm"
        self.options = {"configure": tuple(told["configure"]), "idle_calls": 50}
        self.seed = told["seed"]
        self.policy = {"act": act, "ones": ones}[told["policy"]]

    def rows(self, behavior, observations):
        """Rows of actions, float32, [n, num_actions], of rows of features."""
        chosen = [self.policy(behavior, seen) for seen in observations]
        return np.array(chosen, np.float32).reshape(len(chosen), WIDTHS[behavior])

    def actions(self, observations):
        """What the agents of a vector do that see this."""
        return declared(self.behavior, self.rows(self.behavior, features(observations)))

    def action(self, observation, behavior=None):
        """What one agent does that sees this."""
        name = behavior or self.behavior
        return declared(name, self.rows(name, [features(observation)])[0])


def ending(step):
    if step.error is None:
        return "done" if step.has_finished else None
    return {GuestTrap: "trap", GuestStalled: "stall"}[type(step.error)]


def plain(info):
    """An info as the reference has it: masks by name, the kind of a failure and not its words."""
    told = dict(info)
    told |= dict.fromkeys(masked(branches_of(told)), 1.0)
    if "error" in told:
        told["error"] = "trap" if "panicked" in told["error"] else "stall"
    return told


def same(found, expected):
    """Compare line by line, so that the first difference is named."""
    for at, (one, other) in enumerate(zip(found, expected, strict=False)):
        assert one == other, f"line {at}"
    assert len(found) == len(expected)


def decision_of(env, decision):
    live = set(env.decision.acting_agents.tolist()) if env.decision is not None else set()
    return {
        "behavior": decision.behavior.name,
        "agents": decision.agents.tolist(),
        "ids": [env.guest_id(n) for n in decision.agents.tolist() if n in live],
        "observations": decision.observations.tolist(),
        "rewards": decision.rewards.tolist(),
        "started": decision.started.tolist(),
        "terminated": decision.terminated.tolist(),
        "truncated": decision.truncated.tolist(),
        "metadata": sorted(
            [[item.row, item.name, item.value] for item in decision.metadata] + masks_of(decision)
        ),
    }


def masks_of(decision):
    """What a decision says that cannot be chosen, as the guest said it."""
    return [
        [int(decision.submit_rows[row]), f"mask/{branch}/{choice}", 1.0]
        for branch, masks in enumerate(decision.masks)
        for row, choice in np.argwhere(masks).tolist()
    ]


@recorded("guest")
def test_the_rows_of_each_submit_are_those_of_the_reference(name, expected):
    scenario = Scenario(name)
    found = []
    with GuestEnv(scenario.module, **scenario.options) as env:
        step = env.reset(scenario.seed)
        while len(found) < len(expected):
            decisions = [decision_of(env, decision) for decision in step.decisions]
            found.append({"over": ending(step), "decisions": decisions})
            if step.has_ended:
                break
            decision = step.decisions[0]
            behavior = decision.behavior
            seen = decision.observations[~decision.ended]
            step = env.step(scenario.rows(behavior.name, seen))

    same(found, expected)


def outcome(observation, reward, terminated, truncated, info):
    return {
        "call": "step", "observation": features(observation).tolist(), "reward": reward,
        "terminated": terminated, "truncated": truncated, "info": info,
    }  # fmt: skip


@recorded("single")
def test_gymnasium_shows_one_agent_from_episode_to_episode(name, expected):
    scenario = Scenario(name)
    found, is_playing, observation = [], False, None
    with GuestGymEnv(scenario.module, **scenario.options) as env:
        for _ in expected:
            if is_playing:
                observation, *rest, info = env.step(scenario.action(observation))
                found.append(outcome(observation, *rest, plain(info)))
                is_playing = not any(rest[1:])
            else:
                observation, info = env.reset(seed=None if found else scenario.seed)
                seen = features(observation).tolist()
                found.append({"call": "reset", "observation": seen, "info": plain(info)})
                is_playing = True

    same(found, expected)


@recorded("single")
def test_relayrl_shows_one_agent_from_episode_to_episode(name, expected):
    scenario = Scenario(name)
    env = GuestScalarEnvironment(scenario.module, seed=scenario.seed, **scenario.options)
    found, is_playing = [], False
    for _ in expected:
        if is_playing:
            step = env.step(scenario.rows(scenario.behavior, [env.build_observation()])[0])
            told = plain(dict(step.info or []))
            marks = step.terminated, step.truncated
            found.append(outcome(step.observation, step.reward, *marks, told))
            is_playing = not any(marks)
        else:
            begun = env.reset()
            seen, told = begun.observation.tolist(), dict(begun.info or [])
            found.append({"call": "reset", "observation": seen, "info": told})
            is_playing = True
    env.close()
    as_text = [
        {**line, "info": {key: value if key == "error" else str(value)
                          for key, value in line["info"].items()}}
        for line in expected
    ]  # fmt: skip

    same(found, as_text)


def said_of(info, count):
    """What a vector's info says of each place by name, taken out of it."""
    names = [name for name in info if f"_{name}" in info]
    said = {name: (info.pop(name), info.pop(f"_{name}")) for name in names}
    return [
        {name: one[place] for name, (one, has) in said.items() if has[place]}
        for place in range(count)
    ]


OF_GUEST = "error", "guest_done", "auto_answered"


def seats(observations, rewards, terminated, truncated, info):
    count, told = len(rewards), dict(info)
    branches = branches_of(told)
    if "final_obs" in told:
        final = told.pop("final_obs"), said_of(told.pop("final_info"), count)
        ended = told.pop("_final_obs") & told.pop("_final_info")
        told["final"] = [
            [features(seen).tolist(), said] if over else None
            for seen, said, over in zip(*final, ended, strict=True)
        ]
    of_guest = {name: told.pop(name) for name in OF_GUEST if name in told}
    for name, values in of_guest.items():  # the same at each place
        assert told.pop(f"_{name}").all()
        assert values.tolist() == [values[0]] * count
    said = said_of(told, count)
    told = plain({**told, **{name: values[0] for name, values in of_guest.items()}})
    return {
        "observations": features(observations).tolist(), "rewards": rewards.tolist(),
        "terminated": terminated.tolist(), "truncated": truncated.tolist(),
        "present": told.pop("present").tolist(), "told": said, "info": told,
        "masks": [masked([branch[place] for branch in branches]) for place in range(count)],
    }  # fmt: skip


def vector_lines(scenario, mode, count):
    envs = GuestVectorEnv(
        scenario.module, autoreset_mode=mode, restart="on-failure", **scenario.options
    )
    nothing = np.zeros(envs.num_envs, np.float32), *np.zeros((2, envs.num_envs), bool)
    observations, info = envs.reset(seed=scenario.seed)
    found = [seats(observations, *nothing, info)]
    while len(found) < count:
        observations, *rest = envs.step(scenario.actions(observations))
        found.append(seats(observations, *rest))
    envs.close()
    return found


@recorded("next_step")
def test_a_vector_environment_shows_a_replacement_in_the_next_step(name, expected):
    same(vector_lines(Scenario(name), "NextStep", len(expected)), expected)


@recorded("same_step")
def test_a_vector_environment_shows_a_replacement_in_the_same_step(name, expected):
    same(vector_lines(Scenario(name), "SameStep", len(expected)), expected)


def pettingzoo_lines(scenario, spawn, count):
    game = parallel_env(scenario.module, spawn=spawn, **scenario.options)
    found = []
    while len(found) < count:
        if not game.agents:
            observations, infos = game.reset(seed=scenario.seed)
            rest = dict.fromkeys(observations, 0.0), *[dict.fromkeys(observations, False)] * 2
            call = "reset"
        else:
            actions = {
                name: scenario.action(observations[name], name.rpartition("/")[0])
                for name in game.agents
            }
            observations, *rest, infos = game.step(actions)
            call = "step"
        told = {}
        for name, seen in observations.items():
            info = plain(infos[name])
            acted = info.pop("acted", True)
            told[name] = [features(seen).tolist(), *(part[name] for part in rest), info, acted]
        found.append({"call": call, "agents": told})
    game.close()
    return found


@recorded("show")
def test_pettingzoo_shows_agents_that_come_later(name, expected):
    same(pettingzoo_lines(Scenario(name), "show", len(expected)), expected)


@recorded("hide")
def test_pettingzoo_hides_agents_that_come_later(name, expected):
    same(pettingzoo_lines(Scenario(name), "hide", len(expected)), expected)


def joined(step):
    return np.concatenate(step.obs).tolist()


def allowed(step):
    """What an agent can choose, for each branch; a mask of ML-Agents says the opposite."""
    return [~mask for mask in step.action_mask or ()]


def steps_of(env, name):
    decide, ended = env.get_steps(name)
    return {
        "decide": [
            [step.agent_id, joined(step), float(step.reward), masked(allowed(step))]
            for step in decide.values()
        ],
        "ended": [
            [step.agent_id, joined(step), float(step.reward), bool(step.interrupted)]
            for step in ended.values()
        ],
    }


@recorded("llapi")
def test_the_api_of_ml_agents_has_rows_that_decide_and_rows_that_ended(name, expected):
    scenario = Scenario(name)
    env = GuestUnityEnv(scenario.module, seed=scenario.seed, **scenario.options)
    found = []
    env.reset()
    for line in expected:
        found.append(
            {"over": False, "behaviors": {b: steps_of(env, b) for b in env.behavior_specs}}
        )
        if line["over"]:
            with pytest.raises(UnityCommunicatorStoppedException):
                env.step()
            found[-1]["over"] = True
            break
        for behavior, spec in env.behavior_specs.items():
            seen = np.concatenate(env.get_steps(behavior)[0].obs, axis=1)
            rows = scenario.rows(behavior.partition("?")[0], seen)
            size = spec.action_spec.continuous_size
            choices = rows[:, size:].astype(np.int32)
            env.set_actions(behavior, ActionTuple(rows[:, :size], choices))
        env.step()
    env.close()

    same(found, expected)


def test_the_recordings_are_those_of_the_reference(tmp_path):
    record = FOLDER / "record.py"
    subprocess.run([sys.executable, str(record), str(tmp_path)], check=True, capture_output=True)
    written = sorted(path.name for path in tmp_path.iterdir())

    assert "guest.jsonl" in written
    assert filecmp.cmpfiles(FOLDER, tmp_path, written, shallow=False) == (written, [], [])
