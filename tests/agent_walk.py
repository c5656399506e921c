"""The agents of a session, one row after another: what decisions of environments have to report."""

import itertools

from hypothesis import strategies as st

from arkml.abi.codes import EpisodeState
from arkml.envs.core.transitions import TRANSITIONS, TRUNCATED, AgentState

RUNNING = EpisodeState.RUNNING
ACTING = (RUNNING, EpisodeState.INITIAL)
OTHER = (1 << 63) | 7  # an id whose low half is that of a small one


def reports_of(decision):
    """For each report its number, place, reward, observation and flags."""
    flags = zip(decision.started, decision.terminated, decision.truncated, strict=True)
    columns = decision.agents, decision.submit_rows, decision.rewards, decision.observations[:, 0]
    values = zip(*(column.tolist() for column in columns), strict=True)
    return [(*value, tuple(map(bool, flag))) for value, flag in zip(values, flags, strict=True)]


class PlainWalk:
    """The agents of a session, moved row by row as the table has it."""

    def __init__(self, numbers):
        self.numbers = numbers
        self.live = {}  # by id: number and last feature

    def observe(self, rows):
        """Return the reports of a submit of rows (id, episode state, reward, feature)."""
        reports = []
        for place, (guest_id, state, reward, feature) in enumerate(rows):
            before = AgentState.LIVE if guest_id in self.live else AgentState.ABSENT
            transition = TRANSITIONS[before, state]
            if transition.ends_previous:
                number, last = self.live.pop(guest_id)
                reports.append((number, -1, 0.0, last, tuple(TRUNCATED)))
            if transition.report.started:
                self.live[guest_id] = next(self.numbers), feature
            number, _ = self.live[guest_id]
            self.live[guest_id] = number, feature
            reports.append((number, place, reward, feature, tuple(transition.report)))
            if transition.next_state is AgentState.ABSENT:
                del self.live[guest_id]
        return reports

    def truncate_all(self):
        ended = sorted(self.live.values())
        self.live.clear()
        return [(number, -1, 0.0, feature, tuple(TRUNCATED)) for number, feature in ended]


ROWS = st.lists(
    st.tuples(
        st.sampled_from([1, 2, 3, 4, 5, OTHER, OTHER + 1]),
        st.sampled_from([RUNNING, RUNNING, RUNNING, *EpisodeState]),
        st.integers(-8, 8).map(float),
        st.integers(0, 100).map(float),
    ),
    min_size=1,
    max_size=8,
)
FOLLOWING = st.sampled_from(
    ["other", "as before", "shifted", "new ids", "without the first", "replaced"]
)


def following(kind, before, drawn):
    """The rows of a submit after `before`: others, or nearly the same ones."""
    if kind == "other" or not before:
        return drawn
    if kind == "replaced":
        return replaced(before, drawn) or drawn
    rows = [(guest_id, *row) for (guest_id, *_), (_, *row) in zip(before, drawn, strict=False)]
    if kind == "shifted":
        return rows[1:] + rows[:1]
    if kind == "without the first":
        return rows[1:] or drawn
    if kind == "new ids":
        newest = max(guest_id for guest_id, *_ in before) + 1
        return [(newest, EpisodeState.INITIAL, *rows[0][2:]), *rows[1:]]
    return rows


def replaced(before, drawn):
    """The rows of the agents that acted before; one that ends is followed by a new one."""
    newest, rows = max(guest_id for guest_id, *_ in before), []
    acted = [guest_id for guest_id, state, *_ in before if state in ACTING]
    for guest_id, (_, state, *rest) in zip(acted, itertools.cycle(drawn), strict=False):
        rows.append((guest_id, RUNNING if state in ACTING else state, *rest))
        if state not in ACTING:
            newest += 1
            rows.append((newest, EpisodeState.INITIAL, *rest))
    return rows
