"""Soft actor-critic: the `train()` of stable-baselines3 on a replay buffer of arkml."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
from gymnasium import spaces
from stable_baselines3 import SAC
from stable_baselines3.common.logger import Logger
from stable_baselines3.common.type_aliases import ReplayBufferSamples
from stable_baselines3.common.vec_env import VecEnv

from arkml.batches import Floats
from arkml.errors import InvalidSettings
from arkml.hive.protocol.settings import Settings
from arkml.learning.algorithm import Answer, Diverged, Layer, PolicyWeights, State
from arkml.learning.checkpoints import CheckpointDamaged
from arkml.learning.normalizer import SPREAD, Normalizer
from arkml.learning.replay_buffer import ReplayBuffer

_LEAST_TEMPERATURE = 1e-3
_SEEDS = 1 << 32  # numpy takes no larger ones


class Sac:
    """Soft actor-critic. The replay buffer must have a transition whenever `train` is called."""

    def __init__(
        self, settings: Settings, replay_buffer: ReplayBuffer, normalizer: Normalizer
    ) -> None:
        """Build the networks. Raises InvalidSettings if torch cannot use the device."""
        if settings.device == "cuda" and not torch.cuda.is_available():
            raise InvalidSettings(
                "device is 'cuda', and torch finds none here: use 'cpu' or 'auto'"
            )
        self._settings = settings
        self._normalizer = normalizer
        self._random = np.random.default_rng(settings.seed)
        self._model = _model(settings)
        self._logger = Logger(None, [])
        self._model.set_logger(self._logger)
        sampler = NormalizedReplayBuffer(
            replay_buffer, normalizer, settings, self._random, self._model.device
        )
        self._model.replay_buffer = sampler  # type: ignore[assignment]

    @property
    def n_opts(self) -> int:
        """Updates so far, including those before a restart."""
        return self._model.updates

    @property
    def device(self) -> str:
        """The device that torch computes on."""
        return str(self._model.device)

    def train(self, updates: int) -> dict[str, float]:
        """Make `updates` updates and return the losses by tag. Raises Diverged."""
        steps = self._settings.learning_rate_steps
        self._model.ramp(max(0.0, 1.0 - self.n_opts / steps) if steps else 1.0)
        self._model.train(updates, self._settings.batch_size)
        losses = {tag: float(value) for tag, value in self._logger.name_to_value.items()}
        self._logger.dump()
        diverged = [tag for tag, value in losses.items() if not math.isfinite(value)]
        if diverged:
            tags = ", ".join(diverged)
            raise Diverged(f"{tags} became {losses[diverged[0]]} at update {self.n_opts}")
        return losses

    def weights(self) -> PolicyWeights:
        """Return a copy of the present policy's weights."""
        actor, critic = self._model.actor, self._model.critic
        return PolicyWeights(
            self._normalizer.current,
            _layers(actor.latent_pi),
            _layer(actor.mu),
            _layer(actor.log_std),
            tuple(_layers(network) for network in critic.q_networks),
            self.n_opts,
        )

    def answer(self, observations: Floats, epsilon: Floats) -> Answer:
        """Answer a batch. observations: float32, [n, F]. epsilon: float32, [n, A]."""
        actor, critic = self._model.actor, self._model.critic
        device = self._model.device
        scaling = self._normalizer.current
        with torch.no_grad():
            inputs = torch.from_numpy(scaling.features(observations)).to(device)
            mean, log_std, _ = actor.get_action_dist_params(inputs)
            raw = mean + log_std.exp() * torch.from_numpy(epsilon).to(device)
            returns = torch.cat(critic(inputs, torch.tanh(mean)), dim=1).amin(1, keepdim=True)
        largest = max(float(raw.abs().max()), float(mean.abs().max()))
        values = returns.cpu().numpy() * np.float32(scaling.reward)
        return Answer(torch.tanh(raw).cpu().numpy(), values, largest)

    def state(self) -> State:
        """Return a copy of the networks, optimizers and random generators."""
        model = self._model
        parts: dict[str, Any] = {name: part.state_dict() for name, part in model.parts().items()}
        if model.log_ent_coef is not None:
            parts["temperature"] = {"log": model.log_ent_coef.detach()}
        tensors = _flat(parts)
        tensors["random"] = torch.get_rng_state().numpy().view(np.uint32)
        plain = {"n_opts": self.n_opts, "random": self._random.bit_generator.state}
        return State(tensors, plain)

    def restore(self, state: State) -> None:
        """Continue from a state. Raises CheckpointDamaged if it does not fit the run."""
        model = self._model
        try:
            parts = _nested(state.tensors)
            for name, part in model.parts().items():
                state_dict = part.state_dict() | parts.get(name, {})
                part.load_state_dict(state_dict)
            if model.log_ent_coef is not None:
                model.log_ent_coef.data.copy_(parts["temperature"]["log"])
            torch.set_rng_state(parts["random"].view(torch.uint8))
            self._random.bit_generator.state = state.plain["random"]
            model.count_from(int(state.plain["n_opts"]))
        except (KeyError, ValueError, TypeError, RuntimeError, OverflowError) as error:
            raise CheckpointDamaged(f"the checkpoint does not fit this run: {error}") from error


