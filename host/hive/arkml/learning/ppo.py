"""PPO: its rollout, its state, and its updates, which JAX compiles."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from arkml.arrays import Marks
from arkml.batches import Floats, chunks
from arkml.hive.protocol.settings import Settings
from arkml.learning.algorithm import Diverged, PolicyModel
from arkml.learning.compiled_algorithm import CompiledAlgorithm
from arkml.learning.normalizer import Normalizer, Scaling
from arkml.learning.ppo_batches import (
    count_minibatches,
    draw_minibatches,
    generalized_advantages,
    spread_of_returns,
)
from arkml.learning.ppo_export import PpoWeights
from arkml.learning.ppo_state import RolloutRows, SavedPpo, Weights, first_state, rates_of
from arkml.learning.rollout_buffer import Rollout, RolloutBuffer
from arkml.learning.rollout_pace import RolloutPace
from arkml.learning.tensors import mapped

Doubles = npt.NDArray[np.float64]

_CHUNK = 4_096
"""Rows of one call that evaluates."""


class Actor(NamedTuple):
    """A policy that acts: weights, in numpy, and the scaling of the features that they take."""

    weights: Weights
    scaling: Scaling


class _Acting(NamedTuple):
    """The versions of a checkpoint with their scalings, and the rows that were learned from."""

    newest: dict[int, Scaling]
    before: dict[int, Scaling]
    learned_rows: int


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
        self.buffer = RolloutBuffer(settings, lag=lag)
        self.pace = RolloutPace(settings, self.buffer)
        self._weights: Weights = self._state.weights
        self._before = self._weights
        self._exported = Actor(self._weights, normalizer.current)
        self._actors: dict[int, Actor] = {}
        self._stale_before = 0
        self._chunk = min(_CHUNK, 2 * self.buffer.most)
        per_epoch = count_minibatches(self.buffer.most, settings.batch_size)
        self._most_minibatches = settings.epochs * per_epoch
        self._evaluate, self._make_updates = self._compile()

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
        rows, explained = self._prepare(rollout)
        random = self._random.bit_generator.state
        minibatches = draw_minibatches(
            self._random, len(rollout.following), settings.epochs, settings.batch_size
        )
        rates = rates_of(settings, self.n_opts)
        outcome = self._make_updates(
            self._state,
            RolloutRows(*(_padded(column, self.buffer.most) for column in rows)),
            _padded(minibatches, self._most_minibatches),
            np.int32(len(minibatches)),
            rates,
        )
        try:
            self.advance(outcome, len(minibatches))
        except Diverged:
            self._random.bit_generator.state = random
            raise
        self._begin_rollout()
        tagged = self._tagged(outcome.losses, explained, float(rates.learning_rate))
        return tagged | {"train/stale_share": stale_share}

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
            self.n_opts,
        )

    def published(self, version: int) -> None:
        """Learn from rows of this version as rows of the policy that was exported last."""
        self._actors[version] = self._exported
        self.buffer.published(version)
        self.pace.awaits_version = False

    def name_metrics(self, names: Sequence[str]) -> None:
        """Set the names of the guest's metrics, which include the names of masks."""
        self.buffer.name_metrics(names)

    def metrics(self) -> Mapping[str, float]:
        """Return how full the rollout is, and the numbers of rows that were not learned from."""
        fill = min(1.0, self.buffer.transitions / self._settings.rollout_rows)
        return {
            "replay/fill": fill,
            "hive/stale_rows": float(self.buffer.stale_rows),
            "hive/excess_rows": float(self.buffer.excess_rows),
        }

    def _saved(self) -> SavedPpo:
        return SavedPpo(self._state, self._before)

    def _facts(self) -> dict[str, Any]:
        """Return the policies that act, and the rows that were learned from."""
        buffer = self.buffer
        return {
            "newest": self._scalings(buffer.newest_versions),
            "before": self._scalings(buffer.versions_before),
            "learned_rows": buffer.learned_rows,
        }

    def _read(self, plain: Mapping[str, Any]) -> _Acting:
        newest, before = (
            {
                int(version): _scaling_from_json(scaling, self._settings.features)
                for version, scaling in plain[part].items()
            }
            for part in ("newest", "before")
        )
        return _Acting(newest, before, int(plain["learned_rows"]))

    def _continue(self, saved: SavedPpo, found: _Acting) -> None:
        self._state, self._before = saved
        self._weights = self._state.weights
        self._actors = {
            version: Actor(weights, scaling)
            for weights, scalings in (
                (self._weights, found.newest), (self._before, found.before),
            )
            for version, scaling in scalings.items()
        }  # fmt: skip
        self.buffer.restore(found.before, found.learned_rows)
        for version in found.newest:
            self.buffer.published(version)

    def _scalings(self, versions: Iterable[int]) -> dict[str, Any]:
        return {
            str(version): _scaling_as_json(self._actors[version].scaling)
            for version in sorted(versions)
        }

    def _compile(self) -> tuple[Any, Any]:
        settings, state = self._settings, self._state
        minibatches = np.zeros((self._most_minibatches, settings.batch_size), np.int32)
        rows = _empty_rows(settings, self.buffer.most)
        arguments = (state, rows, minibatches, np.int32(0), rates_of(settings, 0))
        evaluated = (state.weights, *_empty_rows(settings, self._chunk)[:3])
        branches = settings.branches
        return (
            self.compiled(partial(_load, "evaluate", branches), *evaluated),
            self.compiled(partial(_load, "make_updates", branches), *arguments),
        )

    def _begin_rollout(self) -> None:
        self._before, self._weights = self._weights, mapped(np.array, self._state.weights)
        self.buffer.release()
        self._actors = {v: a for v, a in self._actors.items() if v in self.buffer.versions}
        self.pace.awaits_version = True

    def _prepare(self, rollout: Rollout) -> tuple[RolloutRows, float | None]:
        """Return the rows to learn from, and the explained variance of their returns."""
        settings, scaling = self._settings, self._normalizer.current
        count = len(rollout.following)
        features = scaling.features(rollout.features)
        present = Actor(self._weights, scaling)
        log_probs, values = self._score(present, features, rollout.actions, rollout.allowed)
        for version in np.unique(rollout.versions).tolist():
            actor = self._actors[version]
            if actor.weights is present.weights and actor.scaling is present.scaling:
                continue
            acted = rollout.versions == version
            scaled = actor.scaling.features(rollout.features[:count][acted])
            log_probs[:count][acted], _ = self._score(
                actor, scaled, rollout.actions[acted], rollout.allowed[acted]
            )
        rewards = scaling.rewards(rollout.rewards) / spread_of_returns(settings)
        advantages = generalized_advantages(
            rewards, values, rollout.following, rollout.dones, settings.gamma, settings.gae_lambda
        )
        returns = advantages + values[:count]
        variance = float(returns.var())
        explained = 1.0 - float(advantages.var()) / variance if variance > 0.0 else None
        rows = RolloutRows(
            features[:count],
            rollout.actions,
            rollout.allowed,
            log_probs[:count].astype(np.float32),
            advantages.astype(np.float32),
            returns.astype(np.float32),
        )
        return rows, explained

    def _score(
        self, actor: Actor, features: Floats, actions: Floats, allowed: Marks
    ) -> tuple[Doubles, Doubles]:
        """
        Return log-probabilities and values: float64, [n] both.

        features: float32, [n, F], normalized. `actions` and `allowed` may have fewer rows than
        `features`; the remaining log-probabilities are meaningless.
        """
        log_probs, values = np.empty(len(features)), np.empty(len(features))
        for part in chunks(len(features), self._chunk):
            columns = (
                _padded(column[part], self._chunk) for column in (features, actions, allowed)
            )
            count = len(features[part])
            scored = self._evaluate(actor.weights, *columns)
            log_probs[part], values[part] = (np.asarray(each)[:count] for each in scored)
        return log_probs, values

    def _tagged(self, losses: Any, explained: float | None, rate: float) -> dict[str, float]:
        tagged = {
            "train/policy_gradient_loss": float(losses.policy),
            "train/value_loss": float(losses.value),
            "train/entropy_loss": float(losses.entropy),
            "train/loss": float(losses.total),
            "train/approx_kl": float(losses.approx_kl),
            "train/clip_fraction": float(losses.clip_fraction),
            "train/gradient_norm": float(losses.gradient_norm),
            "train/learning_rate": rate,
            "train/n_updates": float(self.n_opts),
        }
        if explained is not None:
            tagged["train/explained_variance"] = explained
        if len(self._weights.log_std):
            tagged["train/std"] = float(np.exp(self._weights.log_std).mean())
        return tagged


