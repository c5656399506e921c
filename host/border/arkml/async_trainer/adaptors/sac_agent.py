"""Soft actor-critic as an agent: numpy acts, and JAX learns in the trainer's process."""

from __future__ import annotations

import io
import json
import sys
import zipfile
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple, Self

import numpy as np
import numpy.typing as npt

from arkml.arrays import real_array
from arkml.async_trainer.adaptors.sac_rows import SacReplayBuffer
from arkml.async_trainer.core.agent import Agent
from arkml.async_trainer.core.record import Record
from arkml.async_trainer.sync_model import SyncModel
from arkml.base.files import open_inside, write_atomic
from arkml.base.short_reprs import cut_repr, cut_text
from arkml.batches import Floats
from arkml.demonstrations.npz_arrays import DAMAGE, archived_array, open_archive
from arkml.errors import UsageError
from arkml.hive.protocol.settings import Settings
from arkml.learning.algorithm import State
from arkml.learning.checkpoint_files import CheckpointDamaged
from arkml.learning.networks import Network, answer
from arkml.learning.normalizer import Normalizer, Scaling
from arkml.learning.sac_state import LOG_STD, first_state

if TYPE_CHECKING:
    from arkml.learning.sac import Sac

PARAMETERS = "sac.npz"
"""File with the whole state of learning except the rows."""

POLICY = "policy.onnx"
"""File with the policy, for `arkml run GUEST --policy`."""

_PLAIN = "plain"
_MOST_PLAIN = 64 << 20  # bytes
_TOGETHER = 16


class SacModel(NamedTuple):
    """
    A policy without critics, for sending to the actors.

    The network takes scaled features and has 2 * A outputs: means, then logarithms of deviations.
    """

    scaling: Scaling
    actor: Network


