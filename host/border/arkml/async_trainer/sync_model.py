"""Agents whose model can be sent from the trainer to the actors."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any

from arkml.base.sealed import Sealed


class SyncModel(Sealed, ABC):
    """An agent whose model can be exported and imported."""

    @abstractmethod
    def model_info(self) -> tuple[int, Any]:
        """
        Return the number of optimization steps so far, and a model for `sync_model`.

        The model is a picklable copy.
        """

    @abstractmethod
    def sync_model(self, model_info: Any) -> None:
        """Use a model that `model_info` of another agent returned."""
