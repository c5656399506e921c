"""A search for good settings by many trainings, stored so that it can be continued."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from arkml.base.closing import Closing
from arkml.base.files import lock_file, open_file, read_plain
from arkml.base.output_files import make_directory, write_file
from arkml.errors import UsageError
from arkml.training.pictures import as_png, new_figure
from arkml.training.search_space import Range, SearchSpace

if TYPE_CHECKING:
    from optuna.distributions import BaseDistribution
    from optuna.study import Study
    from optuna.trial import FrozenTrial, Trial

_RECORD, _JOURNAL, _LOCK = "sweep.json", "trials.log", "lock"
_RESULT = "result"


@dataclass(frozen=True, slots=True)
class TrialResult:
    """
    The result of one training (a trial) of a sweep.

    `value` is the last mean return of the trial's learning curve, None if it failed. `document`
    holds the trial's output: `rows`, `seconds`, `ended`, or `error`.
    """

    number: int
    settings: Mapping[str, Any]
    value: float | None
    document: Mapping[str, Any]

    def as_json(self) -> dict[str, Any]:
        """Return the result as JSON values."""
        values = {"trial": self.number, "mean_return": self.value, "settings": dict(self.settings)}
        return values | dict(self.document)


class Sweep(Closing):
    """
    The trials of one sweep, kept in a directory by Optuna: as JSON lines, never pickles.

    A sweep that is opened again repeats the trials that had not ended. Only one process at a time
    may open it.
    """

    def __init__(
        self, directory: Path, space: SearchSpace, subject: Mapping[str, Any], seed: int
    ) -> None:
        """
        Open the sweep in a directory, a new or an existing one.

        `subject` has the values that all trials share, as JSON. Raises UsageError if Optuna is not
        installed, another process has the sweep open, or it has another subject or space.
        """
        make_directory("--output", directory)
        self._directory = directory
        self._space = space
        self._lock: int | None = _locked(directory)
        self._open: dict[int, Trial] = {}
        try:
            self._require_same({"space": dict(space.document), **subject})
            self._study = _study(directory / _JOURNAL, seed)
            self._repeat()
        except BaseException:
            self.close()
            raise

    @property
    def begun(self) -> int:
        """Number of trials begun so far, without trials that will be repeated."""
        return len(self._trials())

    def ask(self) -> tuple[int, dict[str, Any]]:
        """Begin a trial, and return its number and its settings."""
        trial = self._study.ask(_distributions(self._space))
        self._open[trial.number] = trial
        return trial.number, dict(trial.params)

    def tell(self, number: int, value: float | None, document: Mapping[str, Any]) -> TrialResult:
        """
        End a trial with its last mean return, None if it failed, and store `document` with it.
        """
        from optuna.trial import TrialState

        self._open.pop(number).set_user_attr(_RESULT, dict(document))
        if value is None:
            self._study.tell(number, state=TrialState.FAIL)
        else:
            self._study.tell(number, value)
        return next(one for one in self.results() if one.number == number)

    def results(self) -> list[TrialResult]:
        """Return the trials that have ended, in the order of their numbers."""
        return [
            TrialResult(one.number, one.params, one.value, one.user_attrs.get(_RESULT, {}))
            for one in self._trials()
            if one.state.is_finished()
        ]

    def close(self) -> None:
        """Close the sweep, so that other processes can open it. Safe to call twice."""
        if self._lock is not None:
            os.close(self._lock)
            self._lock = None

    def _trials(self) -> list[FrozenTrial]:
        """Return the trials that have begun, except for interrupted ones."""
        from optuna.trial import TrialState

        return [
            one
            for one in self._study.get_trials(deepcopy=False)
            if one.state is not TrialState.WAITING
            and not (one.state is TrialState.FAIL and _RESULT not in one.user_attrs)
        ]

    def _repeat(self) -> None:
        """Enqueue interrupted trials, for example of a killed sweep, to be repeated."""
        from optuna.trial import TrialState

        for one in self._study.get_trials(states=(TrialState.RUNNING,)):
            self._study.tell(one.number, state=TrialState.FAIL)
            self._study.enqueue_trial(one.params)

    def _require_same(self, record: Mapping[str, Any]) -> None:
        path = self._directory / _RECORD
        if not path.exists():
            write_file(path, (json.dumps(record, indent=2) + "\n").encode())
            return
        try:
            before = json.loads(read_plain(path, follow=False))
        except (OSError, ValueError):
            before = None
        if not isinstance(before, dict):
            raise UsageError(f"{path} does not describe a sweep")
        for name, value in record.items():
            if before.get(name) != value:
                raise UsageError(
                    f"{self._directory} holds a sweep with another {name}: choose another --output"
                )


def draw_trials(results: list[TrialResult]) -> bytes:
    """
    Return a PNG of the trials' last mean returns over each setting. Raises matplotlib's errors.
    """
    ended = [one for one in results if one.value is not None]
    names = list(ended[0].settings)
    figure = new_figure(4 * len(names), 3.5)
    for axes, name in zip(figure.subplots(1, len(names), squeeze=False)[0], names, strict=True):
        values = [one.settings[name] for one in ended]
        is_number = all(isinstance(value, int | float) for value in values)
        places = values if is_number else [str(value) for value in values]
        axes.scatter(places, [one.value for one in ended], alpha=0.7)
        axes.set(xlabel=name, ylabel="last mean return")
        if is_number and min(values) > 0 and max(values) > 20 * min(values):
            axes.set_xscale("log")
        axes.grid(alpha=0.3)
    return as_png(figure)


def _locked(directory: Path) -> int:
    try:
        return lock_file(directory / _LOCK)
    except BlockingIOError:
        raise UsageError(f"{directory} is in use by another sweep") from None


def _study(path: Path, seed: int) -> Study:
    """Return the study in a file, which maximizes the values of trials. Raises UsageError."""
    try:
        import optuna
        from optuna.storages import JournalStorage
        from optuna.storages.journal import JournalFileBackend, JournalFileOpenLock
    except ImportError:
        raise UsageError("a sweep needs optuna: pip install 'arkml[sweep]'") from None
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    try:
        with suppress(FileNotFoundError):  # of a new sweep
            open_file(path, follow=False).close()  # Optuna itself would wait for a pipe
    except OSError as error:
        raise UsageError(f"{path} cannot be read: {error.strerror}") from None
    backend = JournalFileBackend(str(path), JournalFileOpenLock(str(path)))
    study = optuna.create_study(
        study_name="arkml",
        storage=JournalStorage(backend),
        direction="maximize",
        load_if_exists=True,
    )
    # With the seed alone, a sweep that is continued would choose what it has chosen before.
    trials = len(study.get_trials(deepcopy=False))
    (word,) = np.random.SeedSequence([seed % (1 << 64), trials]).generate_state(1)
    study.sampler = optuna.samplers.TPESampler(seed=int(word))
    return study


def _distributions(space: SearchSpace) -> dict[str, BaseDistribution]:
    from optuna.distributions import (
        CategoricalDistribution,
        FloatDistribution,
        IntDistribution,
    )

    made: dict[str, BaseDistribution] = {}
    for name, choice in space.settings.items():
        if not isinstance(choice, Range):
            made[name] = CategoricalDistribution(choice)
        elif choice.is_int:
            made[name] = IntDistribution(int(choice.low), int(choice.high), log=choice.is_log)
        else:
            made[name] = FloatDistribution(choice.low, choice.high, log=choice.is_log)
    return made
