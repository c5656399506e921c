"""Hives in trouble, and Debian's Prometheus that scrapes them each second, by scaled alerts."""

import os
import re
import resource
import shutil
import signal
import socket
import subprocess
import threading
import time
from contextlib import ExitStack, contextmanager
from pathlib import Path

import httpx
import numpy as np
import yaml
from tests.integration.hive_service import Service, rows, start_hive
from tests.waiting import eventually

from arkml.hive.protocol.rows import CONTENT_TYPE, encode

OPERATIONS = Path(__file__).parents[2] / "docs" / "operations"
BODY = 4_096  # rows
_SECONDS = {"s": 1, "m": 60, "h": 3_600}
_DURATION = re.compile(r"(\d+)([smh])")


def scaled(document):
    """
    Return rules of Prometheus whose times are so short that a test can wait for them.

    `for:` is a three-hundredth, a second at least, and a range a sixtieth, five seconds at least:
    a rate takes two scrapes, of which there is one each second. Nothing else changes.
    """

    def shorter(text, factor, least):
        number, unit = _DURATION.fullmatch(text).groups()
        return f"{max(least, round(int(number) * _SECONDS[unit] / factor))}s"

    for group in document["groups"]:
        for rule in group["rules"]:
            if "for" in rule:
                rule["for"] = shorter(rule["for"], 300, 1)
            rule["expr"] = re.sub(
                r"\[(\d+[smh])\]", lambda found: f"[{shorter(found[1], 60, 5)}]", rule["expr"]
            )
    return document


class Prometheus:
    """The server of Prometheus at a port of loopback, and its API."""

    def __init__(self, port):
        self.http = httpx.Client(
            base_url=f"http://127.0.0.1:{port}/api/v1", trust_env=False, timeout=30
        )

    def get(self, path, **parameters):
        answer = self.http.get(path, params=parameters).json()
        assert answer["status"] == "success", answer
        return answer["data"]

    def query(self, expression):
        return self.get("/query", query=expression)["result"]

    def firing(self):
        """The names of the alerts that are firing now."""
        alerts = self.get("/alerts")["alerts"]
        return {one["labels"]["alertname"] for one in alerts if one["state"] == "firing"}


@contextmanager
def prometheus(directory, services):
    """A Prometheus that scrapes hives by the scaled alerts of docs/operations."""
    assert shutil.which("prometheus"), "prometheus is missing: install Debian's prometheus"
    rules = yaml.safe_load((OPERATIONS / "alerts.yml").read_text())
    (directory / "alerts.yml").write_text(yaml.safe_dump(scaled(rules)))
    jobs = [
        {
            "job_name": name,
            "authorization": {"credentials": service.token},
            "static_configs": [{"targets": [service.base.split("/")[2]]}],
        }
        for name, service in services.items()
    ]
    config = {
        "global": {"scrape_interval": "1s", "evaluation_interval": "1s"},
        "rule_files": ["alerts.yml"],
        "scrape_configs": jobs,
    }
    (directory / "prometheus.yml").write_text(yaml.safe_dump(config))
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    words = [
        "prometheus", f"--config.file={directory}/prometheus.yml", "--log.level=error",
        f"--storage.tsdb.path={directory}/series", f"--web.listen-address=127.0.0.1:{port}",
    ]  # fmt: skip
    with subprocess.Popen(words) as process:
        try:
            server = Prometheus(port)
            with server.http:
                eventually(lambda: answers(server))
                yield server
        finally:
            process.send_signal(signal.SIGTERM)


def answers(server):
    try:
        return server.query("up") != []
    except (httpx.HTTPError, ValueError):  # it is not ready
        return False


class Trouble:
    """Threads that make trouble again and again, until it is closed."""

    def __init__(self):
        self._over = threading.Event()
        self._threads = []
        self.errors = []
        self.clients = ExitStack()

    def again(self, make, pause=0.3):
        """Call a function that makes an object, and that object after each pause."""

        def run():
            try:
                step = make()
                while not self._over.wait(pause):
                    step()
            except Exception as error:  # noqa: BLE001  the test that waits for it shows it
                if not self._over.is_set():
                    self.errors.append(error)

        self._threads.append(threading.Thread(target=run))
        self._threads[-1].start()

    def close(self):
        self._over.set()
        for thread in self._threads:
            thread.join()
        self.clients.close()


