"""A trial server's part in the runs of a hive, from its start to its end."""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor, wait
from contextlib import ExitStack

from arkml.base.closing import Closing
from arkml.base.loggers import SafeLogger
from arkml.errors import UsageError
from arkml.guest_trials.learning.class_run import ClassRun, Offer, planned_run
from arkml.guest_trials.learning.learned_log import LearnedLog
from arkml.guest_trials.learning.run_options import LearningOptions
from arkml.guest_trials.probe import GuestClass
from arkml.hive import give_way
from arkml.hive.address import Address
from arkml.hive.client import HiveClient
from arkml.hive.protocol.runs import RunRequest
from arkml.trials.server.orchestrator import TrialLog

log = SafeLogger(__name__)

_LEAVING = 10.0  # seconds that the last rows have to get to the hive
_LEAVING_GONE = 1.0  # seconds where the hive does not answer


class TrialLearning(Closing):
    """
    Takes part in runs of a hive, one for each actor class. Making it blocks until all are joined.

    A name stands for the newest run of that name; a missing run is started with the default
    settings.

    Args:
        options: The hive and the names of the runs.
        game: The game of the runs.
        classes: The classes of actors of the guest.
        offer: Called with each new version of a run, on a thread of this object.

    Raises:
        UsageError: The guest does not have a class that is named.
        NotTrainable: A class cannot take part in its run.
        HiveError: The hive cannot be reached, or refuses a request.

    """

    def __init__(
        self, options: LearningOptions, game: str, classes: Sequence[GuestClass], offer: Offer
    ) -> None:
        self.options = options
        behaviors = {one.name: one.behavior for one in classes}
        for name in options.runs:
            if name not in behaviors:
                raise UsageError(
                    f"there is a run for class {name!r}, and the guest has the classes"
                    f" {', '.join(behaviors)}"
                )
        self._behaviors, self._game = behaviors, game
        self._runs: dict[str, ClassRun] = {}
        self._logs: list[LearnedLog] = []
        address = Address.parse(options.hive, options.token)
        self._client = HiveClient(lambda: address)
        self._loaders = ThreadPoolExecutor(
            1, thread_name_prefix="arkml-version", initializer=give_way
        )
        try:
            self._join(offer)
        except BaseException:
            self.close()
            raise

    @property
    def runs(self) -> dict[str, ClassRun]:
        """The runs by actor class."""
        return dict(self._runs)

    def learned_log(self, trial_log: TrialLog) -> TrialLog:
        """Return a log that sends rows of trials to the runs, and also writes to another log."""
        if not self.options.learn:
            return trial_log
        rules = {name: self.options.rules(run.run.name) for name, run in self._runs.items()}
        takers = {name: run.take for name, run in self._runs.items()}
        self._logs.append(LearnedLog(trial_log, rules, takers))
        return self._logs[-1]

    def close(self) -> None:
        """
        Send the last rows, for at most some seconds, and leave the runs.

        Safe to call more than once.
        """
        with ExitStack() as stack:
            stack.callback(self._client.close)
            stack.callback(self._loaders.shutdown, wait=False, cancel_futures=True)
            for one in self._logs:
                one.close()
            leaving = [run.leave() for run in self._runs.values()]
            wait(leaving, timeout=_LEAVING_GONE if self._client.is_gone else _LEAVING)

    def _join(self, offer: Offer) -> None:
        learns = bool(self.options.learn)
        known = self._client.runs().result()
        planned = {
            name: planned_run(known, run, self._game, self._behaviors[name], learns=learns)
            for name, run in self.options.runs.items()
        }
        for name, plan in planned.items():
            if isinstance(plan, RunRequest):
                log.info("there is no run %s yet: it is started", plan.name)
                run = self._client.create(plan).result()
            else:
                run = plan
            self._runs[name] = ClassRun(
                self._client, run, name, offer, self._loaders, learns=learns
            )
