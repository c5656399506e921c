"""PPO: its policy as ONNX, its rollouts and its state; other modules have its compiled updates."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from arkml.arrays import Marks
from arkml.base.loggers import SafeLogger
from arkml.batches import Floats, chunks
from arkml.hive.protocol.settings import Settings
from arkml.learning.algorithm import Diverged, Layer, PolicyModel, State
from arkml.learning.checkpoint_files import CheckpointDamaged
from arkml.learning.choice_graph import ChoiceGraph, require_choices
from arkml.learning.compiled_algorithm import CompiledAlgorithm
from arkml.learning.encoder_graph import (
    add_places,
    encoder_tensors,
    place_tensors,
    sample_past,
    sample_rows,
    seen_row,
    split_rows,
)
from arkml.learning.encoders import PLAIN, Views, columns_of, encoded, stacked
from arkml.learning.maps import NUMPY
from arkml.learning.networks import RecurrentUnit, answer, doubled, magnitude, mapped, remembered
from arkml.learning.normalizer import Normalizer, Scaling
from arkml.learning.place_choices import Chooser, with_places
from arkml.learning.policy_graph import (
    PolicyGraph,
    Shapes,
    layer_tensors,
    require_close,
    run,
    samples,
    tensors_of,
)
from arkml.learning.ppo_batches import (
    AdvantageScale,
    Chains,
    count_minibatches,
    draw_minibatches,
    generalized_advantages,
    has_choice,
    least_advantage,
    sequence_steps,
    spread_of_returns,
)
from arkml.learning.ppo_plan import is_for_throughput
from arkml.learning.ppo_state import (
    Intake,
    PpoRates,
    RolloutRows,
    RowForm,
    SavedPpo,
    Weights,
    first_state,
    rates_of,
)
from arkml.learning.rollout_buffer import Remembered, Rollout, RolloutBuffer, RolloutPace
from arkml.learning.row_memory import lazy_zeros
from arkml.learning.tensors import Tensors

log = SafeLogger(__name__)

Doubles = npt.NDArray[np.float64]
Places = npt.NDArray[np.int64]

_RATE_STEP, _LEAST_SHARE = 1.5, 0.01  # of the learning rate

CALL_SECONDS = 5.0
"""Seconds of the updates of one call, where all of a rollout take longer."""

_REMEMBERED = "remembered/"
"""Before the names of the tensors of a checkpoint that have what agents remember."""

_CHUNK = 8_192
"""Rows of one call that evaluates, if they have no more than _CHUNK_NUMBERS features."""

_CHUNK_NUMBERS = 1 << 24


class Heads(NamedTuple):
    """
    The outputs of the networks for a batch.

    mean: float32, [n, C]. logits: float32, [n, choices of all branches], without masks. values:
    float32, [n, 1], in the guest's units of reward. memories: float32, [n, memory], the next
    recurrent states.
    """

    mean: Floats
    logits: Floats
    values: Floats
    memories: Floats


ReferenceHeads = Callable[[Floats, Floats, Floats | None], Heads]
"""Computes the outputs of the networks, with the arguments of `PpoWeights.heads`."""


@dataclass(frozen=True, slots=True)
class PpoWeights:
    """
    The weights of a policy of PPO and its normalization, copies that never change.

    Both networks take the normalized features, or the outputs of encoders; a ReLU follows each
    layer but the last.

    Attributes:
        scaling: The scaling of features and rewards.
        actor: The layers whose outputs are the means of the continuous actions, and then the logits
            of all branches, one after another.
        critic: The layers whose one output is the value, in scaled rewards.
        memory: The recurrent unit, whose state the second layers of both networks take, or None.
        log_std: The logarithms of the deviations of the continuous actions: float32, [C].
        branches: The number of choices of each branch.
        views: The parts of a row.
        encoders: The encoders of these parts.
        choosers: What adds to the logits of choices that are places of a grid.

    """

    scaling: Scaling
    actor: tuple[Layer, ...]
    critic: tuple[Layer, ...]
    log_std: Floats
    branches: tuple[int, ...]
    memory: RecurrentUnit | None = None
    views: Views = PLAIN
    encoders: tuple[Any, ...] = ()
    choosers: tuple[Chooser, ...] = ()

    @property
    def memory_size(self) -> int:
        """Number of values in the recurrent state of an agent."""
        return len(self.memory.taken.bias) if self.memory else 0

    @property
    def actions(self) -> int:
        """Number of actions: all continuous ones, and one for each branch."""
        return len(self.log_std) + len(self.branches)

    def heads(self, observations: Floats, memories: Floats, past: Floats | None = None) -> Heads:
        """
        Compute the outputs of the networks in numpy.

        Args:
            observations: float32, [n, F].
            memories: The recurrent states before these rows: float32, [n, memory].
            past: The images before, as of `encoders.columns_of`: float32, [n, past].

        """
        features, inputs = self._seen(observations, past)
        after = memories if self.memory is None else remembered(self.memory, inputs, memories)
        outputs, values = (answer(one, inputs, after) for one in (self.actor, self.critic))
        choosers = self.choosers
        outputs = with_places(NUMPY, self.views, self.branches, choosers, features, outputs)
        mean, logits = np.split(outputs, [len(self.log_std)], axis=1)
        return Heads(mean, logits, values * np.float32(self.scaling.reward), after)

    def tensors(self) -> Tensors:
        """Return the weights that the graph reads, by the names of the graph's tensors."""
        tensors = tensors_of(self.scaling, {"actor": self.actor, "critic": self.critic})
        if self.memory is not None:
            for name in ("encoder", "gates", "taken"):
                tensors |= layer_tensors(name, getattr(self.memory, name))
            tensors |= dict(zip(("cosine", "sine"), self.memory.turns, strict=True))
        tensors |= encoder_tensors(self.views, self.encoders, self.scaling)
        tensors |= place_tensors(self.views, self.choosers)
        return tensors | {"deviation": np.exp(self.log_std)}

    def build(self, graph: PolicyGraph) -> tuple[Shapes, Mapping[str, int]]:
        """
        Add the policy's nodes, including its normalization, to a graph.

        Inputs, float32: `observations`, [N, F], or one for each part of a row by its name, [N,
        *shape], with the number of entities as NAME_count, [N, 1]; `epsilon`, [N, A], standard
        normal numbers or zeros; with branches `action_masks`, [N, choices of all branches], 1 for a
        choice that is allowed and 0 for any other; with memory `h_in`, [N, memory], the `h_out` of
        the agent's previous row, zeros where an episode begins; and with several frames
        `frames_in`, [N, past], the `frames_out` of the previous row, likewise. Outputs, float32:
        `raw_actions`, [N, A], continuous actions mean + deviation * epsilon and then the number of
        the choice in each branch; `actions`, [N, A], with the continuous ones clipped to [-1, 1];
        `values`, [N, 1], in the guest's units of reward; `h_out`; and `frames_out`.

        The choice of a branch is the first whose cumulative probability is above the normal
        distribution function of epsilon, or the likeliest for an epsilon of exactly 0. Only allowed
        choices have a probability; a branch without an allowed choice allows all of them.
        """
        continuous, branches = len(self.log_std), self.branches
        inputs, row = seen_row(graph, self.views, self.encoders, len(self.scaling.mean))
        after = ""
        if self.memory:
            after = graph.remembered(inputs, "h_in", "h_out", self.memory.still)
        outputs = graph.layers(inputs, "actor", beside=after)
        width = continuous + sum(branches)
        outputs = add_places(graph, self.views, branches, outputs, width)
        mean, logits = graph.columns(outputs, (continuous, sum(branches)))
        noise, ranks = graph.columns("epsilon", (continuous, len(branches)))
        raw, clipped = [], []
        if continuous:
            spread = graph.node("Mul", [noise, graph.weight("deviation")])
            drawn = graph.node("Add", [mean, spread])
            bounds = [graph.constant("action_low", -1.0), graph.constant("action_high", 1.0)]
            raw, clipped = [drawn], [graph.node("Clip", [drawn, *bounds])]
        if branches:
            choices = ChoiceGraph(graph, branches).choices(logits, ranks)
            raw, clipped = [*raw, choices], [*clipped, choices]
        graph.node("Concat", raw, "raw_actions", axis=1)
        graph.node("Concat", clipped, "actions", axis=1)
        graph.values(graph.layers(inputs, "critic", beside=after))
        shapes = {**row, "epsilon": self.actions}
        given = {"actions": self.actions, "raw_actions": self.actions, "values": 1}
        if branches:
            shapes["action_masks"] = sum(branches)
        if self.memory:
            shapes["h_in"] = given["h_out"] = self.memory_size
        if self.views.past:
            given["frames_out"] = self.views.past
        return shapes, given

    def check(self, model: bytes, reference: ReferenceHeads | None = None) -> None:
        """
        Compare a model with the learner's networks, at average, typical and extreme observations.

        Raises ExportWrong if answers differ, if the model makes a masked choice, or if its choice
        is not the one at the quantile of epsilon. `reference` is `heads` by default.
        """
        continuous = len(self.log_std)
        observations, epsilon = samples(self.scaling, self.actions)
        observations = sample_rows(self.views, observations)
        shape = (len(observations), self.memory_size)
        memories = np.asarray(np.random.default_rng(2).uniform(-1.0, 1.0, shape), np.float32)
        past = sample_past(self.views, len(observations))
        heads = (reference or self.heads)(observations, memories, past)
        exact = self._exact(observations, memories, past) if self.encoders else heads
        inputs = split_rows(self.views, observations, past) | {"epsilon": epsilon}
        _, scaled = self._seen(observations, past)
        masks = np.ones((len(observations), sum(self.branches)), np.float32)
        if self.branches:
            masks[2:] = np.random.default_rng(1).random(masks[2:].shape) < 0.5
            inputs["action_masks"] = masks
        if self.memory:
            inputs["h_in"] = memories
            (after,) = run(model, inputs, ["h_out"])
            largest = self._magnitude((), scaled)
            require_close("memories", after, heads.memories, largest, exact.memories)
        actions, raw, values = run(model, inputs, ["actions", "raw_actions", "values"])
        deviation = np.exp(self.log_std)
        drawn = np.asarray(heads.mean + deviation * epsilon[:, :continuous], np.float32)
        largest = max(float(np.abs(drawn).max(initial=0.0)), self._magnitude(self.actor, scaled))
        value_scale = self._magnitude(self.critic, scaled) * float(self.scaling.reward)
        doubles = exact.mean + deviation * epsilon[:, :continuous]
        require_close("raw actions", raw[:, :continuous], drawn, largest, doubles)
        clipped = drawn.clip(-1.0, 1.0), largest, doubles.clip(-1.0, 1.0)
        require_close("actions", actions[:, :continuous], *clipped)
        require_close("choices", actions[:, continuous:], raw[:, continuous:], 0.0)
        require_close("values", values, heads.values, value_scale, exact.values)
        require_choices(
            self.branches,
            raw[:, continuous:],
            heads.logits,
            masks,
            epsilon[:, continuous:],
        )

    def _exact(self, observations: Floats, memories: Floats, past: Floats | None) -> Heads:
        """Return the outputs of the networks in float64, as `heads` does in float32."""
        exact = replace(
            self,
            actor=tuple(doubled(list(self.actor))),
            critic=tuple(doubled(list(self.critic))),
            encoders=tuple(doubled(list(self.encoders))),
            choosers=tuple(doubled(list(self.choosers))),
            memory=None if self.memory is None else doubled(self.memory),
        )
        rows, before = doubled([observations, memories])
        return exact.heads(rows, before, past)

    def _seen(self, observations: Floats, past: Floats | None) -> tuple[Floats, Floats]:
        """
        Return normalized features, and the inputs of the networks: float32, [n, F] and [n, inputs].

        The arguments are as for `heads`.
        """
        features, images = columns_of(self.views, observations, past)
        scaled = self.scaling.features(features)
        return scaled, encoded(NUMPY, self.views, self.encoders, scaled, images)

    def _magnitude(self, network: Sequence[Layer], inputs: Floats) -> float:
        """Return the scale of rounding errors of a network, and of memories within 1 of 0."""
        if self.memory is None:
            return magnitude(network, inputs)
        largest = np.ones((len(inputs), self.memory_size), np.float32)
        encoder, gates, taken, _ = self.memory
        within = sum(magnitude((encoder, layer), inputs) for layer in (gates, taken))
        return max(within, magnitude(network, inputs, largest))


