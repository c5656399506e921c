"""More hosts and runs than a hive has processors: nothing is lost, and every run has its turn."""

import contextlib
import json
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import pytest
from msgspec.structs import replace
from tests.faults.player import (
    LATE,
    MINUTES,
    NO_WAIT,
    SETTINGS,
    Player,
    assert_all_is_there,
    audit,
    learners_of,
)
from tests.faults.serving import ROOT, TOKEN, Served, environment
from tests.faults.test_learning_faults import grant_of
from tests.waiting import eventually

from arkml.hive.embedded import EmbeddedHive
from arkml.hive.protocol.runs import Status
from arkml.runs.hive_access import HiveAccess

pytestmark = pytest.mark.faults

PROCESSES, SESSIONS = 4, 16
RUNS, LEARNERS = 20, 2
LEARNED = 200
"""Updates after which a run of many has learned."""


def crowd(grant):
    return subprocess.Popen(
        [sys.executable, "-m", "tests.faults.crowd",
         json.dumps({"hive": grant.hive, "token": TOKEN}), str(SESSIONS), str(60 * MINUTES)],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, cwd=ROOT, env=environment(),
    )  # fmt: skip


def test_sixty_four_sessions_of_four_processes_lose_no_row(tmp_path):
    with Served(tmp_path / "data") as served, contextlib.ExitStack() as hosts:
        began = time.monotonic()
        crowds = [hosts.enter_context(crowd(served.grant())) for _ in range(PROCESSES)]
        indices = [json.loads(one.stdout.readline())["sessions"] for one in crowds]
        told = [session for one in crowds for session in json.loads(one.stdout.readline())]
        seconds = time.monotonic() - began
        accepted = sum(session["accepted"] for session in told)
        with HiveAccess(served.grant()) as hives:
            client = hives.client()
            (run,) = client.runs().result()
            found = audit(client, run.id, accepted, 300)
        for one in crowds:
            one.stdin.close()
            one.wait(60)
    checksum = 0
    for session in told:
        checksum ^= session["checksum"]
    longest = max(session["longest"] for session in told)
    print(
        f"\n{len(told)} sessions, {seconds:.0f} s: {accepted:,} rows acknowledged,"
        f" {found['held']:,} held, the longest submit {longest * 1e3:.0f} ms"
    )

    assert sorted(index for one in indices for index in one) == list(range(PROCESSES * SESSIONS))
    assert [session["failure"] for session in told] == [None] * len(told)
    assert sum(session["made"] for session in told) == accepted
    assert sum(session["lost"] for session in told) == 0
    assert {int(i): one["rows"] for i, one in found["sessions"].items()} == {
        session["index"]: session["accepted"] for session in told
    }
    assert (found["held"], found["overwritten"]) == (accepted, 0)
    assert int(found["checksum"]) == checksum
    assert longest < 10 * (NO_WAIT + LATE * max(session["late"] for session in told))


def test_twenty_runs_share_two_learners_and_all_end(tmp_path):
    settings = replace(SETTINGS, memory_min_size=200)
    limits = {"limits": {"learners": LEARNERS}}
    with EmbeddedHive(tmp_path, limits) as hive:
        grant, most, ended = grant_of(hive), [], threading.Event()

        def watch():
            while not ended.wait(0.2):
                most.append(len(learners_of(hive.pid)))

        def play(number):
            player = Player(grant, f"run-{number}", settings=settings)
            player.pause = 0.1
            with player.playing():
                eventually(
                    lambda: player.client.run(player.run.id).result().n_opts > LEARNED, 600,
                    interval=0.5,
                )  # fmt: skip
            assert_all_is_there(player)
            player.close()
            return player.run.id, player.session.ledger.accepted

        watching = threading.Thread(target=watch)
        watching.start()
        began = time.monotonic()
        try:
            with ThreadPoolExecutor(RUNS) as threads:
                played = dict(threads.map(play, range(RUNS)))
        finally:
            ended.set()
            watching.join()
        seconds = time.monotonic() - began
        with HiveAccess(grant) as hives:
            infos = hives.client().runs().result()
    print(f"\n{RUNS} runs, {LEARNERS} learners: {seconds:.0f} s, {max(most)} processes at most")

    assert {info.id: info.rows for info in infos} == played
    assert {info.status for info in infos} == {Status.STOPPED}
    assert all(info.n_opts > LEARNED and not info.reason for info in infos)
    assert max(most) <= LEARNERS + 1  # and the spare one
