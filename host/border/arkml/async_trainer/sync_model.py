"""Agents whose model travels from the trainer to the actors."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any

from arkml.base.sealed import Sealed


class SyncModel(Sealed, ABC):
    """An agent whose model can be exported and imported."""

    @abstractmethod
    def model_info(self) -> tuple[int, Any]:
        """
        Return the number of optimization steps so far, and the model that `sync_model` takes.

        The model is a copy, which pickle can take to other processes.
        """

    @abstractmethod
    def sync_model(self, model_info: Any) -> None:
        """Take over a model."""
