"""The page of a report: one HTML file with everything in it."""

from __future__ import annotations

import base64
import hashlib
import json
import shlex
from collections.abc import Iterable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from datetime import UTC, datetime
from typing import Any

from arkml.base.terminal import harmless
from arkml.hive.protocol.parts import in_words
from arkml.hive.protocol.result_messages import CheckpointInfo
from arkml.hive.protocol.settings import Settings, rounded
from arkml.page_scripts.bundle import bundled_script
from arkml.reports.best_runs import HEADER, summary
from arkml.reports.charts import PLACE, chart, numbers, safe, shown, style_of
from arkml.reports.groups import Drawing, RunGroup, constant, draw, grouped
from arkml.reports.metric_texts import description
from arkml.reports.report_runs import ReportedRun, checkpoint_file
from arkml.reports.style import STYLE
from arkml.server.page.site_files import SITE
from arkml.training.results import EVALUATION_RETURN, TRAINING_RETURN

_FIRST = (
    EVALUATION_RETURN, "eval/success_rate", TRAINING_RETURN, "rollout/ep_rew_p10",
    "rollout/ep_rew_p90", "rollout/ep_len_mean",
)  # fmt: skip
_SECTIONS = {
    "rollout": "Play", "eval": "Evaluations", "train": "Learning", "guest": "Metrics of the guest",
    "hive": "Rows and pace", "pace": "Rows and pace", "replay": "Rows and pace",
    "actions": "Actions and features", "features": "Actions and features", "time": "Time",
    "system": "Machine",
}  # fmt: skip
_OTHER = "Other metrics"
_SHAPE = ("features", "parts", "actions", "branches", "seed")
_MOST_SAME = 40
"""Metrics that stayed the same and are named."""

Drawings = Sequence[tuple[str, int, Drawing]]


def make_page(runs: Sequence[ReportedRun], release: str) -> bytes:
    """
    Return a report of runs as an HTML file that loads nothing.

    Runs that differ only in their seed are drawn as a median with a band from lowest to highest. A
    script, which the page's Content-Security-Policy names by its hash, shows values and switches
    groups off; everything else works without scripts. `release` is the version of arkml, which the
    page shows.
    """
    groups = grouped(runs)
    title = "Report of " + ", ".join(dict.fromkeys(run.info.name for run in runs))
    names = {name for group in groups for run in group.runs for name in run.curves}
    same = {
        name: value
        for name in names.difference(_FIRST)
        if (value := constant(groups, name)) is not None
    }
    sections = _sections(names.difference(same))
    drawn = {n: _drawings(groups, n) for members in sections.values() for n in members}
    body = [
        f"<header><h1>{safe(title)}</h1></header><main>",
        "<h2>Best policies</h2>", _table(list(summary(runs)), HEADER),
        _legend(groups),
        *_curves(sections, drawn, names), _unchanged(same),
        "<h2>Runs</h2>", _table(_facts(runs), [run.info.name for run in runs]),
        "<h2>Configuration</h2>", *_configuration(groups),
        "<h2>Checkpoints</h2>", *map(_checkpoints, runs),
        f"</main><footer>arkml {safe(release)}, {_time(datetime.now(UTC))}</footer>",
    ]  # fmt: skip
    script = bundled_script("report.js", SITE)
    policy = f"default-src 'none'; script-src '{_hash(script)}'; style-src '{_hash(STYLE)}'"
    page = (
        '<!doctype html><html lang="en"><head><meta charset="utf-8">'
        f'<meta http-equiv="Content-Security-Policy" content="{policy}">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        '<meta name="color-scheme" content="light dark">'
        f"<title>{safe(title)}</title><style>{STYLE}</style></head>"
        f"<body>{''.join(body)}{_data(groups, drawn)}<script>{script}</script></body></html>\n"
    )
    return page.encode()


