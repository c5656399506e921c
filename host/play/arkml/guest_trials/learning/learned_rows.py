"""Export of logged trials of guests as demonstrations, with the rows that runs learn from live."""

from __future__ import annotations

from arkml.demonstrations.dataset import MOST_BYTES, DemonstrationSet, outside, require_choices
from arkml.guest_trials.learning.learned_ticks import in_order
from arkml.guest_trials.learning.run_options import Rewards
from arkml.guest_trials.learning.spans import SpanRow, SpanRules
from arkml.guest_trials.learning.trial_rows import TrialRows, action_spaces, as_columns
from arkml.trials.core.error import TrialError
from arkml.trials.datalog.reader import DatalogReader, TrialRecord

_SOURCE = "the log"


class GuestTrialExport:
    """
    Collects trials whose environment was a guest, and whose chosen actors are all of one class.

    `actor` is the name or the class of the actors to export, empty for all of them. Rows have the
    rewards of the guest, or the aggregated rewards of all senders.
    """

    def __init__(self, actor: str = "", rewards: Rewards = "guest") -> None:
        self._wanted = actor
        self._rules = SpanRules(is_aggregated=rewards == "aggregated")
        self._class = ""
        self._branches: tuple[int, ...] = ()
        self._rows: list[SpanRow] = []
        self._bytes = 0

    def add(self, reader: DatalogReader, trial: TrialRecord) -> None:
        """Add a trial. Raises TrialError if it cannot be exported."""
        params = reader.params(trial)
        actors = {
            actor.name: actor.actor_class
            for actor in params.actors
            if self._wanted in ("", actor.name, actor.actor_class)
        }
        if not actors:
            known = ", ".join(f"{one.name} ({one.actor_class})" for one in params.actors)
            raise TrialError(f"trial {trial.id!r} has no actor {self._wanted!r}: it has {known}")
        classes = {*actors.values()} | ({self._class} - {""})
        if len(classes) > 1:
            raise TrialError(
                f"the actors are of the classes {', '.join(sorted(classes))}: choose one of them"
                " with --actor"
            )
        rules = dict.fromkeys(actors, self._rules)
        rows = TrialRows(trial.id, trial.began_ns, params, rules)
        self._class = classes.pop()
        self._branches = action_spaces(params)[self._class].branches
        for entry in in_order(reader.entries(trial)):
            self._keep(trial, [one.row for one in rows.add(entry)])
        self._keep(trial, [one.row for one in rows.end()])

    def demonstrations(self) -> DemonstrationSet:
        """Return the rows of all trials. Raises TrialError if there are none, and UsageError."""
        if not self._rows:
            raise TrialError(
                "there is nothing to export: no player has acted, or observations or actions were"
                " excluded from the log"
            )
        columns = as_columns(self._rows)
        require_choices(_SOURCE, columns.action, self._branches)
        warnings = outside(_SOURCE, columns.action, self._branches)
        return DemonstrationSet(columns, self._branches, warnings=tuple(warnings))

    def _keep(self, trial: TrialRecord, rows: list[SpanRow]) -> None:
        for row in rows:
            first = self._rows[0] if self._rows else row
            if row.features.shape != first.features.shape or row.action.shape != first.action.shape:
                raise TrialError(
                    f"trial {trial.id!r} has {len(row.features)} features and {len(row.action)}"
                    f" actions, and others have {len(first.features)} and {len(first.action)}"
                )
            self._bytes += row.features.nbytes + row.action.nbytes
            if self._bytes > MOST_BYTES:
                raise TrialError(
                    f"the rows are more than {MOST_BYTES:,} bytes: export fewer trials"
                )
            self._rows.append(row)