class SacAgent(Agent, SyncModel):
    """
    Soft actor-critic with the settings, networks and updates of the hive's learner.

    It learns from a `SacReplayBuffer`. Observations are float32, [n, features]; actions are
    float32, [n, actions], within [-1, 1]. Each `model_info` updates the statistics that scale
    features and rewards, as each published policy of a hive does. The first `model_info` or
    optimization step imports JAX, so actors do without it.

    A call of compiled code costs as much as an update, so `opt` collects steps and makes 16 of them
    in one call, or fewer if something reads their result.
    """

    @classmethod
    def build(cls, config: SacAgentConfig) -> Self:
        """Build an agent before its first optimization step."""
        return cls(config)

    def __init__(self, config: SacAgentConfig) -> None:
        settings = self._settings = config.settings
        self._threads = config.threads
        self._normalizer = Normalizer(settings.features, active=settings.normalize)
        self._model = SacModel(self._normalizer.current, first_state(settings).actor)
        self._acts_as = 0
        self._learner: Sac | None = None
        self._buffer: SacReplayBuffer | None = None
        self._due = 0  # number of queued optimization steps
        self._random = np.random.default_rng(settings.seed)
        self._is_train = False

    def train(self) -> None:
        """Switch to training: `sample` explores."""
        self._is_train = True

    def eval(self) -> None:
        """Switch to evaluation: `sample` returns the mode of the policy."""
        self._is_train = False

    def is_train(self) -> bool:
        """Return True in training."""
        return self._is_train

    def seed(self, seed: int) -> None:
        """Set the seed of the exploration noise."""
        self._random = np.random.default_rng([self._settings.seed, seed])

    def sample(self, obs: Any) -> Floats:
        """
        Return actions, float32, [n, actions], for observations, [n, features].

        Raises UsageError for observations of another shape.
        """
        try:
            observations = real_array(obs).astype(np.float32, copy=False)
        except (TypeError, ValueError):
            raise UsageError(f"observations are {cut_repr(obs)}: the agent takes numbers") from None
        if observations.ndim != 2 or observations.shape[1] != self._settings.features:
            raise UsageError(
                f"observations have the shape {observations.shape}: the agent takes"
                f" [environments, {self._settings.features}]"
            )
        model = self._current()
        outputs = answer(model.actor, model.scaling.features(observations))
        mean = outputs[:, : self._settings.actions]
        if not self._is_train:
            return np.tanh(mean)
        deviation = np.exp(np.clip(outputs[:, self._settings.actions :], *LOG_STD))
        return np.tanh(mean + deviation * self._random.standard_normal(mean.shape, np.float32))

    def opt_with_record(self, buffer: SacReplayBuffer) -> Record:
        """Make one optimization step, and return its losses. Raises Diverged and UsageError."""
        self._ask(buffer)
        return Record(self._update())

    def opt(self, buffer: SacReplayBuffer) -> None:
        """Make one optimization step. Raises Diverged and UsageError."""
        self._ask(buffer)
        if self._due >= _TOGETHER:
            self._update()

    def model_info(self) -> tuple[int, SacModel]:
        """Return the number of optimization steps, and a copy of the policy with its scaling."""
        learner = self._learning()
        learner.prepare()
        self._normalizer.adopt()
        self._model = SacModel(self._normalizer.current, learner.weights().actor)
        self._acts_as = learner.n_opts
        return learner.n_opts, self._model

    def sync_model(self, model_info: SacModel) -> None:
        """Use a policy that `model_info` returned for the following actions."""
        self._model = model_info

    def save_params(self, path: Path) -> list[Path]:
        """
        Write the state of learning and the policy as ONNX below a directory.

        Raises OSError, and Diverged if weights are not finite.
        """
        learner = self._learning()
        state = learner.state()
        plain = {"learner": dict(state.plain), "normalizer": self._normalizer.as_json()}
        files = {
            PARAMETERS: _archive({**state.tensors, _PLAIN: np.array(json.dumps(plain))}),
            POLICY: learner.policy().model,
        }
        path.mkdir(parents=True, exist_ok=True)
        for name, data in files.items():
            write_atomic(path / name, data, durable=False)
        return [path / name for name in files]

    def load_params(self, path: Path) -> None:
        """
        Continue from the files that `save_params` wrote below a directory.

        Raises OSError, and CheckpointDamaged or UsageError if they do not fit the settings.
        """
        learner = self._learning()
        known = learner.state().tensors
        try:
            with open_inside(path, PARAMETERS) as file, open_archive(file) as archive:
                names = {name.removesuffix(".npy") for name in archive.namelist()} - {_PLAIN}
                tensors = {name: _tensor(archive, name, known.get(name)) for name in names}
                with archived_array(archive, _PLAIN) as text:
                    if text.dtype.kind != "U" or text.shape or text.nbytes > _MOST_PLAIN:
                        raise ValueError(f"{_PLAIN!r} is not a short text")
                    plain = json.loads(str(text.read()))
            normalizer, state = plain["normalizer"], State(tensors, plain["learner"])
        except (*DAMAGE, KeyError, TypeError) as error:
            reason = cut_text(error)
            raise UsageError(f"{path / PARAMETERS} is not of SacAgent: {reason}") from error
        learner.restore(state)
        self._normalizer.restore(normalizer)
        self._acts_as = -1  # no step's policy is loaded

    def _ask(self, buffer: SacReplayBuffer) -> None:
        """Queue an optimization step."""
        if not self._due and not buffer.rows.transitions:
            raise UsageError("no transition in the replay buffer: set a longer warm-up")
        self._buffer = buffer
        self._due += 1

    def _update(self) -> dict[str, float]:
        """Make all queued optimization steps, and return their losses by tag."""
        learner, buffer = self._made(), self._buffer
        if buffer is None or not self._due:
            return {}
        learner.buffer = buffer.rows
        for features, added in buffer.take_added():
            self._normalizer.observe(features, added.returns)
        if not learner.n_opts:
            self._normalizer.adopt()
        due, self._due = self._due, 0
        return learner.train(due)

    def _current(self) -> SacModel:
        """Return the policy that acts; in the learning process, after all queued steps."""
        if self._learner is not None:
            learner = self._learning()
            if learner.n_opts != self._acts_as:
                self._model = SacModel(self._normalizer.current, learner.weights().actor)
                self._acts_as = learner.n_opts
        return self._model

    def _learning(self) -> Sac:
        """Return the learner after all queued optimization steps."""
        self._update()
        return self._made()

    def _made(self) -> Sac:
        """Return the learner, creating it if needed; actors never call this."""
        if self._learner is None:
            from arkml.learning.jax_engine import limit_threads
            from arkml.learning.sac import Sac

            if "jax" not in sys.modules:
                limit_threads(self._threads)
            self._learner = Sac(self._settings, self._normalizer)
        return self._learner


@dataclass(frozen=True)
class SacAgentConfig:
    """
    Configuration of a `SacAgent`.

    `settings` are the settings of a hive's run; `features` and `actions` are required, and the pace
    of updates is ignored, since the trainer sets it. JAX uses `threads` threads if this agent is
    the first to import it. Raises UsageError for settings of another algorithm, and
    InvalidSettings.
    """

    settings: Settings
    threads: int = 1
    builds: ClassVar[type[SacAgent]] = SacAgent

    def __post_init__(self) -> None:
        Settings.from_json(self.settings.as_json())
        if self.settings.learner != "sac":
            raise UsageError(
                f"algorithm is {self.settings.learner!r}: SacAgent learns by 'sac', with"
                " continuous actions only"
            )
        if self.threads < 1:
            raise UsageError(f"threads is {self.threads}: 1 at least")


def _tensor(archive: zipfile.ZipFile, name: str, known: Any) -> npt.NDArray[Any]:
    """
    Return a tensor of the type and shape of the `known` one.

    Raises CheckpointDamaged for another one, which is not read.
    """
    with archived_array(archive, name) as array:
        if known is None or (array.shape, array.dtype) != (known.shape, known.dtype):
            wanted = "has none" if known is None else f"has {known.dtype}, {list(known.shape)}"
            raise CheckpointDamaged(
                f"the checkpoint does not fit this run: {cut_repr(name)} is"
                f" {cut_text(array.dtype)}, {cut_repr(list(array.shape))}, and the run {wanted}"
            )
        return array.read()


def _archive(arrays: dict[str, Any]) -> bytes:
    """Return arrays as the bytes of a NumPy archive."""
    file = io.BytesIO()
    np.savez(file, **arrays)
    return file.getvalue()
