"""Soft actor-critic: its state and what its numbers are called; JAX compiles its updates."""

from __future__ import annotations

from typing import Any

import numpy as np

from arkml.hive.protocol.settings import Settings
from arkml.learning.compiled_algorithm import ReplayAlgorithm
from arkml.learning.networks import learning_rate
from arkml.learning.normalizer import Normalizer
from arkml.learning.sac_export import SacWeights
from arkml.learning.sac_state import SacRates, first_state, rates_of
from arkml.learning.tensors import mapped


class Sac(ReplayAlgorithm):
    """Soft actor-critic of one run."""

    def __init__(self, settings: Settings, normalizer: Normalizer) -> None:
        """Build the networks. Raises InvalidSettings if there is no such device."""
        super().__init__(settings, normalizer, first_state(settings), _load)

    def weights(self) -> SacWeights:
        """Return a copy of the weights of the present policy and of its critics."""
        networks = mapped(np.array, [self._state.actor, self._state.critics])
        return SacWeights(self._normalizer.current, *networks)

    def _rates(self) -> SacRates:
        return rates_of(self._settings, self._normalizer.current)

    def _tagged(self, *losses: float) -> dict[str, float]:
        actor, critics, temperature, alpha, entropy = losses
        tagged = {
            "train/actor_loss": actor,
            "train/critic_loss": critics,
            "train/ent_coef": alpha,
            "train/entropy": entropy,
            "train/learning_rate": learning_rate(self._settings, self.n_opts - 1),
            "train/n_updates": float(self.n_opts),
        }
        if isinstance(self._settings.alpha, str):
            tagged["train/ent_coef_loss"] = temperature
        return tagged

    def _described(self, *figures: float) -> dict[str, float]:
        """Return the figures by tag, returns in units of plain rewards."""
        q_mean, q_min, q_max, td_error, actor_norm, critic_norm = figures
        unit = self._normalizer.current.reward
        return {
            "train/q_mean": unit * q_mean,
            "train/q_min": unit * q_min,
            "train/q_max": unit * q_max,
            "train/td_error": unit * td_error,
            "train/actor_gradient_norm": actor_norm,
            "train/critic_gradient_norm": critic_norm,
        }


def _load() -> Any:
    from arkml.learning.sac_update import make_updates

    return make_updates
