"""Soft actor-critic: its rows, its state, and its updates, which JAX compiles."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from arkml.hive.protocol.settings import Settings
from arkml.learning.algorithm import Diverged, Layer, PolicyModel, State
from arkml.learning.batch_block import empty_block, most_batches
from arkml.learning.checkpoints import CheckpointDamaged
from arkml.learning.engine import CompiledAhead, find_device
from arkml.learning.normalizer import Normalizer
from arkml.learning.rate_limiter import MOST_UPDATES, RateLimiter
from arkml.learning.replay_buffer import ReplayBuffer
from arkml.learning.sac_export import SacWeights, export
from arkml.learning.sac_state import first_state, random_key, rates_of
from arkml.learning.tensors import flatten, restored


class Sac:
    """Soft actor-critic of one run. The first policy is ready before JAX is imported."""

    is_on_policy = False

    def __init__(self, settings: Settings, normalizer: Normalizer) -> None:
        """Build the networks. Raises InvalidSettings if there is no such device."""
        self.device = find_device(settings.device)
        self.buffer = ReplayBuffer(
            settings.memory_max_size,
            settings.features,
            settings.actions,
            gamma=settings.gamma,
            masking=settings.use_terminal_masking,
        )
        self.pace = RateLimiter(settings)
        self._settings = settings
        self._normalizer = normalizer
        self._random = np.random.default_rng(settings.seed)
        self._key = random_key(settings.seed)
        self._state = first_state(settings)
        self._updates = 0
        self._figures: Any = None
        shape = (settings.batch_size, settings.features, settings.actions)
        self._block = empty_block(min(MOST_UPDATES, most_batches(*shape)), *shape)
        rates = rates_of(settings, normalizer.current)
        shapes = (self._state, self._block, np.int32(0), self._key, rates)
        self._make_updates = CompiledAhead(_load, shapes, self.device)

    @property
    def n_opts(self) -> int:
        """Updates so far, including updates before a restart."""
        return self._updates

    @property
    def is_ready(self) -> bool:
        """True if the replay buffer holds enough rows for an update."""
        enough = self.buffer.held >= self._settings.memory_min_size
        return enough and self.buffer.transitions > 0

    def prepare(self) -> None:
        """Begin to compile the updates."""
        self._make_updates.begin()

    def train(self, updates: int) -> dict[str, float]:
        """Make `updates` updates and return the losses by tag. Raises Diverged."""
        rates = rates_of(self._settings, self._normalizer.current)
        losses: list[tuple[int, tuple[float, ...]]] = []
        while updates:
            count = min(updates, len(self._block.features))
            self._gather(count)
            outcome = self._make_updates(
                self._state, self._block, np.int32(count), self._key, rates
            )
            if not outcome.is_finite:
                raise Diverged(
                    f"losses or weights are not finite after update {self.n_opts}; these updates"
                    " are not applied"
                )
            self._state = outcome.state
            self._updates += count
            updates -= count
            losses.append((count, tuple(map(float, outcome.losses))))
            self._figures = outcome.figures
        return self._tagged(losses)

    def policy(self) -> PolicyModel:
        """Return the present policy as ONNX. Raises Diverged and ExportWrong."""
        weights = self.weights()
        return PolicyModel(export(weights), self.n_opts)

    def weights(self) -> SacWeights:
        """Return a copy of the weights of the present policy and of its critics."""
        state = self._state
        actor, critics = (
            [Layer(np.array(layer.weight), np.array(layer.bias)) for layer in network]
            for network in (state.actor, state.critics)
        )
        return SacWeights(self._normalizer.current, actor, critics)

    def published(self, version: int) -> None:
        """Do nothing: rows of any version are learned from."""

    def name_metrics(self, names: Sequence[str]) -> None:
        """Do nothing: metrics are not learned from."""

    def metrics(self) -> Mapping[str, float]:
        """Return the figures of the newest update and of the replay buffer."""
        held = self.buffer.held
        return self._tagged_figures() | {
            "replay/fill": held / self._settings.memory_max_size,
            "replay/demonstration_share": self.buffer.demonstrations / held if held else 0.0,
        }

    def state(self) -> State:
        """Return a copy of the networks, optimizers and random generators."""
        plain = {"n_opts": self.n_opts, "random": self._random.bit_generator.state}
        return State(flatten(self._state), plain)

    def restore(self, state: State) -> None:
        """Continue from a state. Raises CheckpointDamaged if it does not fit the run."""
        tensors = restored(self._state, state.tensors)
        try:
            self._random.bit_generator.state = state.plain["random"]
        except (KeyError, ValueError, TypeError) as error:
            raise CheckpointDamaged(f"the checkpoint does not fit this run: {error}") from error
        self._state = tensors
        self._updates = int(tensors.n_opts)

    def _gather(self, count: int) -> None:
        """Fill the first `count` batches of the turn; the updates that read it are complete."""
        settings = self._settings
        slots = self.buffer.draw(self._random, count, settings.batch_size, settings.demo_fraction)
        self.buffer.gather(slots, settings.rollout_length, self._block)

    def _tagged(self, losses: list[tuple[int, tuple[float, ...]]]) -> dict[str, float]:
        if not losses:
            return {}
        counts = [count for count, _ in losses]
        means = np.average([values for _, values in losses], axis=0, weights=counts)
        actor, critics, temperature, alpha, entropy = map(float, means)
        tagged = {
            "train/actor_loss": actor,
            "train/critic_loss": critics,
            "train/ent_coef": alpha,
            "train/entropy": entropy,
            "train/learning_rate": self._learning_rate,
            "train/n_updates": float(self.n_opts),
        }
        if isinstance(self._settings.alpha, str):
            tagged["train/ent_coef_loss"] = temperature
        return tagged

    def _tagged_figures(self) -> dict[str, float]:
        """Return the figures of the newest update by tag, returns in units of plain rewards."""
        if self._figures is None:
            return {}
        q_mean, q_min, q_max, td_error, actor_norm, critic_norm = map(float, self._figures)
        unit = self._normalizer.current.reward
        return {
            "train/q_mean": unit * q_mean,
            "train/q_min": unit * q_min,
            "train/q_max": unit * q_max,
            "train/td_error": unit * td_error,
            "train/actor_gradient_norm": actor_norm,
            "train/critic_gradient_norm": critic_norm,
        }

    @property
    def _learning_rate(self) -> float:
        """The rate of the last update."""
        settings = self._settings
        first, last = settings.learning_rate_init, settings.learning_rate_end
        if not settings.learning_rate_steps:
            return first
        share = 1.0 - (self.n_opts - 1) / settings.learning_rate_steps
        return last + (first - last) * max(0.0, share)


def _load() -> Any:
    from arkml.learning.sac_update import make_updates

    return make_updates