def sender(service, run_id, count, change=lambda columns: columns, send=None):
    """Return a function that sends a body of `count` rows, the next one once that is taken."""
    sid, seq = service.sid(run_id), 1

    def step():
        nonlocal seq
        body = encode(change(rows(count, count * (seq - 1))), seq=seq)
        seq += (send or service.send)(sid, body).status_code == 200

    return step


def spoiled(columns):
    """Rows of which half have no number as a feature."""
    columns.features[::2] = np.nan
    return columns


def dripped(service):
    """Return a function that sends a body in two parts, with over a second between them."""

    def send(sid, body):
        def parts():
            yield body[:50]
            time.sleep(1.3)
            yield body[50:]

        return service.http.post(
            f"/sessions/{sid}/rows", content=parts(), headers={"content-type": CONTENT_TYPE}
        )

    return send


def make_trouble(trouble, service):
    """Make what can go wrong with the runs of one hive."""
    wrong = httpx.Client(base_url=service.base, trust_env=False, timeout=60)
    trouble.clients.enter_context(wrong)
    wrong.headers["authorization"] = "Bearer wrong"
    trouble.again(lambda: lambda: wrong.get("/runs"), 0.1)

    def run(name, count, pause=0.3, change=lambda columns: columns, is_slow=False, **other):
        run_id = service.create(name, settings={}, **other)
        own = Service(service.hive)
        trouble.clients.callback(own.close)
        send = dripped(own) if is_slow else None
        trouble.again(lambda: sender(own, run_id, count, change, send), pause)
        return run_id

    run("nan", 8, misbehavior="sends nan")
    run("old", 8, misbehavior="old policies")
    run("dies", 8, misbehavior="dies after updates")
    run("spoiled", 64, change=spoiled)
    run("slow", 64, is_slow=True)
    run("unread", BODY, misbehavior="hang")
    return run("goal", 8)


def exhaust(trouble, service):
    """Have a hive run out of its disk limit, and of its learners."""
    first = service.create("first")
    service.create("second")
    trouble.again(lambda: sender(service, first, BODY), 0.1)


def narrow(service):
    """Leave a hive few descriptors more than it has open."""
    pid = service.hive.pid
    used = len(list(Path(f"/proc/{pid}/fd").iterdir()))
    resource.prlimit(pid, resource.RLIMIT_NOFILE, (round(used / 0.9),) * 2)


def damage(service, server):
    """Kill a hive, damage its rows on disk, and start it again."""
    run_id = service.create("damaged")
    sid = service.sid(run_id)
    for number in range(4):
        service.push(sid, rows(64, 64 * number), number + 1)
    eventually(lambda: server.query('arkml_run_rows_total{name="damaged"} == 256'))
    os.kill(service.hive.pid, signal.SIGKILL)
    eventually(lambda: service.hive.is_dead)
    [segment, *_] = sorted((service.hive.data / "runs" / run_id / "rows").glob("*.rows"))
    content = bytearray(segment.read_bytes())
    content[2_000] ^= 0xFF
    segment.write_bytes(content)
    service.hive.locate()


@contextmanager
def monitored(directory):
    """Hives with all troubles at once, their Prometheus, and a function that ends the hives."""
    with ExitStack() as stack:
        options = {
            "busy": {},
            "small": {"limits": {"disk_bytes": 5 << 20, "learners": 1}, "segment_bytes": 1 << 18},
            "damaged": {},
            "narrow": {},
        }
        hives, services = ExitStack(), {}
        stack.enter_context(hives)
        for name, given in options.items():
            hive = hives.enter_context(start_hive(directory / name, **given))
            services[name] = Service(hive)
            hives.callback(services[name].close)
        server = stack.enter_context(prometheus(directory, services))
        trouble = Trouble()
        stack.callback(trouble.close)
        goal = make_trouble(trouble, services["busy"])
        exhaust(trouble, services["small"])
        narrow(services["narrow"])
        eventually(lambda: server.query('arkml_run_notices_total{name="goal",kind="goal"}'))
        report = {"wanted": 1.0, "mean_return": 2.0, "episodes": 100}
        services["busy"].post(f"/runs/{goal}/goal", report)
        damage(services["damaged"], server)
        services["busy"].create("aborted", settings={}, misbehavior="misconfigured")

        def end():
            trouble.close()
            hives.close()

        yield server, trouble, end
