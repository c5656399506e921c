"""Recorders: takers of records, and of models that are to be kept."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator
from pathlib import Path

from arkml.async_trainer.core.agent import Agent
from arkml.async_trainer.core.record import Record, RecordStorage
from arkml.errors import UsageError


class Recorder(ABC):
    """
    Takes records: at once by `write`, or by `store` until `flush` summarizes them.

    With a directory it keeps models below it, in a directory for each name.
    """

    def __init__(self, model_dir: str | Path | None = None) -> None:
        self._model_dir = None if model_dir is None else Path(model_dir)
        self._storage = RecordStorage()

    @abstractmethod
    def write(self, record: Record) -> None:
        """Take a record as it is."""

    def store(self, record: Record) -> None:
        """Keep a record until the next flush."""
        self._storage.store(record)

    def flush(self, step: int) -> None:
        """Write a summary of the stored records, as that of optimization step `step`."""
        whole = self._storage.aggregate()
        if not whole.is_empty:
            self.write_step(whole, step)

    def write_step(self, record: Record, step: int) -> None:
        """Take a summary of stored records; it gets its optimization step as the value `step`."""
        self.write(record.merge(Record.from_scalar("step", step)))

    def save_model(self, name: str, agent: Agent) -> list[Path]:
        """Write the parameters of an agent as the model `name`, and return the files."""
        if self._model_dir is None:
            return []
        path = self._model_dir / name
        path.mkdir(parents=True, exist_ok=True)
        return agent.save_params(path)

    def load_model(self, name: str, agent: Agent) -> None:
        """Read the parameters of the model `name`. Raises UsageError without such a model."""
        path = None if self._model_dir is None else self._model_dir / name
        if path is None or not path.is_dir():
            raise UsageError(f"there is no model {name!r} in {self._model_dir}")
        agent.load_params(path)


class NullRecorder(Recorder):
    """A recorder that drops records; it keeps models if it has a directory for them."""

    def write(self, record: Record) -> None:
        """Drop a record."""

    def store(self, record: Record) -> None:
        """Drop a record."""


class BufferedRecorder(Recorder):
    """A recorder that keeps records in memory."""

    def __init__(self, model_dir: str | Path | None = None) -> None:
        super().__init__(model_dir)
        self.records: list[Record] = []

    def __iter__(self) -> Iterator[Record]:
        return iter(self.records)

    def __len__(self) -> int:
        return len(self.records)

    def write(self, record: Record) -> None:
        """Keep a record."""
        self.records.append(record)
