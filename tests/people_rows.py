"""Rows that a run of a real hive has of people in sparse reach, and what it learns of them."""

import numpy as np
from tests.faults.serving import TOKEN
from tests.integration.command_line import GUESTS, arkml
from tests.integration.stored_rows import stored_records

from arkml import HiveGrant, Host, evaluate
from arkml.abi.codes import EpisodeState
from arkml.demonstrations.demonstration_files import read_demonstrations
from arkml.guests.guest import calls_of
from arkml.hive.protocol.rows import RowColumns, RowKind

SPARSE = GUESTS / "c_sparse_reach.wasm"
NAME = "sparse_reach"
ENDED = (EpisodeState.TERMINAL, EpisodeState.INTERRUPTED)


def stored(hive, kind=RowKind.DEMONSTRATION):
    """The rows of a kind in the only run of a hive."""
    bodies = [one.columns for one in stored_records(hive.data) if one.header.kind is kind]
    joined = [
        np.concatenate(parts) for parts in zip(*(one.arrays() for one in bodies), strict=True)
    ]
    return RowColumns(*joined)


def exported(data):
    """The demonstrations that the command makes of all trials of a log."""
    ids = [one["id"] for one in arkml("trials", "list", "--data", data, "--json").json["trials"]]
    ended = arkml("trials", "export", *reversed(ids), "--data", data, "-o", data / "rows.npz")
    assert ended.status == 0, ended.err
    return read_demonstrations(data / "rows.npz")


def actions_in(rows):
    """Features and actions of the rows that have an action."""
    own = rows.take(~np.isin(rows.state, ENDED))
    return [*zip(own.features.tolist(), own.action.tolist(), strict=True)]


def assert_are_the_ticks(rows, acted):
    """Rows are the ticks of people, each once, and one row more for the end of each span."""
    assert actions_in(rows) == acted
    assert len(rows) - len(acted) == len(set(rows.agent.tolist()))


def learn(hive, ratings):
    """Have agents play in the run, and note the share of successes by the rows that they played."""
    run = next(iter(hive.data.glob("runs/*"))).name
    grant = HiveGrant(
        hive=f"127.0.0.1:{hive.port}", token=TOKEN, join_run=run, wait_for_learner=True
    )
    with Host(seed=1, hive=grant) as host:
        guest = host.load(SPARSE)
        hives = calls_of(guest).services.hives
        while guest.statistics.rows < 40_000 and max(ratings.values(), default=0.0) < 0.9:
            guest.update()
            rows = guest.statistics.rows
            if rows >= 2_048 * (len(ratings) + 1):
                policy = hives.first.latest[1]
                ratings[rows] = float(evaluate(SPARSE, policy, episodes=100).returns.mean())
