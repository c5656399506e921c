"""Recorders, which receive records and save models."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator
from pathlib import Path

from arkml.async_trainer.core.agent import Agent
from arkml.async_trainer.core.record import Record, RecordStorage
from arkml.base.sealed import Sealed
from arkml.errors import UsageError


class Recorder(Sealed, ABC):
    """
    Receives records: directly by `write`, or by `store` for a summary at the next `flush`.

    With a directory it saves models, each in a subdirectory with the model's name.
    """

    def __init__(self, model_dir: str | Path | None = None) -> None:
        self._model_dir = None if model_dir is None else Path(model_dir)
        self._storage = RecordStorage()

    @abstractmethod
    def write(self, record: Record) -> None:
        """Receive a record without summarizing it."""

    def store(self, record: Record) -> None:
        """Store a record until the next flush."""
        self._storage.store(record)

    def flush(self, step: int) -> None:
        """Write a summary of the stored records for optimization step `step`."""
        whole = self._storage.aggregate()
        if not whole.is_empty:
            self.write_step(whole, step)

    def write_step(self, record: Record, step: int) -> None:
        """Write a summary; its value `step` is the optimization step."""
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
    """A recorder that ignores records. It saves models if it has a directory."""

    def write(self, record: Record) -> None:
        """Ignore a record."""

    def store(self, record: Record) -> None:
        """Ignore a record."""


class BufferedRecorder(Recorder):
    """A recorder that keeps records in memory."""

    def __init__(self, model_dir: str | Path | None = None) -> None:
        super().__init__(model_dir)
        self.records: list[Record] = []

    def __iter__(self) -> Iterator[Record]:
        return iter(self.records)

    def write(self, record: Record) -> None:
        """Append a record to `records`."""
        self.records.append(record)


class TensorBoardRecorder(Recorder):
    """
    A recorder that writes numbers as TensorBoard events.

    Summaries are plotted at their optimization step, other records at their value `step` or at 0.
    Texts, times, arrays and non-finite numbers are left out. Models are saved in `model_dir`, by
    default in `directory`. Raises UsageError without the extra `hive`.
    """

    def __init__(self, directory: str | Path, model_dir: str | Path | None = None) -> None:
        super().__init__(directory if model_dir is None else model_dir)
        try:
            from arkml.learning.recorder import Recorder as EventFile
        except ImportError as error:
            raise UsageError(
                f"events of TensorBoard need {error.name}: pip install 'arkml[hive]'"
            ) from None
        self._events = EventFile(Path(directory))

    def write(self, record: Record) -> None:
        """Write the numbers of a record as events."""
        numbers = [(name, value) for name, value in record if isinstance(value, float)]
        step = int(record.get_scalar("step")) if "step" in record else 0
        self._events.record([(name, value) for name, value in numbers if name != "step"], step)
