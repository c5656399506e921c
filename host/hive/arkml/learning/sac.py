"""
Soft actor-critic: its policy as ONNX and its settings; other modules have its compiled updates.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, NamedTuple

import numpy as np

from arkml.batches import Floats
from arkml.hive.protocol.settings import Settings
from arkml.learning.algorithm import Layer
from arkml.learning.compiled_algorithm import ReplayAlgorithm
from arkml.learning.encoder_graph import (
    encoder_tensors,
    sample_past,
    sample_rows,
    seen_row,
    split_rows,
)
from arkml.learning.encoders import PLAIN, Views, columns_of, encoded
from arkml.learning.maps import NUMPY
from arkml.learning.networks import Network, answer, doubled, magnitude, mapped
from arkml.learning.normalizer import Normalizer, Scaling
from arkml.learning.policy_graph import (
    PolicyGraph,
    Shapes,
    require_close,
    run,
    samples,
    tensors_of,
)
from arkml.learning.sac_state import CRITICS, LOG_STD, SacRates, first_state, rates_of
from arkml.learning.tensors import Tensors


class Answer(NamedTuple):
    """
    The answer of a policy to a batch.

    Attributes:
        actions: float32, [n, A].
        values: float32, [n, 1], in the guest's units of reward.
        action_scale: The scale of the rounding errors of actions.
        value_scale: The scale of the rounding errors of values.

    """

    actions: Floats
    values: Floats
    action_scale: float
    value_scale: float


@dataclass(frozen=True, slots=True)
class SacWeights:
    """
    The weights of a policy and its scaling, copies that never change.

    The actor ends in 2 * A outputs: means, then logarithms of deviations. The layers of `critics`
    have the critics along their first axis; they take scaled features and actions. For rows with
    parts (`views`), all networks take the outputs of `encoders`.
    """

    scaling: Scaling
    actor: Network
    critics: Network
    views: Views = PLAIN
    encoders: Sequence[Any] = ()

    @property
    def actions(self) -> int:
        """Number of actions."""
        return len(self.actor[-1].bias) // 2

    def critic(self, number: int) -> Network:
        """Return one of the critics."""
        return [Layer(layer.weight[number], layer.bias[number]) for layer in self.critics]

    def act(self, observations: Floats, epsilon: Floats, past: Floats | None = None) -> Answer:
        """
        Answer a batch in numpy.

        Args:
            observations: Raw observations: float32, [n, F].
            epsilon: Standard normal numbers, or zeros: float32, [n, A].
            past: The images before, as of `encoders.columns_of`: float32, [n, past].

        """
        features, images = columns_of(self.views, observations, past)
        scaled = self.scaling.features(features)
        inputs: Floats = encoded(NUMPY, self.views, self.encoders, scaled, images)
        mean, log_std = np.split(answer(self.actor, inputs), 2, axis=1)
        raw = mean + np.exp(np.clip(log_std, *LOG_STD)) * epsilon
        pair = np.concatenate([inputs, np.tanh(mean)], axis=1)
        critics = [self.critic(number) for number in range(CRITICS)]
        reward = np.float32(self.scaling.reward)
        values = np.minimum(*(answer(critic, pair) for critic in critics)) * reward
        terms = max(magnitude(critic, pair) for critic in critics)
        action_scale = max(float(np.abs(raw).max()), magnitude(self.actor, inputs))
        return Answer(np.tanh(raw), values, action_scale, terms * float(reward))

    def tensors(self) -> Tensors:
        """
        Return the weights that the graph reads, in which the actor's last layer is split into two.
        """
        *body, head = self.actor
        critics = {f"critic_{number}": self.critic(number) for number in range(CRITICS)}
        tensors = tensors_of(self.scaling, {"actor": body, **critics})
        for name, columns in (
            ("mean", slice(self.actions)),
            ("log_std", slice(self.actions, None)),
        ):
            tensors[f"{name}_weight"] = head.weight[:, columns]
            tensors[f"{name}_bias"] = head.bias[columns]
        return tensors | encoder_tensors(self.views, self.encoders, self.scaling)

    def build(self, graph: PolicyGraph) -> tuple[Shapes, Mapping[str, int]]:
        """
        Add the policy's nodes, including its scaling, to a graph.

        Inputs, float32: `observations`, [N, F], or the inputs of `seen_row`, and `epsilon`, [N, A],
        standard normal numbers or zeros. Outputs, float32: `actions`, [N, A], tanh(mean + deviation
        * epsilon), `values`, [N, 1], the lower of the critics' returns for the action without
        epsilon, in the guest's units of reward, and with several frames `frames_out`.
        """
        inputs, shapes = seen_row(graph, self.views, self.encoders, len(self.scaling.mean))
        hidden = graph.layers(inputs, "actor", last=True)
        mean, log_std = graph.linear(hidden, "mean"), graph.linear(hidden, "log_std")
        bounds = [graph.constant(f"log_std_{n}", value) for n, value in enumerate(LOG_STD)]
        deviation = graph.node("Exp", [graph.node("Clip", [log_std, *bounds])])
        noise = graph.node("Mul", [deviation, "epsilon"])
        graph.node("Tanh", [graph.node("Add", [mean, noise])], "actions")
        pair = graph.node("Concat", [inputs, graph.node("Tanh", [mean])], axis=1)
        critics = [graph.layers(pair, f"critic_{number}") for number in range(CRITICS)]
        graph.values(graph.node("Min", critics))
        given = {"actions": self.actions, "values": 1}
        if self.views.past:
            given["frames_out"] = self.views.past
        return {**shapes, "epsilon": self.actions}, given

    def check(self, model: bytes) -> None:
        """
        Compare a model's answers with numpy's, at average, typical and extreme observations.

        Raises ExportWrong.
        """
        observations, epsilon = samples(self.scaling, self.actions)
        observations = sample_rows(self.views, observations)
        past = sample_past(self.views, len(observations))
        expected = self.act(observations, epsilon, past)
        exact = self._exact(observations, epsilon, past) if self.encoders else expected
        inputs = split_rows(self.views, observations, past) | {"epsilon": epsilon}
        actions, values = run(model, inputs, ["actions", "values"])
        require_close("actions", actions, expected.actions, expected.action_scale, exact.actions)
        require_close("values", values, expected.values, expected.value_scale, exact.values)

    def _exact(self, observations: Floats, epsilon: Floats, past: Floats | None) -> Answer:
        """Answer a batch in float64, as `act` does in float32."""
        actor, critics, encoders = doubled([self.actor, self.critics, list(self.encoders)])
        exact = replace(self, actor=actor, critics=critics, encoders=encoders)
        rows, noise = doubled([observations, epsilon])
        return exact.act(rows, noise, past)


class Sac(ReplayAlgorithm):
    """The soft actor-critic algorithm of one run."""

    def __init__(self, settings: Settings, normalizer: Normalizer) -> None:
        """Build the networks. Raises InvalidSettings if there is no such device."""
        load = partial(_load, Views.of(settings), settings.shifts)
        super().__init__(settings, normalizer, first_state(settings), load)

    def weights(self) -> SacWeights:
        """Return a copy of the weights of the present policy and of its critics."""
        state = self._state
        actor, critics, encoders = mapped(np.array, [state.actor, state.critics, state.encoders])
        views = Views.of(self._settings)
        return SacWeights(self._normalizer.current, actor, critics, views, encoders)

    def _rates(self) -> SacRates:
        return rates_of(self._settings, self._normalizer.current)

    def _tagged(self, *losses: float) -> dict[str, float]:
        actor, critics, temperature, alpha, entropy = losses
        tagged = {
            "train/actor_loss": actor,
            "train/critic_loss": critics,
            "train/ent_coef": alpha,
            "train/entropy": entropy,
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


def _load(views: Views, shifts: int) -> Any:
    from arkml.learning.sac_update import make_updates

    return partial(make_updates, views=views, shifts=shifts)
