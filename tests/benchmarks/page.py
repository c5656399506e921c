"""The page of a hive: what fifty open ones cost, and the first view of a run of a day."""

from __future__ import annotations

import json
import math
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager
from pathlib import Path
from statistics import median

import httpx
from tests.benchmarks.bench import Bench
from tests.benchmarks.rows import AtLeast, AtMost, Row, alone
from tests.integration.hive_service import Service
from tests.integration.hive_service import rows as some_rows
from tests.waiting import eventually

from arkml.hive.embedded import EmbeddedHive
from arkml.hive.protocol.reports import DAY, HOUR, MINUTE, SECOND
from arkml.hive.protocol.rows import encode
from arkml.server.metrics_store import MetricsStore
from arkml.server.page.site_files import SiteFiles

TOPIC = "page"

PAGES, CURVES = 50, 40
IN_VIEW = 12
"""Charts that a large screen shows at once."""

HERE = Path(__file__).parent
LEARNER = str(HERE / "reporting_learner.py")
BODY = 4_096
CPU, RATE = AtMost(3.0), AtLeast(0.98)
FIRST, SIZE = AtMost(1.0), AtMost(500.0)
_TICKS = os.sysconf("SC_CLK_TCK")


def rows(bench: Bench) -> Iterator[Row]:
    bench.note(
        TOPIC,
        f"{PAGES} pages, read by another process, of one run that reports {CURVES} curves once a"
        " second and histograms every five, of which a page reads two in half a minute; the share"
        " of a core is what the server takes with them and not without. Rows are bodies of"
        f" {BODY} from one host, flat out: the median body with pages and without. The first view"
        f" of a run of a day loads the page's files and {IN_VIEW} curves of"
        f" {CURVES}.",
    )
    rounds, seconds = (2, 3.0) if bench.quick else (5, 8.0)
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        hive = stack.enter_context(
            EmbeddedHive(folder / "hive", {"learner": [LEARNER], "spare": False})
        )
        service = Service(hive)
        stack.callback(service.close)
        run = service.create()
        sender = _Sender(service, service.sid(run))
        eventually(lambda: service.get(f"/runs/{run}/metrics").json()["metrics"])
        bench.say("open pages")
        shares: list[float] = []
        rates: list[float] = []
        for _ in range(rounds):
            alone_share = _share(hive, seconds)
            without = sender.bodies(seconds)
            with _pages(service, run):
                shares.append(100 * (_share(hive, seconds) - alone_share))
                watched = sender.bodies(2 * seconds)
            without += sender.bodies(seconds)  # before and after, as the machine's speed changes
            rates.append(median(without) / median(watched))
    yield alone(TOPIC, f"{PAGES} open pages", "% of a core", shares, CPU)
    yield alone(TOPIC, f"rows/s with {PAGES} open pages", "of those without", rates, RATE)
    bench.say("the first view of a run of a day")
    found = [_first_view() for _ in range(2 if bench.quick else 5)]
    yield alone(TOPIC, "first view of a run of a day", "s", [one[0] for one in found], FIRST)
    yield alone(TOPIC, "bytes of it", "kB", [one[1] for one in found], SIZE)


class _Sender:
    """A host that sends bodies of rows."""

    def __init__(self, service: Service, sid: str) -> None:
        self._service, self._sid, self._seq = service, sid, 0
        self._columns = some_rows(BODY)

    def bodies(self, seconds: float) -> list[float]:
        """Send bodies for some seconds, and return those that each took until its answer."""
        taken: list[float] = []
        begun = time.perf_counter()
        while (now := time.perf_counter()) < begun + seconds:
            self._seq += 1
            answer = self._service.send(self._sid, encode(self._columns, seq=self._seq))
            assert answer.status_code == 200, answer.text
            taken.append(time.perf_counter() - now)
        return taken


@contextmanager
def _pages(service: Service, run: str) -> Iterator[None]:
    """Open pages, which must have got each report in the end."""
    at = service.hive.locate()
    words = (at.host, str(at.port), at.token, run, str(PAGES))
    begun = time.monotonic()
    with subprocess.Popen(
        [sys.executable, HERE / "page_readers.py", *words],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
    ) as process:  # fmt: skip
        assert process.stdin is not None
        assert process.stdout is not None
        assert process.stdout.readline() == "open\n"
        yield
        seconds = time.monotonic() - begun
        process.stdin.close()
        events, histograms = map(int, process.stdout.readline().split())
    assert events > PAGES * seconds / 3, f"{events} events in {seconds:.0f} s"
    assert histograms > PAGES * min(1.0, seconds / 60), f"{histograms} histograms"


def _share(hive: EmbeddedHive, seconds: float) -> float:
    """The share of a core that the server takes."""
    before, begun = _spent(hive), time.perf_counter()
    time.sleep(seconds)
    return (_spent(hive) - before) / (time.perf_counter() - begun)


def _spent(hive: EmbeddedHive) -> float:
    fields = Path(f"/proc/{hive.pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / _TICKS


def _first_view() -> tuple[float, float]:
    """Seconds and kB of the requests of a page that shows a run of a day."""
    with tempfile.TemporaryDirectory() as folder, ExitStack() as stack:
        data = Path(folder) / "hive"
        with EmbeddedHive(data, {"learner": [LEARNER], "spare": False}) as hive:
            run = Service(hive).connect().create()
        _write_day(data / "runs" / run)
        hive = stack.enter_context(EmbeddedHive(data, {"learner": [LEARNER], "spare": False}))
        at = hive.locate()
        headers = {"authorization": f"Bearer {at.token}"}
        base = f"http://{at.host}:{at.port}/"
        with httpx.Client(base_url=base, headers=headers, timeout=60.0, trust_env=False) as client:
            begun = time.perf_counter()
            size = _load(client, run)
            return time.perf_counter() - begun, size / 1e3


def _load(client: httpx.Client, run: str) -> int:
    """Load what a page loads, and return the bytes on the wire."""
    names = [f"curve/{number}" for number in range(IN_VIEW)]
    curves = {"names": json.dumps(names), "x": "rows", "points": "1000"}
    paths = sorted(SiteFiles().paths)
    paths += ["v1/whoami", "v1/runs", "v1/settings", "v1/usage", f"v1/runs/{run}"]
    paths += [f"v1/runs/{run}/metrics", f"v1/runs/{run}/events"]
    size = 0
    for path, parameters in [*((path, {}) for path in paths), (f"v1/runs/{run}/curves", curves)]:
        with client.stream("GET", path, params=parameters) as answer:
            size += sum(map(len, answer.iter_raw()))
            assert answer.status_code == 200, path
    return size


def _write_day(run: Path) -> None:
    """Write the metrics of a run that has lasted a day, as thinned as they are then."""
    now = time.time_ns()
    times = [*range(now - DAY, now - HOUR, MINUTE // 3), *range(now - HOUR, now, SECOND)]
    places = [(at, (at - now + DAY) // SECOND) for at in times]
    with closing(MetricsStore(run)) as store:
        store.add(
            (at, [(f"curve/{n}", 100 * place, math.sin(place / 1e3 + n)) for n in range(CURVES)])
            for at, place in places
        )
