"""A process with many sessions of one run: `python -m tests.faults.crowd GRANT COUNT SECONDS`."""

import json
import sys
import time
from pathlib import Path

from tests.faults.player import AGENTS, SETTINGS, Player
from tests.waiting import eventually

from arkml.hive.protocol.runs import OnConflict
from arkml.runs.hive_access import HiveGrant

FRAME = 0.5
"""Seconds between two frames of each session."""


def main(grant, count, seconds):
    """Play, and tell in one line of JSON what the hive has acknowledged."""
    values = json.loads(grant)
    players = [
        Player(HiveGrant(**values), "crowd", settings=SETTINGS, on_conflict=OnConflict.JOIN)
        for _ in range(int(count))
    ]
    print(json.dumps({"sessions": [player.session.index for player in players]}), flush=True)
    end = time.monotonic() + float(seconds)
    while (now := time.monotonic()) < end:
        for player in players:
            player.act()
        players[0].rest(max(0.0, now + FRAME - time.monotonic()))
    for player in players:
        eventually(player.settled, 300)
    told = [
        {
            "index": player.session.index,
            "made": AGENTS * player.frames,
            "accepted": player.session.ledger.accepted,
            "checksum": player.session.ledger.checksum,
            "lost": player.session.ledger.refused
            + player.session.ledger.discarded
            + player.session.outbox.dropped,
            "failure": player.session.failure and str(player.session.failure),
            "longest": player.longest,
            "late": players[0].late,
        }
        for player in players
    ]
    print(json.dumps(told), flush=True)
    sys.stdin.readline()  # the sessions stay until the rows have been compared
    for player in players:
        player.close(stop=False)


if __name__ == "__main__":
    assert Path.cwd().joinpath("tests").is_dir()
    main(*sys.argv[1:])
