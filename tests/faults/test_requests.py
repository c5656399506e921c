"""Requests that are slow, hostile or senseless, by the thousand: a hive serves and stays small."""

import contextlib
import os
import statistics
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from tests.faults.serving import ROOT, environment
from tests.faults.test_memory import resident
from tests.fuzz.hive_bodies import check, row_bodies
from tests.integration.hive_service import Service, rows, start_hive

pytestmark = pytest.mark.faults

REQUESTS = int(os.environ.get("ARKML_FAULTS_REQUESTS", "10000"))
SCHEMATHESIS = os.environ.get("ARKML_SCHEMATHESIS", "")
"""The program `schemathesis`, which `make test-faults` installs apart."""

GROWTH = 32.0
"""MB by which a hive may grow in the second half of the requests."""

LIMITS = {"runs": 8, "learners": 1, "sessions": 64, "sessions_per_run": 16}
OPERATIONS = 18
"""The requests that come of one example for each operation: some of these take no parameters."""

CONNECTIONS = 500
WINDOW, WINDOWS = 5.0, 6


@pytest.fixture
def service(tmp_path):
    with start_hive(tmp_path / "data", limits=LIMITS) as hive:
        made = Service(hive)
        yield made
        made.close()


def anonymous(service):
    """MB of the hive's memory that no file is behind."""
    return resident(service.hive.pid)[1]


def test_bodies_of_rows_are_answered_and_leave_no_memory(service):
    sizes = []

    @settings(
        max_examples=REQUESTS, deadline=None, database=None, phases=[Phase.generate],
        suppress_health_check=list(HealthCheck),
    )  # fmt: skip
    @given(row_bodies())
    def send(case):
        check(service, case)
        sizes.append(anonymous(service))

    send()
    half, end = sizes[len(sizes) // 2], sizes[-1]
    print(f"\n{len(sizes):,} bodies of rows: {sizes[0]:.0f}, {half:.0f}, {end:.0f} MB")

    assert len(sizes) >= REQUESTS * 0.9  # hypothesis leaves out what it has sent before
    assert end - half < GROWTH
    assert not service.hive.is_dead


def test_requests_made_from_the_document_are_answered_and_leave_no_memory(service, tmp_path):
    assert SCHEMATHESIS, "ARKML_SCHEMATHESIS names no program: make test-faults sets it"
    run_id = service.create("of the requests")
    sid, token = service.sid(run_id), service.token
    sizes, ended = [], threading.Event()

    def watch():
        while not ended.wait(0.5):
            sizes.append(anonymous(service))

    watching = threading.Thread(target=watch)
    watching.start()
    command = [
        SCHEMATHESIS, "run", str(ROOT / "docs" / "hive_openapi.json"),
        "--url", service.base.removesuffix("/v1"), "--header", f"Authorization: Bearer {token}",
        "--checks", "only_named_errors", "--phases", "coverage,fuzzing", "--seed", "1",
        "--max-examples", str(max(1, REQUESTS // OPERATIONS)), "--continue-on-failure",
        "--generation-database", "none", "--suppress-health-check", "all", "--no-color",
    ]  # fmt: skip
    count = tmp_path / "requests"
    try:
        ran = subprocess.run(
            command, capture_output=True, text=True, cwd=tmp_path, check=False, timeout=3_000,
            env={**environment(SCHEMATHESIS_HOOKS="tests.faults.schemathesis_hooks"),
                 "ARKML_RUN": run_id, "ARKML_SID": sid, "ARKML_COUNT": str(count)},
        )  # fmt: skip
    finally:
        ended.set()
        watching.join()
    sent = count.stat().st_size
    half, end = sizes[len(sizes) // 2], sizes[-1]
    print(f"\n{sent:,} requests of the document: {sizes[0]:.0f}, {half:.0f}, {end:.0f} MB")

    assert ran.returncode == 0, ran.stdout[-6_000:] + ran.stderr[-2_000:]
    assert sent >= REQUESTS
    assert end - half < GROWTH
    assert not service.hive.is_dead
    assert service.get("/health").status_code == 200


class Sender(threading.Thread):
    """Sends bodies of rows without a pause; `rows` counts what was acknowledged."""

    def __init__(self, service):
        super().__init__()
        self.rows = 0
        self._service = service
        self._ended = threading.Event()

    def run(self):
        sid = self._service.sid(self._service.create())
        seq = 1
        while not self._ended.is_set():
            answer = self._service.push(sid, rows(256, 256 * (seq - 1)), seq)
            assert answer.status_code == 200, answer.text
            self.rows += 256
            seq += 1

    def end(self):
        self._ended.set()
        self.join()


def processor(pid):
    """The seconds that a process has computed."""
    user, system = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[11:13]
    return (int(user) + int(system)) / os.sysconf("SC_CLK_TCK")


@contextlib.contextmanager
def slow_clients(service):
    port = service.base.removesuffix("/v1").rpartition(":")[2]
    process = subprocess.Popen(
        ["nice", sys.executable, "-m", "tests.faults.slow_clients", port, str(CONNECTIONS)],
        stdout=subprocess.PIPE, text=True, cwd=ROOT, env=environment(),
    )  # fmt: skip
    try:
        assert process.stdout.readline() == "all are open\n"
        yield
    finally:
        process.kill()
        with process:
            process.wait(10)


def test_five_hundred_slow_connections_take_little_from_a_run(service):
    """
    Rows/s of a server that has nothing else to do, by the processor time that it takes for each.

    Other processes do not change that. The bound of 0.95 is printed; ten times as much is asserted.
    """
    sender = Sender(service)
    sender.start()
    costs, shares, rates = [], [], {False: [], True: []}

    def measure(is_slow):
        rows, used, began = sender.rows, processor(service.hive.pid), time.monotonic()
        time.sleep(WINDOW)
        seconds = time.monotonic() - began
        rows, used = sender.rows - rows, processor(service.hive.pid) - used
        rates[is_slow].append(rows / seconds)
        if is_slow:
            shares.append((used - rows * statistics.median(costs)) / seconds)
        else:
            costs.append(used / rows)

    for _ in range(WINDOWS):
        measure(is_slow=False)
        with slow_clients(service):
            measure(is_slow=True)
    sender.end()
    share = statistics.median(shares)
    beside, alone = (statistics.median(rates[is_slow]) for is_slow in (True, False))
    print(
        f"\n{CONNECTIONS} slow connections take {share:.3f} of a processor, so {1 - share:.3f} of"
        f" the rows/s are left; by the clock, {beside:,.0f} of {alone:,.0f}"
    )

    assert share < 0.5
    assert service.get("/runs").status_code == 200
