"""
The state machine of an agent: the effect of each of its rows, and the resulting report.

A guest names an agent by 64 bits, the id, and may use an id again. Under one id an agent is ABSENT
or LIVE, and each row with that id moves it by `TRANSITIONS`, in push order:

    state    row          next     reported
    ABSENT   INITIAL      LIVE     STARTED
    ABSENT   RUNNING      LIVE     STARTED
    ABSENT   TERMINAL     ABSENT   STARTED_TERMINATED
    ABSENT   INTERRUPTED  ABSENT   STARTED_TRUNCATED
    LIVE     INITIAL      LIVE     TRUNCATED for the episode before, then STARTED
    LIVE     RUNNING      LIVE     CONTINUED
    LIVE     TERMINAL     ABSENT   TERMINATED
    LIVE     INTERRUPTED  ABSENT   TRUNCATED

A submit without a row of a live agent leaves it LIVE and reports nothing. The end of the guest
reports TRUNCATED for every live agent. A report without a row has row index -1, reward 0 and the
agent's last observation.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from arkml.abi.codes import EpisodeState
from arkml.runtime.columns.region import Rules


class AgentState(Enum):
    """The state of an agent between two rows of its id."""

    ABSENT = "absent"
    LIVE = "live"


class Report(NamedTuple):
    """The flags of one agent in a decision: started, terminated, truncated."""

    started: bool = False
    terminated: bool = False
    truncated: bool = False

    @property
    def ended(self) -> bool:
        """True if this is the last report of its episode."""
        return self.terminated or self.truncated


CONTINUED = Report()
STARTED = Report(started=True)
TERMINATED = Report(terminated=True)
TRUNCATED = Report(truncated=True)
STARTED_TERMINATED = Report(started=True, terminated=True)
STARTED_TRUNCATED = Report(started=True, truncated=True)


class Transition(NamedTuple):
    """
    The outcome of one row: the agent's next state and its report.

    `ends_previous` means that the open episode is first reported as TRUNCATED.
    """

    next_state: AgentState
    report: Report
    ends_previous: bool = False


ABSENT, LIVE = AgentState.ABSENT, AgentState.LIVE

TRANSITIONS: Mapping[tuple[AgentState, EpisodeState], Transition] = {
    (ABSENT, EpisodeState.INITIAL): Transition(LIVE, STARTED),
    (ABSENT, EpisodeState.RUNNING): Transition(LIVE, STARTED),
    (ABSENT, EpisodeState.TERMINAL): Transition(ABSENT, STARTED_TERMINATED),
    (ABSENT, EpisodeState.INTERRUPTED): Transition(ABSENT, STARTED_TRUNCATED),
    (LIVE, EpisodeState.INITIAL): Transition(LIVE, STARTED, ends_previous=True),
    (LIVE, EpisodeState.RUNNING): Transition(LIVE, CONTINUED),
    (LIVE, EpisodeState.TERMINAL): Transition(ABSENT, TERMINATED),
    (LIVE, EpisodeState.INTERRUPTED): Transition(ABSENT, TRUNCATED),
}

_IN_ORDER = [
    TRANSITIONS[before, row] for before in (LIVE, ABSENT) for row in sorted(EpisodeState)
]  # by 4 x (1 if ABSENT) + the number in the row's field `state`, as the arrays below

REPORTED: npt.NDArray[np.bool_] = np.array(
    [(*transition.report, transition.next_state is ABSENT) for transition in _IN_ORDER]
).T.copy()
"""The flags of each transition, and whether its agent is ABSENT then: bool, [4, transitions]."""

ENDS_PREVIOUS: npt.NDArray[np.bool_] = np.array([each.ends_previous for each in _IN_ORDER])
"""Mask of the transitions that report the end of another episode before their own report."""

IS_ONE_REPORT: npt.NDArray[np.bool_] = ~(ENDS_PREVIOUS | (REPORTED[0] & REPORTED[3]))
"""Mask of those that report one episode, which does not begin and end with the row."""

RUNS_ON: npt.NDArray[np.bool_] = ~(ENDS_PREVIOUS | REPORTED.any(0))
"""Mask of those that report that a live agent runs on."""


def _numbers(marks: npt.NDArray[np.bool_]) -> int:
    return sum(1 << int(number) for number in marks.nonzero()[0])


LISTING = Rules._make([*map(_numbers, REPORTED), _numbers(~IS_ONE_REPORT)])
"""The transitions by which the shim lists rows, which know nothing of this table."""

IS_LIVE_AFTER: npt.NDArray[np.bool_] = np.array(
    [TRANSITIONS[ABSENT, row].next_state is LIVE for row in sorted(EpisodeState)]
)
"""Mask of the rows, by the number of `state`, after which an agent is LIVE, whatever it was."""