def _data(groups: Sequence[RunGroup], drawn: Mapping[str, Drawings]) -> str:
    """Return the numbers of all charts, as the script reads them; equal rows are there once."""
    rows: dict[tuple[float, ...], int] = {}
    charts = [numbers(drawings, rows) for drawings in drawn.values()]
    document = {
        "groups": [
            {"label": harmless(group.label), "color": style_of(number).partition(" ")[0]}
            for number, group in enumerate(groups)
        ],
        "place": PLACE,
        "rows": list(rows),
        "charts": charts,
    }
    text = json.dumps(document, separators=(",", ":")).replace("<", "\\u003c")
    return f'<script id="curves" type="application/json">{text}</script>'


def _hash(text: str) -> str:
    """Return the hash of an inline script or style, as policies name it."""
    return f"sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}"


def _legend(groups: Sequence[RunGroup]) -> str:
    entries = (
        f'<li><svg class="swatch" viewBox="0 0 24 6" aria-hidden="true"><line class="line'
        f' {style_of(number)}" x1="0" x2="24" y1="3" y2="3"/></svg>{safe(group.label)}'
        f"{_of_band(group)}</li>"
        for number, group in enumerate(groups)
    )
    return f'<ul class="legend">{"".join(entries)}</ul>'


def _of_band(group: RunGroup) -> str:
    """Return the explanation of a band, empty for one run."""
    if len(group.runs) == 1:
        return ""
    seeds = ", ".join(str(run.settings.seed) for run in group.runs)
    return f" <small>median, lowest and highest of seeds {safe(seeds)}</small>"


def _sections(names: AbstractSet[str]) -> dict[str, list[str]]:
    """Return the names of metrics by the titles of their sections, the returns first."""
    first = [name for name in _FIRST if name in names]
    sections: dict[str, list[str]] = {"Returns": first} if first else {}
    for title in dict.fromkeys((*_SECTIONS.values(), _OTHER)):
        members = sorted(
            name
            for name in names - set(first)
            if _SECTIONS.get(name.partition("/")[0], _OTHER) == title
        )
        if members:
            sections[title] = members
    return sections


def _drawings(groups: Sequence[RunGroup], name: str) -> Drawings:
    return [
        (group.label, number, one)
        for number, group in enumerate(groups)
        if (one := draw(group, name)) is not None
    ]


def _curves(
    sections: Mapping[str, Sequence[str]], drawn: Mapping[str, Drawings], names: AbstractSet[str]
) -> Iterable[str]:
    """Yield the charts of all metrics that have changed."""
    if not names:
        yield '<p class="empty">There are no metrics yet.</p>'
        return
    if not names & {TRAINING_RETURN, EVALUATION_RETURN}:
        yield '<p class="empty">No episode has ended yet: there are no returns.</p>'
    for title, members in sections.items():
        yield f'<h2>{title}</h2><div class="charts">'
        for name in members:
            yield chart(name, description(name), drawn[name])
        yield "</div>"


def _unchanged(same: Mapping[str, float]) -> str:
    """Return the metrics that stayed the same in a line, empty for none."""
    if not same:
        return ""
    named = [f"{name} {shown(same[name])}" for name in sorted(same)[:_MOST_SAME]]
    more = f", and {len(same) - _MOST_SAME} more" if len(same) > _MOST_SAME else ""
    count = "1 metric" if len(same) == 1 else f"{len(same)} metrics"
    return f'<p class="same">{count} stayed the same: {safe(", ".join(named))}{more}.</p>'


def _facts(runs: Sequence[ReportedRun]) -> list[tuple[str, list[str]]]:
    """Return the environment and the state of runs: a name, and the value of each run."""
    rows: list[tuple[str, list[str]]] = []
    for run in runs:
        info, best = run.info, run.best
        values = {
            "run": info.id,
            "game": info.game,
            "status": f"{info.status}{': ' if info.reason else ''}{info.reason}",
            "started": _of_nanoseconds(info.started_at),
            "ended": _of_nanoseconds(info.ended_at),
            "algorithm": run.settings.learner,
            "seed": str(run.settings.seed),
            "features": str(info.features),
            "parts": in_words(run.settings.parts),
            "actions": str(info.actions),
            "branches": ", ".join(map(str, info.branches)) or "none",
            "rollout workers": str(info.workers),
            "module": " ".join(filter(None, (info.module_id, run.module))) or "not uploaded",
            "rows": f"{info.rows:,}" + (f", {info.lost:,} lost" if info.lost else ""),
            "updates": f"{info.n_opts:,}",
            "best policy": "not rated"
            if best is None
            else f"{shown(best.score)} by {best.by}: version {best.version:,},"
            f" {best.n_opts:,} updates",
            "read from": run.source,
        }
        rows = rows or [(name, []) for name in values]
        for (_, cells), value in zip(rows, values.values(), strict=True):
            cells.append(value)
    return rows


