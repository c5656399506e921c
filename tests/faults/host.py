"""A host in a process of its own, to be killed: `python -m tests.faults.host FOLDER GRANT`."""

import json
import mmap
import sys
from pathlib import Path

from tests.faults.player import Player

from arkml.hive.protocol.runs import OnConflict
from arkml.runs.hive_access import HiveGrant

ROOM = 8


def main(folder, grant):
    """Play in a run that all such hosts share; FOLDER/accepted says how many rows the hive has."""
    values = json.loads(grant)
    values["data"] = Path(values["data"]) if "data" in values else None
    player = Player(HiveGrant(**values), "killed", on_conflict=OnConflict.JOIN)
    told = {
        "index": player.session.index,
        "seed": player.policy.seed,
        "server": player.server if player.hives._embedded else 0,
    }
    with Path(folder, "accepted").open("w+b") as file:
        file.truncate(ROOM)
        with mmap.mmap(file.fileno(), ROOM) as accepted:
            print(json.dumps(told), flush=True)
            while True:
                player.act()
                accepted[:] = player.session.ledger.accepted.to_bytes(ROOM, "little")
                player.play(0.01)


if __name__ == "__main__":
    main(*sys.argv[1:])