class NormalizedReplayBuffer:
    """The replay buffer as `train()` of stable-baselines3 samples it: normalized, as tensors."""

    def __init__(
        self,
        replay_buffer: ReplayBuffer,
        normalizer: Normalizer,
        settings: Settings,
        random: np.random.Generator,
        device: torch.device,
    ) -> None:
        self._replay_buffer = replay_buffer
        self._normalizer = normalizer
        self._settings = settings
        self._random = random
        self._device = device

    def sample(self, batch_size: int, env: Any = None) -> ReplayBufferSamples:
        """
        Draw normalized transitions.

        Tensors, float32: observations and next observations, [n, F], actions, [n, A], dones,
        rewards and discounts, [n, 1]. `env`, by which stable-baselines3 normalizes, is not used.
        """
        del env
        slots = self._replay_buffer.draw(self._random, batch_size, self._settings.demo_fraction)
        drawn = self._replay_buffer.gather(slots, self._settings.rollout_length)
        scaling = self._normalizer.current
        return ReplayBufferSamples(
            self._tensor(scaling.features(drawn.features)),
            self._tensor(drawn.actions),
            self._tensor(scaling.features(drawn.following)),
            self._tensor(drawn.dones[:, None]),
            self._tensor(drawn.rewards[:, None] / np.float32(scaling.reward)),
            self._tensor(drawn.discounts[:, None]),
        )

    def _tensor(self, values: Floats) -> torch.Tensor:
        return torch.from_numpy(values).to(self._device)


class SpacesOnly(VecEnv):
    """An environment with spaces that is never stepped: the rows come from a run."""

    def __init__(self, features: int, actions: int) -> None:
        observed = spaces.Box(-np.inf, np.inf, (features,), np.float32)
        super().__init__(1, observed, spaces.Box(-1.0, 1.0, (actions,), np.float32))

    def reset(self) -> Any:
        raise NotImplementedError(_NEVER)

    def step_async(self, actions: Any) -> None:
        raise NotImplementedError(_NEVER)

    def step_wait(self) -> Any:
        raise NotImplementedError(_NEVER)

    def close(self) -> None:
        """Do nothing."""

    def get_attr(self, attr_name: str, indices: Any = None) -> list[Any]:
        del indices
        return [None] if attr_name == "render_mode" else [getattr(self, attr_name)]

    def set_attr(self, attr_name: str, value: Any, indices: Any = None) -> None:
        raise NotImplementedError(_NEVER)

    def env_method(self, method_name: str, *args: Any, **kwargs: Any) -> list[Any]:
        raise NotImplementedError(_NEVER)

    def env_is_wrapped(self, wrapper_class: Any, indices: Any = None) -> list[bool]:
        del wrapper_class, indices
        return [False]


_NEVER = "rows come from the sessions of a run, not from this environment"


class _Model(SAC):
    """SAC with names for the private fields of stable-baselines3 that are used here."""

    @property
    def updates(self) -> int:
        """Updates so far."""
        return self._n_updates

    def count_from(self, updates: int) -> None:
        """Continue counting after `updates` updates."""
        self._n_updates = updates

    def ramp(self, remaining: float) -> None:
        """Set the remaining share of the learning rate's ramp, from 1 down to 0."""
        self._current_progress_remaining = remaining

    def parts(self) -> dict[str, Any]:
        """Return the modules and optimizers whose state a checkpoint holds."""
        parts: dict[str, Any] = {
            "policy": self.policy,
            "actor_optimizer": self.actor.optimizer,
            "critic_optimizer": self.critic.optimizer,
        }
        if self.ent_coef_optimizer is not None:
            parts["temperature_optimizer"] = self.ent_coef_optimizer
        return parts


def _model(settings: Settings) -> _Model:
    start, end = settings.learning_rate_init, settings.learning_rate_end
    return _Model(
        "MlpPolicy",
        SpacesOnly(settings.features, settings.actions),
        learning_rate=lambda remaining: end + (start - end) * remaining,
        buffer_size=1,
        batch_size=settings.batch_size,
        tau=settings.tau,
        gamma=settings.gamma,
        ent_coef=_temperature(settings),
        policy_kwargs={"net_arch": [settings.hidden] * settings.layers},
        seed=settings.seed % _SEEDS,
        device=settings.device,
    )


def _temperature(settings: Settings) -> float | str:
    """
    Return the `ent_coef` of stable-baselines3.

    It starts a learned temperature at 1, for rewards that are not scaled. Here they are, and the
    temperature would take thousands of updates to come down. It starts where the entropy of a whole
    horizon weighs half as much as the spread of returns.
    """
    if not isinstance(settings.alpha, str):
        return float(settings.alpha)
    if not settings.normalize:
        return "auto"
    weight = SPREAD / 2 * (1.0 - settings.gamma)
    return f"auto_{min(max(weight, _LEAST_TEMPERATURE), 1.0):g}"


def _layers(network: Any) -> tuple[Layer, ...]:
    return tuple(_layer(module) for module in network if isinstance(module, torch.nn.Linear))


def _layer(module: Any) -> Layer:
    return Layer(*(p.detach().cpu().numpy().copy() for p in (module.weight, module.bias)))


def _flat(values: Any, prefix: str = "") -> dict[str, np.ndarray[Any, Any]]:
    """Return the tensors in nested dictionaries by their paths, as copies."""
    if isinstance(values, torch.Tensor):
        return {prefix: values.detach().cpu().numpy().copy()}
    parts = values.items() if isinstance(values, dict) else ()
    return {
        k: v for name, one in parts for k, v in _flat(one, f"{prefix}/{name}".strip("/")).items()
    }


def _nested(tensors: Mapping[str, np.ndarray[Any, Any]]) -> dict[Any, Any]:
    """Return nested dictionaries of tensors, the inverse of `_flat`."""
    parts: dict[Any, Any] = {}
    for path, tensor in tensors.items():
        *folders, name = path.split("/")
        part = parts
        for folder in folders:
            part = part.setdefault(int(folder) if folder.isdecimal() else folder, {})
        part[name] = torch.from_numpy(tensor.copy())
    return parts
