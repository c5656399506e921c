"""The log of trials beside kills, full disks, and a process that does nothing but add to it."""

import signal
import subprocess
import sys
import time

import pytest
from tests.faults.limits import make_room, no_room
from tests.integration.command_line import ENVIRONMENT, ROOT
from tests.waiting import eventually

from arkml.trials.datalog.datalog import Datalog
from arkml.trials.datalog.reader import DatalogReader

pytestmark = pytest.mark.faults

LATEST = 0.25
"""Seconds before a kill at which a log may end."""

WRITER = """
import sys, time
from pathlib import Path
from tests.unit.datalog_parts import action, trial_params
from arkml.trials.datalog.datalog import Datalog
log = Datalog(Path(sys.argv[1]))
pause = float(sys.argv[2])
print("begun", flush=True)
for round in range(1_000_000):
    trials = [f"{round}-{number}" for number in range(8)]
    for trial in trials:
        log.begin(trial, "u", trial_params(), time.time_ns())
    for tick in range(4_000):
        for trial in trials:
            log.add(trial, action(tick, b"?" * 200))
        if log.failure:
            print(log.failure, flush=True)
            while log.failure:
                time.sleep(0.05)
            print("again", flush=True)
        if pause:
            time.sleep(pause)
    for trial in trials:
        log.end(trial, time.time_ns(), "")
"""


def started(directory, pause):
    return subprocess.Popen(
        [sys.executable, "-c", WRITER, directory, str(pause)],
        stdout=subprocess.PIPE,
        text=True,
        cwd=ROOT,
        env=ENVIRONMENT,
    )


def gaps(directory):
    """The trials of a log that lack an entry, and the time of the last entry of all."""
    latest, broken = 0, []
    with DatalogReader(directory) as reader:
        for record in reader.trials():
            ticks = []
            for entry in reader.entries(record):
                ticks.append(entry.tick)
                latest = max(latest, entry.timestamp)
            if ticks != [*range(record.ticks)]:
                broken.append(record.id)
    return broken, latest


@pytest.mark.parametrize("seed", range(20))
def test_a_log_is_whole_to_a_quarter_of_a_second_before_a_kill(tmp_path, seed):
    with started(tmp_path, 0.002) as process:
        process.stdout.readline()
        with DatalogReader(tmp_path) as reader:
            eventually(reader.trials)
        time.sleep(0.3 + 0.061 * seed)
        killed = time.time_ns()
        process.send_signal(signal.SIGKILL)
    before = gaps(tmp_path)
    with Datalog(tmp_path):
        pass
    after = gaps(tmp_path)

    assert before == after
    assert after[0] == []
    assert killed - after[1] <= LATEST * 1e9


def test_a_disk_without_room_is_a_failure_until_there_is_some(tmp_path):
    with started(tmp_path, 0.001) as process:
        process.stdout.readline()
        before = no_room(process.pid)
        failure = process.stdout.readline()
        make_room(process.pid, before)
        again = process.stdout.readline()
        with DatalogReader(tmp_path) as reader:
            count = sum(record.ticks for record in reader.trials())
            eventually(lambda: sum(record.ticks for record in reader.trials()) > count)
        process.send_signal(signal.SIGKILL)

    assert "its disk is full" in failure
    assert again == "again\n"
    assert gaps(tmp_path)[0] == []