def _configuration(groups: Sequence[RunGroup]) -> Iterable[str]:
    """Yield a table of the changed settings, and a table of the settings at their defaults."""
    settings = [group.runs[0].settings for group in groups]
    values = [{n: rounded(v) for n, v in one.as_json().items()} for one in settings]
    defaults = [_defaults(one) for one in settings]
    names = [name for name in values[0] if name not in _SHAPE]
    changed = [n for n in names if any(a[n] != b[n] for a, b in zip(values, defaults, strict=True))]
    header = ["default", *(group.label for group in groups)]

    def row(name: str) -> tuple[str, list[str]]:
        return name, [_value(defaults[0][name]), *(_value(one[name]) for one in values)]

    yield "<h3>Changed</h3>" if changed else "<p>All settings are the defaults.</p>"
    if changed:
        yield _table([row(name) for name in changed], header, is_marked=True)
    rest = [row(name) for name in names if name not in changed]
    yield f"<details><summary>{len(rest)} defaults</summary>{_table(rest, header)}</details>"


def _defaults(settings: Settings) -> Mapping[str, Any]:
    shape = (settings.features, settings.actions, settings.branches)
    return Settings(*shape).as_json()


def _checkpoints(run: ReportedRun) -> str:
    title = f"<h3>{safe(run.info.name)} <small>{safe(run.info.id)}</small></h3>"
    if not run.checkpoints:
        return title + "<p>No checkpoint is kept.</p>"
    rows = [
        (
            one.name,
            [f"{one.n_opts:,}", _mark(run, one), _start(run, one)],
        )
        for one in run.checkpoints
    ]
    return title + _table(rows, ["updates", "kept", "start from it"])


def _mark(run: ReportedRun, checkpoint: CheckpointInfo) -> str:
    """Return the reason for keeping a checkpoint: a rating comes some updates after its policy."""
    if not checkpoint.best:
        return ""
    later = "" if run.best is None else f", {checkpoint.n_opts - run.best.n_opts:,} updates later"
    return f"when the best policy was rated{later}"


def _start(run: ReportedRun, checkpoint: CheckpointInfo) -> str:
    """Return the command that starts a training of a guest from a checkpoint."""
    if run.directory is None:
        place = ["--hive", run.source, "--from", checkpoint.name]
    else:
        place = ["--from", str(checkpoint_file(run.directory, checkpoint.n_opts))]
    return f"arkml train GUEST {shlex.join(place)}"


def _table(
    rows: Sequence[tuple[str, Sequence[str]]], header: Sequence[str], *, is_marked: bool = False
) -> str:
    """Return a table; `is_marked` emphasizes cells that differ from the first of their row."""
    head = "".join(f'<th scope="col">{safe(name)}</th>' for name in header)
    lines = []
    for name, cells in rows:
        marks = (' class="changed"' if is_marked and cell != cells[0] else "" for cell in cells)
        data = (f"<td{mark}>{safe(cell)}</td>" for cell, mark in zip(cells, marks, strict=True))
        lines.append(f"<tr><th>{safe(name)}</th>{''.join(data)}</tr>")
    inside = f"<tr><td></td>{head}</tr>{''.join(lines)}"
    return f'<div class="scrolled" tabindex="0"><table>{inside}</table></div>'


def _value(value: object) -> str:
    return value if isinstance(value, str) else json.dumps(value)


def _of_nanoseconds(at: int) -> str:
    try:
        return _time(datetime.fromtimestamp(at / 1e9, tz=UTC)) if at else "not yet"
    except (OverflowError, ValueError, OSError):
        return str(at)


def _time(moment: datetime) -> str:
    return moment.strftime("%Y-%m-%d %H:%M:%S UTC")
