"""`/metrics`: the state of a hive for Prometheus, read when it is asked for."""

from __future__ import annotations

import asyncio
import shutil
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import accumulate
from pathlib import Path
from typing import TYPE_CHECKING, Literal, NamedTuple

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from arkml.base.release import RELEASE
from arkml.base.texts import encodable
from arkml.errors import HiveRefused
from arkml.hive.protocol.page_messages import NoticeKind
from arkml.hive.protocol.runs import Status
from arkml.server.access.callers import CALLER, AccessRole, Caller
from arkml.server.hive import Hive
from arkml.server.request_context import BOUNDS, SCOPE_KEY, RequestCounts
from arkml.server.run import Run

if TYPE_CHECKING:
    from prometheus_client import Metric

METRICS_PATH = "/metrics"

_NOT_INSTALLED = 501

Kind = Literal["counter", "gauge"]

_NOTICES: tuple[NoticeKind, ...] = (
    "diverging", "collapsed", "stuck", "slow", "restarted", "goal",
)  # fmt: skip
"""The kinds that live runs have; a run that is aborted has no series."""


class RunSeries(NamedTuple):
    """
    A Prometheus series of each live run, labeled with the run's id and name.

    `read` returns the value for a run, or None to leave the sample out.
    """

    name: str
    kind: Kind
    text: str
    read: Callable[[Run], float | None]


class HiveSeries(NamedTuple):
    """A Prometheus series of the hive, without labels; `read` returns None to leave it out."""

    name: str
    kind: Kind
    text: str
    read: Callable[[Hive, Sequence[Run]], float | None]
    """Called with the hive and its live runs."""


def _latest(name: str) -> Callable[[Run], float | None]:
    """Return a function that reads the newest value of a metric of a run."""

    def read(run: Run) -> float | None:
        found = run.metrics.latest.get(name)
        return None if found is None else found[0]

    return read


def _sum_of_counts(name: str) -> Callable[[Run], float]:
    def read(run: Run) -> float:
        return float(sum(getattr(one, name) for one in run.lifecycle.log.counts.values()))

    return read