def _load(name: str, branches: tuple[int, ...]) -> Any:
    from arkml.learning import ppo_update

    return partial(getattr(ppo_update, name), branches)


def _scaling_as_json(scaling: Scaling) -> dict[str, Any]:
    mean, inverse = scaling.mean.tolist(), scaling.inverse.tolist()
    return {"mean": mean, "inverse": inverse, "reward": scaling.reward}


def _scaling_from_json(values: Mapping[str, Any], width: int) -> Scaling:
    mean, inverse = (
        np.array(values[name], np.float32).reshape(width) for name in ("mean", "inverse")
    )
    return Scaling(mean, inverse, float(values["reward"]))


def _empty_rows(settings: Settings, rows: int) -> RolloutRows:
    zeros = partial(np.zeros, dtype=np.float32)
    return RolloutRows(
        zeros((rows, settings.features)),
        zeros((rows, settings.actions)),
        np.zeros((rows, sum(settings.branches)), bool),
        zeros(rows),
        zeros(rows),
        zeros(rows),
    )


def _padded(column: npt.NDArray[Any], rows: int) -> npt.NDArray[Any]:
    """Return a copy with zeros up to `rows` rows, which no earlier call has read."""
    result = np.zeros((rows, *column.shape[1:]), column.dtype)
    result[: len(column)] = column
    return result
