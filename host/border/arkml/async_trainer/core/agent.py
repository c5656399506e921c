"""Agents of the asynchronous trainer: policies that learn from a replay buffer."""

from __future__ import annotations

from abc import ABC, abstractmethod
from pathlib import Path
from typing import Any

from arkml.async_trainer.core.configurable import Configurable
from arkml.async_trainer.core.record import Record
from arkml.base.sealed import Sealed


class Policy(Sealed, ABC):
    """An object that chooses actions for observations."""

    @abstractmethod
    def sample(self, obs: Any) -> Any:
        """Return an action for an observation: exploring in training, the best in evaluation."""


class Agent(Policy, Configurable[Any]):
    """A policy that learns from batches of a replay buffer."""

    @abstractmethod
    def train(self) -> None:
        """Switch to training: `sample` explores."""

    @abstractmethod
    def eval(self) -> None:
        """Switch to evaluation: `sample` does not explore."""

    @abstractmethod
    def is_train(self) -> bool:
        """Return True in training."""

    def seed(self, seed: int) -> None:
        """Set the seed of the random numbers that `sample` draws."""

    def opt(self, buffer: Any) -> None:
        """Make one optimization step with batches of the replay buffer."""
        self.opt_with_record(buffer)

    @abstractmethod
    def opt_with_record(self, buffer: Any) -> Record:
        """Make one optimization step with the replay buffer, and return values to record."""

    @abstractmethod
    def save_params(self, path: Path) -> list[Path]:
        """Write the parameters below a directory and return the files."""

    @abstractmethod
    def load_params(self, path: Path) -> None:
        """Read the parameters that `save_params` wrote."""