RUN_SERIES = (
    RunSeries(
        "arkml_run_rows_total", "counter", "Rows in the log since the run began.",
        lambda run: run.lifecycle.log.rows,
    ),
    RunSeries(
        "arkml_run_rows_refused_total", "counter", "Rows that were received and not accepted.",
        _sum_of_counts("refused"),
    ),
    RunSeries(
        "arkml_run_rows_dropped_total", "counter", "Rows that hosts gave up before sending them.",
        _sum_of_counts("dropped"),
    ),
    RunSeries(
        "arkml_run_rows_lost_total", "counter", "Acknowledged rows that are damaged on disk.",
        lambda run: run.document.lost,
    ),
    RunSeries(
        "arkml_run_rows_unread", "gauge", "Rows in the log that the learner has not read.",
        lambda run: run.lifecycle.log.unread,
    ),
    RunSeries(
        "arkml_run_policy_lag_versions", "gauge", "Versions between acting and newest policy.",
        _latest("hive/policy_age_versions"),
    ),
    RunSeries(
        "arkml_run_policy_age_seconds", "gauge", "Age of the policy that made the newest rows.",
        _latest("hive/policy_age_seconds"),
    ),
    RunSeries(
        "arkml_run_policy_version", "gauge", "Number of the newest policy version.",
        lambda run: run.policies.newest.version if run.policies.newest else 0,
    ),
    RunSeries(
        "arkml_run_versions_published_total", "counter", "Policy versions of this process.",
        lambda run: run.policies.published,
    ),
    RunSeries(
        "arkml_run_updates", "gauge", "Updates of the policy; a restart may take some back.",
        lambda run: run.document.n_opts,
    ),
    RunSeries(
        "arkml_run_sessions", "gauge", "Sessions that are alive, workers included.",
        lambda run: run.lifecycle.sessions,
    ),
    RunSeries(
        "arkml_run_workers", "gauge", "Rollout workers that the hive has started.",
        lambda run: run.workers.living,
    ),
    RunSeries(
        "arkml_run_learner_running", "gauge", "1 while the learner runs, also if it is paused.",
        lambda run: run.lifecycle.supervisor.is_running,
    ),
    RunSeries(
        "arkml_run_learner_memory_bytes", "gauge", "Memory that the learner has to itself.",
        lambda run: run.lifecycle.uses["memory"],
    ),
    RunSeries(
        "arkml_run_learner_restarts_total", "counter", "Learners started after one had ended.",
        lambda run: run.lifecycle.supervisor.restarts,
    ),
    RunSeries(
        "arkml_run_place", "gauge", "Number among the runs that wait for a learner, or 0.",
        lambda run: run.lifecycle.place,
    ),
    RunSeries(
        "arkml_run_disk_bytes", "gauge", "Space on disk of the run's directory.",
        lambda run: run.lifecycle.uses["disk"],
    ),
)  # fmt: skip
HIVE_SERIES = (
    HiveSeries(
        "arkml_learners_running", "gauge", "Learners that run.",
        lambda _, runs: sum(run.lifecycle.supervisor.is_running for run in runs),
    ),
    HiveSeries(
        "arkml_learners_limit", "gauge", "Learners at one time (--max-learners), 0: any number.",
        lambda hive, _: hive.options.limits.learners,
    ),
    HiveSeries(
        "arkml_learners_memory_bytes", "gauge", "Memory of all learners.",
        lambda _, runs: sum(run.lifecycle.uses["memory"] for run in runs),
    ),
    HiveSeries(
        "arkml_learners_memory_limit_bytes", "gauge", "What it may be (--max-memory), 0: any.",
        lambda hive, _: hive.options.limits.memory_bytes,
    ),
    HiveSeries(
        "arkml_runs_pending", "gauge", "Runs that wait for a learner.",
        lambda _, runs: sum(run.lifecycle.place > 0 for run in runs),
    ),
    HiveSeries(
        "arkml_runs_limit", "gauge", "Runs that are kept (--max-runs), 0: any number.",
        lambda hive, _: hive.options.limits.runs,
    ),
    HiveSeries(
        "arkml_sessions", "gauge", "Sessions of all runs, workers included.",
        lambda _, runs: sum(run.lifecycle.sessions for run in runs),
    ),
    HiveSeries(
        "arkml_sessions_limit", "gauge", "What hosts may have (--max-sessions), 0: any number.",
        lambda hive, _: hive.options.limits.sessions,
    ),
    HiveSeries(
        "arkml_disk_bytes", "gauge", "Space on disk of the hive's directory.",
        lambda hive, _: hive.disk.used,
    ),
    HiveSeries(
        "arkml_disk_limit_bytes", "gauge", "What it may be (--max-disk), 0: any.",
        lambda hive, _: hive.options.limits.disk_bytes,
    ),
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class HiveFigures:
    """The values of one scrape; values of series are in the order of HIVE_SERIES and RUN_SERIES."""

    data: Path
    statuses: dict[str, int]
    refused: dict[str, int]
    of_hive: list[float | None]
    of_runs: list[tuple[tuple[str, str], tuple[str, str], list[float | None]]]
    """Id and name, game and algorithm, values; of each live run."""
    requests: dict[tuple[str, str, int], int]
    durations: dict[tuple[str, str], tuple[list[int], float]]
    in_flight: int
    notices: list[tuple[tuple[str, str, str], int]] = field(default_factory=list)
    """Id and name of each live run, a kind of notices, and how many there were."""


def read_figures(hive: Hive, counts: RequestCounts) -> HiveFigures:
    """Return the state of a hive, without waiting."""
    runs = hive.present_runs
    live = [run for run in runs if not run.document.is_over]
    found = Counter(run.status.value for run in runs)
    return HiveFigures(
        data=hive.options.data,
        statuses={status.value: found[status.value] for status in Status},
        refused=dict(hive.refused_rows),
        of_hive=[series.read(hive, live) for series in HIVE_SERIES],
        of_runs=[(*_named(run), [series.read(run) for series in RUN_SERIES]) for run in live],
        requests=dict(counts.requests),
        durations={key: (list(one.counts), one.seconds) for key, one in counts.durations.items()},
        in_flight=counts.in_flight,
        notices=[
            ((*_named(run)[0], kind), run.watch.counts[kind]) for run in live for kind in _NOTICES
        ],
    )


def _named(run: Run) -> tuple[tuple[str, str], tuple[str, str]]:
    request = run.document.request
    return (run.document.id, request.name), (request.game, request.settings.learner)


def metrics_route(hive: Hive) -> Route:
    """Return the route `/metrics`, which answers in the text format that a request accepts."""
    scraping = asyncio.Lock()

    async def answer(request: Request) -> Response:
        caller: Caller = request.scope[CALLER]
        caller.require(AccessRole.READ, "GET", METRICS_PATH)
        async with scraping:
            figures = read_figures(hive, request.scope[SCOPE_KEY])
            text, kind = await asyncio.to_thread(exposition, figures, request.headers.get("accept"))
        return Response(text, headers={"content-type": kind, "cache-control": "no-store"})

    return Route(METRICS_PATH, answer)


def exposition(figures: HiveFigures, accept: str | None) -> tuple[bytes, str]:
    """
    Return the text of a scrape and its content type, which `accept` chooses.

    Raises HiveRefused if the Prometheus library is not installed.
    """
    try:
        from prometheus_client import CollectorRegistry, ProcessCollector
        from prometheus_client.exposition import choose_encoder
    except ImportError as error:
        raise HiveRefused(
            "there are no metrics without prometheus-client: pip install 'arkml[hive]'",
            _NOT_INSTALLED,
        ) from error

    class Figures:
        def collect(self) -> Iterator[Metric]:
            return families(figures)

    registry = CollectorRegistry()
    registry.register(Figures())
    ProcessCollector(registry=registry)
    encode, kind = choose_encoder(accept or "")
    return encode(registry), kind


def families(figures: HiveFigures) -> Iterator[Metric]:
    """Yield the metric families of a scrape as objects of the Prometheus library."""
    yield _family(
        "gauge", "arkml_hive_info", "1, with the version of arkml.", "version",
        [((RELEASE,), 1)],
    )  # fmt: skip
    yield _family(
        "gauge", "arkml_runs", "Runs by their status.", "status",
        [((status,), count) for status, count in figures.statuses.items()],
    )  # fmt: skip
    for hive_series, value in zip(HIVE_SERIES, figures.of_hive, strict=True):
        samples = [] if value is None else [((), value)]
        yield _family(hive_series.kind, hive_series.name, hive_series.text, "", samples)
    yield _family(
        "gauge", "arkml_disk_free_bytes", "Free space of the file system of the hive.", "",
        [((), free) for free in _free(figures.data)],
    )  # fmt: skip
    yield _family(
        "counter", "arkml_rows_refused_total", "Rows not accepted since the hive began, by kind.",
        "kind", [((kind,), count) for kind, count in figures.refused.items()],
    )  # fmt: skip
    yield _family(
        "gauge", "arkml_run_info", "1, with the game and the algorithm of a live run.",
        "run name game algorithm", [((*run, *other), 1) for run, other, _ in figures.of_runs],
    )  # fmt: skip
    for place, series in enumerate(RUN_SERIES):
        found = [(run, values[place]) for run, _, values in figures.of_runs]
        known = [(run, value) for run, value in found if value is not None]
        yield _family(series.kind, series.name, series.text, "run name", known)
    yield _family(
        "counter", "arkml_run_notices_total", "Notices about a run, by kind.", "run name kind",
        figures.notices,
    )  # fmt: skip
    yield _family(
        "counter", "arkml_http_requests_total", "Answered requests.", "method route status",
        [((method, route, str(status)), count)
         for (method, route, status), count in figures.requests.items()],
    )  # fmt: skip
    yield _family(
        "gauge", "arkml_http_requests_in_flight", "Requests that are being answered.", "",
        [((), figures.in_flight)],
    )  # fmt: skip
    yield _histogram(figures)


def _family(
    kind: Kind, name: str, text: str, labels: str, samples: Iterable[tuple[Sequence[str], float]]
) -> Metric:
    """Return a family with the samples, each by the values of the labels, which are words."""
    from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily

    made = (CounterMetricFamily if kind == "counter" else GaugeMetricFamily)(
        name, text, labels=labels.split()
    )
    for values, value in samples:
        made.add_metric([encodable(one) for one in values], value)
    return made


def _histogram(figures: HiveFigures) -> Metric:
    from prometheus_client.core import HistogramMetricFamily

    made = HistogramMetricFamily(
        "arkml_http_request_duration_seconds",
        "Time from a request's header to the end of its answer.",
        labels=["method", "route"],
    )
    names = [*map(str, BOUNDS), "+Inf"]
    for key, (counts, seconds) in figures.durations.items():
        made.add_metric(key, list(zip(names, accumulate(counts), strict=True)), seconds)
    return made


def _free(directory: Path) -> list[int]:
    """Return the free bytes of a directory's file system, none if it cannot be asked."""
    try:
        return [shutil.disk_usage(directory).free]
    except OSError:
        return []