class Actor(NamedTuple):
    """A policy version that acted: its weights, in numpy, and the scaling of its features."""

    weights: Weights
    scaling: Scaling


class Sight(NamedTuple):
    """
    The inputs of networks for n rows: features, and images shared between rows.

    features: float32, [n, F], normalized. images: uint8, [m, B], each stored once. frames: int64,
    [n, frames], the indices of the images that belong to each row.
    """

    features: Floats
    images: npt.NDArray[np.uint8]
    frames: Places

    def columns(self, part: slice) -> tuple[npt.NDArray[Any], npt.NDArray[Any]]:
        """Return the features of some rows, and the images that belong to them."""
        return self.features[part], stacked(np, self.images, self.frames[part])


class Ppo(CompiledAlgorithm):
    """
    Proximal policy optimization of one run.

    An update is one step of Adam. A rollout that is full is learned from in `epochs` times as many
    updates as it has minibatches. The next one is full only after the new policy is published.
    """

    is_on_policy = True

    def __init__(self, settings: Settings, normalizer: Normalizer, *, lag: int = 1) -> None:
        """Build the networks. Raises InvalidSettings if there is no such device."""
        super().__init__(settings, normalizer, first_state(settings))
        self.buffer = RolloutBuffer(settings, lag=lag, on_plan=self._follow)
        self.pace = RolloutPace(self.buffer)
        self._weights: Weights = self._state.weights
        self._before = self._weights
        self._exported = Actor(self._weights, normalizer.current)
        self._actors: dict[int, Actor] = {}
        self._advantages = AdvantageScale()
        self._rate_share = 1.0
        self._stale_before = 0
        self._is_preparing = False
        self._size(self.buffer.settings)

    def prepare(self) -> None:
        """
        Begin to compile, unless what to compile depends on the number of agents in the first rows.
        """
        self._is_preparing = True
        if self.buffer.settings.pace != "auto" or self.buffer.agents:
            super().prepare()

    @property
    def is_ready(self) -> bool:
        """True if the rollout is full and the newest policy is published."""
        return self.buffer.is_full and not self.pace.awaits_version

    def train(self, updates: int) -> dict[str, float]:
        """
        Learn from the rollout and return the mean losses by tag. Raises Diverged.

        `updates` is the result of `pace.due`: the updates of all epochs.
        """
        del updates
        settings = self._settings
        rollout = self.buffer.take()
        stale = self.buffer.stale_rows - self._stale_before
        self._stale_before = self.buffer.stale_rows
        stale_share = stale / (stale + len(rollout.following))
        rows, explained, scale = self._prepare(rollout)
        random = self._random.bit_generator.state
        minibatches = draw_minibatches(
            self._random,
            len(rollout.following),
            settings.epochs,
            settings.batch_size,
            steps=sequence_steps(settings),
        )
        rates = rates_of(settings, self.n_opts, self._rate_share)
        outcome = self._updated(self._padded_rows(rows), minibatches, rates)
        try:
            self.advance(outcome, len(minibatches))
        except Diverged:
            self._random.bit_generator.state = random
            raise
        self._advantages = scale
        if rows.chooses.any():  # else there was nothing to move
            self._adapt(float(outcome.losses.last_kl))
        self._begin_rollout()
        return self._tagged(outcome.losses, explained) | {
            "train/learning_rate": float(rates.learning_rate),
            "train/n_updates": float(self.n_opts),
            "train/stale_share": stale_share,
        }

    def policy(self) -> PolicyModel:
        """Return the present policy as ONNX. Raises Diverged and ExportWrong."""
        policy = super().policy()
        self._exported = Actor(self._weights, self._normalizer.current)
        return policy

    def weights(self) -> PpoWeights:
        """Return the weights of the present policy, with its scaling of features and values."""
        scaling, weights = self._normalizer.current, self._weights
        return PpoWeights(
            replace(scaling, reward=scaling.reward * spread_of_returns(self._settings)),
            tuple(weights.actor),
            tuple(weights.critic),
            weights.log_std,
            self._settings.branches,
            weights.memory or None,
            Views.of(self._settings),
            tuple(weights.encoders),
            tuple(weights.choosers),
        )

    def published(self, version: int) -> None:
        """
        Note that the policy exported last has this version, so that its rows can be learned from.
        """
        self._actors[version] = self._exported
        self.buffer.published(version)
        self.pace.awaits_version = False

    def name_metrics(self, names: Sequence[str]) -> None:
        """Set the names of the guest's metrics, which include the names of masks."""
        self.buffer.name_metrics(names)

    def metrics(self) -> Mapping[str, float]:
        """Return how full the rollout is, and how many rows were not learned from."""
        fill = min(1.0, self.buffer.transitions / self._settings.rollout_rows)
        return {
            **super().metrics(),
            "replay/fill": fill,
            "replay/rollout_rows": float(self._settings.rollout_rows),
            "hive/stale_rows": float(self.buffer.stale_rows),
            "hive/excess_rows": float(self.buffer.excess_rows),
        }

    def state(self) -> State:
        """Return a copy of everything that determines the next updates, except the rows."""
        state = super().state()
        if not self._settings.memory:
            return state
        remembered = self.buffer.remembered._asdict()
        named = {_REMEMBERED + name: column for name, column in remembered.items()}
        return State({**state.tensors, **named}, state.plain)

    def restore(self, state: State) -> None:
        """Continue from a state. Raises CheckpointDamaged if it does not fit the run."""
        tensors, memory = dict(state.tensors), self._settings.memory
        remembered = _remembered(tensors, memory) if memory else Remembered.nothing(0)
        super().restore(State(tensors, state.plain))
        self.buffer.expect(remembered)

    def _saved(self) -> SavedPpo:
        return SavedPpo(self._state, self._before)

    def _facts(self) -> dict[str, Any]:
        """Return the policies that act, and the rows that were learned from."""
        buffer = self.buffer
        return {
            "newest": self._scalings(buffer.newest_versions),
            "before": self._scalings(buffer.versions_before),
            "learned_rows": buffer.learned_rows,
            "agents": buffer.agents,
            "episode_steps": buffer.episode_steps,
            "rate_share": self._rate_share,
            "advantages": [self._advantages.variance, self._advantages.weight],
        }

    def _continue(self, saved: SavedPpo, facts: Mapping[str, Any]) -> None:
        current = self._normalizer.current
        features, bound = len(current.mean), current.reward_bound
        newest, before = (
            {
                int(version): Actor(weights, Scaling.from_json(scaling, features, bound))
                for version, scaling in facts[part].items()
            }
            for part, weights in (("newest", saved.newest.weights), ("before", saved.before))
        )
        # Checkpoints of earlier releases have none of these.
        agents, steps = int(facts.get("agents", 0)), float(facts.get("episode_steps", 0.0))
        self._rate_share = float(facts.get("rate_share", 1.0))
        self._advantages = AdvantageScale(*map(float, facts.get("advantages", ())))
        self.buffer.restore(before, int(facts["learned_rows"]), agents, steps)
        for version in newest:
            self.buffer.published(version)
        self._state, self._before = saved
        self._weights = saved.newest.weights
        self._actors = newest | before

    def _scalings(self, versions: Iterable[int]) -> dict[str, Any]:
        return {
            str(version): self._actors[version].scaling.as_json() for version in sorted(versions)
        }

    def _follow(self, settings: Settings) -> None:
        """Learn by the settings for the present number of agents from now on."""
        if settings != self._settings:
            if is_for_throughput(settings, self.buffer.agents):
                log.info(
                    "%s agents: PPO learns for throughput, from rollouts of %s rows, in %d epochs"
                    " and minibatches of %s",
                    f"{self.buffer.agents:,}",
                    f"{settings.rollout_rows:,}",
                    settings.epochs,
                    f"{settings.batch_size:,}",
                )
            self._state = mapped(np.array, self._state)
            self._size(settings)
        if self._is_preparing:
            super().prepare()

    def _size(self, settings: Settings) -> None:
        """Take settings, and the shapes of rollouts that follow from them."""
        self._settings = settings
        fitting = max(1, _CHUNK_NUMBERS // (settings.features * settings.frames))
        self._chunk = min(_CHUNK, fitting, 2 * self.buffer.most)
        per_epoch = count_minibatches(
            self.buffer.most, settings.batch_size, steps=sequence_steps(settings)
        )
        self._most_minibatches = settings.epochs * per_epoch
        self._compiled.clear()
        self._evaluate, self._gates, self._make_updates = self._compile()

    @property
    def _is_wide(self) -> bool:
        """True if updates use all processors; in lockstep bits do not depend on their number."""
        settings = self._settings
        return is_for_throughput(settings, self.buffer.agents) and not settings.sync

    def _compile(self) -> tuple[Any, Any, Any]:
        settings, state = self._settings, self._state
        steps = sequence_steps(settings)
        shape = (self._most_minibatches, settings.batch_size // steps, steps)
        minibatches = np.zeros(shape, np.int32)
        rows = _empty_rows(settings, self.buffer.most, self.buffer.most + self.buffer.most_past)
        self._room = rows
        arguments = (state, rows, minibatches, np.int32(0), np.int32(1), rates_of(settings, 0))
        chunk = _empty_rows(settings, self._chunk, self._chunk)
        views = chunk.features, stacked(np, chunk.images, chunk.frames)
        evaluated = (state.weights, *views, chunk.actions, chunk.allowed, chunk.memories)
        form, wide = RowForm.of(settings), self._is_wide
        return (
            self.compiled(partial(_load, "evaluate", form), *evaluated, wide=wide),
            self.compiled(partial(_load, "take_in", form), state.weights, *views, wide=wide)
            if settings.memory
            else None,
            self.compiled(partial(_load, "make_updates", form), *arguments, wide=wide),
        )

    def _updated(self, rows: RolloutRows, minibatches: Any, rates: PpoRates) -> Any:
        """
        Make an update from each minibatch.

        All of them are one call or, where updates take long, several of about CALL_SECONDS, none of
        which has minibatches of two epochs.
        """
        epochs = self._settings.epochs
        each, calls = self.pace.update_seconds, []
        if not each and self._settings.parts:  # nothing is known yet but that it may take long
            each = CALL_SECONDS
        is_long = each * len(minibatches) > CALL_SECONDS
        state, done, per_epoch = self._state, 0, len(minibatches) // epochs
        while done < len(minibatches):
            left = per_epoch - done % per_epoch
            count = min(left, max(1, int(CALL_SECONDS / each))) if is_long else len(minibatches)
            part, began = minibatches[done : done + count], time.monotonic()
            outcome = self.called(
                self._make_updates,
                state,
                rows,
                _padded(part, self._most_minibatches),
                np.int32(count),
                np.int32(1 if is_long else epochs),
                rates,
            )
            each = (time.monotonic() - began) / count
            is_last = done + count > len(minibatches) - per_epoch
            calls.append((count, is_last, outcome))
            state, done = outcome.state, done + count
            self.at_work()
        return outcome if len(calls) == 1 else _joined(calls)

    def _adapt(self, divergence: float) -> None:
        """
        Lower the learning rate after updates that moved the policy far, and raise it after others.

        That is the rule of rl_games and RSL-RL, once for each rollout. The rate that is set is the
        highest.
        """
        target = self._settings.target_kl
        if not target:
            self._rate_share = 1.0
        elif divergence > 2.0 * target:
            self._rate_share = max(self._rate_share / _RATE_STEP, _LEAST_SHARE)
        elif divergence < target / 2.0:
            self._rate_share = min(self._rate_share * _RATE_STEP, 1.0)

    def _begin_rollout(self) -> None:
        self._before, self._weights = self._weights, mapped(np.array, self._state.weights)
        self.buffer.release()
        self._actors = {v: a for v, a in self._actors.items() if v in self.buffer.versions}
        self.pace.awaits_version = True

    def _prepare(self, rollout: Rollout) -> tuple[RolloutRows, float | None, AdvantageScale]:
        """
        Return the rows to learn from, the explained variance of their returns, and their scale.

        The features of the rollout are normalized where they are, since new memory takes longer.
        With memory the rows are in the order of their chains.
        """
        settings, scaling = self._settings, self._normalizer.current
        gamma = self.buffer.gamma
        count = len(rollout.following)
        present = Actor(self._weights, scaling)
        others = {}  # the rows of other policies, and what these saw
        for version in np.unique(rollout.versions).tolist():
            actor = self._actors[version]
            if actor.weights is present.weights and actor.scaling is present.scaling:
                continue
            acted = np.flatnonzero(rollout.versions == version)
            features = rollout.features[acted]
            actor.scaling.features(features, out=features)
            others[version] = acted, Sight(features, rollout.images, rollout.frames[acted])
        scaling.features(rollout.features, out=rollout.features)
        seen = Sight(rollout.features, rollout.images, rollout.frames)
        memories, chains = rollout.memories, None
        if settings.memory:
            chains = Chains.of(rollout.following, len(seen.features))
            memories = self._recall(chains, seen, memories, present, others)
            self.buffer.remember(memories[count:])
        log_probs, values = self._score(present, seen, rollout.actions, rollout.allowed, memories)
        for version, (acted, theirs) in others.items():
            log_probs[acted], _ = self._score(
                self._actors[version],
                theirs,
                rollout.actions[acted],
                rollout.allowed[acted],
                memories[acted],
            )
        rewards = scaling.rewards(rollout.rewards) / spread_of_returns(settings)
        advantages = generalized_advantages(
            rewards, values, rollout.following, rollout.dones, gamma, settings.gae_lambda
        )
        returns = advantages + values[:count]
        chooses, least = has_choice(settings, rollout.allowed), least_advantage(settings, gamma)
        scale, relative = self._advantages.after(advantages[chooses]), np.zeros(count)
        relative[chooses] = scale.scaled(advantages[chooses], least)
        variance = float(returns.var())
        explained = 1.0 - float(advantages.var()) / variance if variance > 0.0 else None
        rows = RolloutRows(
            seen.features[:count],
            seen.images[: len(seen.images) - (len(seen.features) - count)],
            rollout.actions,
            rollout.allowed,
            chooses,
            log_probs[:count].astype(np.float32),
            relative.astype(np.float32),
            returns.astype(np.float32),
            memories[:count],
            np.zeros(count, bool) if chains is None else chains.begins[:count],
            seen.frames[:count].astype(np.int32),
        )
        if chains is not None:
            order = chains.order[chains.order < count]
            images = rows.images
            rows = RolloutRows(*(column[order] for column in rows))._replace(images=images)
            rows.begins[:: sequence_steps(settings)] = True
        return rows, explained, scale

    def _recall(
        self,
        chains: Chains,
        seen: Sight,
        first: Floats,
        present: Actor,
        others: Mapping[int, tuple[Places, Sight]],
    ) -> Floats:
        """
        Return each agent's recurrent state before each row: float32, [n, memory].

        Args:
            chains: The chains of the rows.
            seen: The rows, normalized for the present policy.
            first: Recurrent states where chains begin: float32, [n, memory].
            present: The policy of all rows that are not in `others`.
            others: The rows of other policies by version, and the inputs of these policies.

        """
        intake = self._take_in(present, seen)
        for version, (acted, theirs) in others.items():
            other = self._take_in(self._actors[version], theirs)
            for column, part in zip(intake, other, strict=True):
                column[acted] = part
        return chains.recalled(intake, first, present.weights.memory.still)

    def _take_in(self, actor: Actor, seen: Sight) -> Intake:
        """
        Return the parameters by which rows, normalized for the actor, change recurrent states.
        """
        rows = len(seen.features)
        shape = (rows, self._settings.memory // 2)
        intake = Intake(*(np.empty(shape, np.float32) for _ in Intake._fields))
        for part in chunks(rows, self._chunk):
            views = (_padded(column, self._chunk) for column in seen.columns(part))
            outcome = self.called(self._gates, actor.weights, *views)
            self.at_work()
            for column, each in zip(intake, outcome, strict=True):
                taken = column[part]
                taken[...] = np.asarray(each)[: len(taken)]
        return intake

    def _score(
        self, actor: Actor, seen: Sight, actions: Floats, allowed: Marks, memories: Floats
    ) -> tuple[Doubles, Doubles]:
        """
        Return log-probabilities and values: float64, [n] both.

        seen: the rows, normalized for the actor. memories: float32, [n, memory]. `actions` and
        `allowed` may have fewer rows; the remaining log-probabilities are meaningless.
        """
        rows = len(seen.features)
        log_probs, values = np.empty(rows), np.empty(rows)
        for part in chunks(rows, self._chunk):
            count = len(log_probs[part])
            columns: Iterable[npt.NDArray[Any]] = (
                *seen.columns(part),
                *(column[part] for column in (actions, allowed, memories)),
            )
            if count < self._chunk or len(actions) < part.stop:
                columns = (_padded(column, self._chunk) for column in columns)
            scored = self.called(self._evaluate, actor.weights, *columns)
            self.at_work()
            log_probs[part], values[part] = (np.asarray(each)[:count] for each in scored)
        return log_probs, values

    def _padded_rows(self, rows: RolloutRows) -> RolloutRows:
        """
        Return rows with as many of each column as an update may have, in memory that is kept.

        New memory takes longer than the copies. The rest has rows of earlier updates, which no
        minibatch names.
        """
        for padded, column in zip(self._room, rows, strict=True):
            padded[: len(column)] = column
        return self._room

    def _tagged(self, losses: Any, explained: float | None) -> dict[str, float]:
        tagged = {
            "train/policy_gradient_loss": float(losses.policy),
            "train/value_loss": float(losses.value),
            "train/entropy_loss": float(losses.entropy),
            "train/loss": float(losses.total),
            "train/approx_kl": float(losses.approx_kl),
            "train/clip_fraction": float(losses.clip_fraction),
            "train/gradient_norm": float(losses.gradient_norm),
        }
        if explained is not None:
            tagged["train/explained_variance"] = explained
        if len(self._weights.log_std):
            tagged["train/std"] = float(np.exp(self._weights.log_std).mean())
        return tagged


def _joined(calls: Sequence[tuple[int, bool, Any]]) -> Any:
    """
    Return several calls as one.

    calls: the number of updates of each, whether it was of the last epoch, and its outcome.
    """
    counts = np.array([count for count, *_ in calls], np.float64)
    of_last = counts * [is_last for _, is_last, _ in calls]
    outcomes = [outcome for *_, outcome in calls]
    columns = np.array([[float(one) for one in outcome.losses] for outcome in outcomes]).T
    losses = outcomes[-1].losses
    means = type(losses)(*(np.average(column, weights=counts) for column in columns))
    divergences = columns[losses._fields.index("last_kl")]
    means = means._replace(last_kl=np.average(divergences, weights=of_last))
    is_finite = all(bool(outcome.is_finite) for outcome in outcomes)
    return outcomes[-1]._replace(losses=means, is_finite=is_finite)


def _remembered(tensors: Tensors, memory: int) -> Remembered:
    """
    Take agents' recurrent states, `memory` numbers each, out of the tensors of a checkpoint.

    Checkpoints of earlier releases have none. Raises CheckpointDamaged.
    """
    nothing = Remembered.nothing(memory)._asdict().items()
    taken = Remembered(*(tensors.pop(_REMEMBERED + name, column) for name, column in nothing))
    numbers, memories = taken
    if (
        numbers.dtype != np.int64
        or memories.dtype != np.float32
        or numbers.ndim != 1
        or memories.shape != (len(numbers), memory)
        or (np.diff(numbers) <= 0).any()
    ):
        raise CheckpointDamaged(
            f"the checkpoint does not fit this run: what agents remember is {memories.dtype},"
            f" {list(memories.shape)}, of rows that are {numbers.dtype}, {list(numbers.shape)}"
        )
    return taken


def _load(name: str, form: RowForm) -> Any:
    from arkml.learning import ppo_update

    return partial(getattr(ppo_update, name), form)


def _empty_rows(settings: Settings, rows: int, images: int) -> RolloutRows:
    """
    Return rows of zeros that begin at pages: XLA reads such memory where it is, and copies other.
    """
    of_rows = partial(lazy_zeros, (rows,))
    return RolloutRows(
        lazy_zeros((rows, settings.numbers), np.float32),
        lazy_zeros((images, settings.images), np.uint8),
        lazy_zeros((rows, settings.actions), np.float32),
        lazy_zeros((rows, sum(settings.branches)), bool),
        of_rows(bool),
        of_rows(np.float32),
        of_rows(np.float32),
        of_rows(np.float32),
        lazy_zeros((rows, settings.memory), np.float32),
        of_rows(bool),
        lazy_zeros((rows, settings.frames), np.int32),
    )


def _padded(column: npt.NDArray[Any], rows: int) -> npt.NDArray[Any]:
    """Return a copy with zeros up to `rows` rows, which no earlier call has read."""
    result = np.zeros((rows, *column.shape[1:]), column.dtype)
    result[: len(column)] = column
    return result
