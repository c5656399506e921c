"""Reports of runs: what they show, and what hostile names do to them."""

import json
import math
import os
import re
from base64 import b64encode
from contextlib import closing
from dataclasses import replace
from hashlib import sha256
from html import unescape
from html.parser import HTMLParser

import numpy as np
import pytest
from msgspec import UNSET

from arkml.errors import HiveError, UsageError
from arkml.hive.protocol.parts import Part
from arkml.hive.protocol.reports import SECOND
from arkml.hive.protocol.run_origin import RunOrigin
from arkml.hive.protocol.runs import Best, RunRequest, Status
from arkml.hive.protocol.settings import Settings
from arkml.reports.groups import COLUMNS, draw, grouped
from arkml.reports.report_page import make_page
from arkml.reports.report_runs import read_from_directory
from arkml.server.document import Document, pack_document, write_document
from arkml.server.metrics_store import MetricsStore

HOSTILE = "</title><script>alert(1)</script><img src=x onerror=alert(2)>\"'&\u202e<b>"
BEGAN = 1_700_000_000 * SECOND


def write_run(
    data, number, *, name="walker", metrics=(), length=50, best=None, origin=UNSET, **settings
):
    """Write a run as a hive keeps it; the value of a metric is a wave that its seed moves."""
    directory = data / "runs" / f"{number:016x}"
    (directory / "checkpoints").mkdir(parents=True)
    (directory / "checkpoints" / "000000000500.safetensors").touch()
    (directory / "checkpoints" / "best").write_text("500")
    request = RunRequest(name, "game", Settings(4, 2, **settings), origin=origin)
    document = Document(directory.name, request, BEGAN + number, status=Status.STOPPED)
    document.rows, document.n_opts, document.best = 20 * length, 10 * length, best
    write_document(directory, pack_document(document))
    reports = []
    for step in range(length if metrics else 0):
        values = (math.sin(step / 9 + number) * 10 + step for _ in metrics)
        points = [(name, 20 * step, value) for name, value in zip(metrics, values, strict=True)]
        reports.append((BEGAN + step * SECOND, points))
    with closing(MetricsStore(directory)) as store:
        store.add(reports)
    return directory


def write_curve(directory, values, name="a"):
    with closing(MetricsStore(directory)) as store:
        store.add(
            (BEGAN + (step + 100) * SECOND, [(name, step, value)])
            for step, value in enumerate(values)
        )


def refuse(sentence):
    raise AssertionError(sentence)


def read(data, *names):
    return read_from_directory(data, names, refuse)


class Elements(HTMLParser):
    """The tags, the attributes and the text of a page."""

    def __init__(self, page):
        super().__init__()
        self.tags, self.attributes, self.texts = set(), [], []
        self.feed(page)

    def handle_starttag(self, tag, attributes):
        self.tags.add(tag)
        self.attributes += attributes

    def handle_data(self, data):
        if self.lasttag != "script":
            self.texts.append(data)


def page_of(runs):
    page = make_page(runs, "1.2.3").decode()
    return page, Elements(page)


def test_a_page_shows_curves_settings_and_checkpoints(tmp_path):
    best = Best("evaluation", 212.5, 7, 400)
    metrics = ("rollout/ep_rew_mean", "train/critic_loss", "guest/distance")
    write_run(tmp_path, 1, metrics=metrics, best=best, hidden=128, seed=3)
    page, elements = page_of(read(tmp_path))

    assert page.count('<path class="line') == 3
    assert {*metrics, "212.5 by evaluation: version 7, 400 updates"} <= set(elements.texts)
    assert re.search(r"<th>hidden</th><td>64</td><td class=\"changed\">128</td>", page)
    assert any(
        text.startswith("arkml train GUEST --from ") and text.endswith("/000000000500.safetensors")
        for text in elements.texts
    )
    assert "seed" not in re.findall(r"<tr><th>(\w+)</th>", page.partition("Configuration")[2])


def test_the_parts_of_rows_are_shown_in_words(tmp_path):
    parts = (Part("me", (1,)), Part("board", (1, 2), "grid", 3), Part("hp", (1,)))
    write_run(tmp_path, 1, parts=parts)
    write_run(tmp_path, 2, name="flat")
    _, elements = page_of(read(tmp_path))

    assert {"me [1], board grid [1, 2] of 3 categories, hp [1]", "plain numbers"} <= {
        *elements.texts
    }
    assert not [text for text in elements.texts if "{" in text and "board" in text]


def test_a_page_loads_nothing_and_runs_its_own_script_only(tmp_path):
    write_run(tmp_path, 1, metrics=("a",))
    page, elements = page_of(read(tmp_path))
    data, script = re.findall(r"<script([^>]*)>(.*?)</script>", page, re.DOTALL)
    digest = b64encode(sha256(script[1].encode()).digest()).decode()

    assert not elements.tags & {"link", "img", "iframe", "object", "a", "base"}
    assert not [name for name, _ in elements.attributes if name in ("src", "href", "srcset")]
    assert "url(" not in page
    assert "@import" not in page
    assert f"default-src 'none'; script-src 'sha256-{digest}'; style-src 'sha256-" in page
    assert "application/json" in data[0]
    assert "unsafe" not in page.partition("</head>")[0]


def test_a_page_begins_with_the_best_policies_and_how_they_came_about(tmp_path):
    best = Best("evaluation", 90.5, 7, 300)
    directory = write_run(tmp_path, 1, metrics=("train/n_updates",), best=best)
    write_run(tmp_path, 2, name="other")
    with closing(MetricsStore(directory)) as store:
        store.add(
            (BEGAN + at, [("eval/mean_reward", at, value), ("time/time_elapsed", at, seconds)])
            for at, value, seconds in ((400, 12.0, 20.0), (800, 90.5, 95.0))
        )
    page, _ = page_of(read(tmp_path))
    rows = re.findall(r"<tr><th>(\w+)</th><td>(.*?)</td></tr>", page.partition('class="legend"')[0])
    (name, cells), (other, left) = rows

    assert (name, other) == ("walker", "other")
    score, by, reached, policy, file, _ = cells.split("</td><td>")
    assert (score, by, reached) == ("90.5", "evaluation", "800 rows, after 1 min")
    assert policy == "version 7, 300 updates"
    assert file.endswith("/checkpoints/000000000500.safetensors")
    assert left.startswith("not rated")


def test_metrics_that_stayed_the_same_are_one_line_and_no_charts(tmp_path):
    directory = write_run(tmp_path, 1, metrics=("train/critic_loss",))
    for name in ("hive/dropped", "hive/lost"):
        write_curve(directory, [3.0, 3.0], name)
    page, elements = page_of(read(tmp_path))

    assert "2 metrics stayed the same: hive/dropped 3, hive/lost 3." in elements.texts
    assert page.count("<svg viewBox") == 1


def test_a_return_that_stayed_the_same_has_its_chart(tmp_path):
    write_curve(write_run(tmp_path, 1), [3.0], "eval/mean_reward")
    page, _ = page_of(read(tmp_path))

    assert page.count('<circle class="dot c0"') == 1
    assert "stayed the same" not in page


def test_each_known_metric_has_a_sentence(tmp_path):
    choice = "actions/branch_0_share_3"
    write_run(tmp_path, 1, metrics=("eval/mean_reward", choice, "guest/speed"))
    page, elements = page_of(read(tmp_path))

    captions = re.findall(r"<figcaption>(.*?)</figcaption>", page)
    assert len(captions) == 3
    assert any(text.endswith("Higher is better.") for text in elements.texts)
    assert "Share of one choice among the choices of a branch." in captions
    assert "" in captions


def test_a_chart_carries_its_numbers_for_the_script_that_reads_them(tmp_path):
    for seed in range(2):
        write_run(tmp_path, 1 + seed, metrics=("a", "b"), length=3, seed=seed)
    page, _ = page_of(read(tmp_path))
    given = json.loads(re.search(r'application/json">(.*?)</script>', page)[1])

    assert given["rows"] == [[0, 20, 40]]
    assert re.findall(r'<figure class="chart" aria-label="(.*?)"', page) == ["a", "b"]
    assert [chart["edges"] for chart in given["charts"]] == [[0, 40]] * 2
    (line,) = given["charts"][0]["lines"]
    assert line["x"] == 0
    middles = [5 * (math.sin(n / 9 + 1) + math.sin(n / 9 + 2)) + n for n in range(3)]
    assert line["y"] == pytest.approx(middles, abs=1e-3)
    assert line["lowest"] <= line["y"] <= line["highest"]


def test_groups_beyond_eight_have_dashes(tmp_path):
    for number in range(9):
        write_run(tmp_path, number + 1, metrics=("a",), hidden=16 + number)
    page, _ = page_of(read(tmp_path))

    assert page.count('<path class="line c0"') == 1
    assert page.count('<path class="line c0 d1"') == 1


def test_names_with_markup_are_text(tmp_path):
    write_run(tmp_path, 1, name=HOSTILE, metrics=(HOSTILE, f"train/{HOSTILE}"))
    plain, hostile = tmp_path / "plain", tmp_path
    write_run(plain, 1, metrics=("a", "train/a"))
    page, elements = page_of(read(hostile))
    _, expected = page_of(read(plain))

    assert elements.tags == expected.tags
    assert {name for name, _ in elements.attributes} == {name for name, _ in expected.attributes}
    assert "\u202e" not in page
    assert any("<script>" in text for text in elements.texts)


def test_runs_that_differ_in_their_seed_are_a_band_and_others_a_line(tmp_path):
    for seed in range(3):
        write_run(tmp_path, seed + 1, metrics=("a",), seed=seed)
    write_run(tmp_path, 9, metrics=("a",), hidden=32)
    runs = read(tmp_path)
    page, _ = page_of(runs)
    band, line = (draw(group, "a") for group in grouped(runs))

    assert [group.label for group in grouped(runs)] == [
        "walker, hidden 64, 3 runs", "walker, hidden 32 (0000000000000009)",
    ]  # fmt: skip
    assert (band.low[:, 1] <= band.line[:, 1]).all()
    assert (band.line[:, 1] <= band.high[:, 1]).all()
    assert line.low is None
    assert (page.count('<path class="band'), page.count('<path class="line')) == (1, 2)


def test_runs_of_two_guests_are_no_band(tmp_path):
    origins = [RunOrigin(guest_sha256=sha256(guest).hexdigest()) for guest in (b"a", b"a", b"b")]
    for number, origin in enumerate(origins):
        write_run(tmp_path, number, metrics=("a",), seed=number, origin=origin)

    assert [group.label for group in grouped(read(tmp_path))] == [
        "walker, guest ca978112, 2 runs", "walker, guest 3e23e816 (0000000000000002)",
    ]  # fmt: skip


def test_runs_with_another_limit_or_without_evaluations_are_no_band(tmp_path):
    for seed in range(2):
        write_run(tmp_path, 1 + seed, metrics=("a",), seed=seed)
        write_run(tmp_path, 4 + seed, metrics=("a",), seed=seed, max_episode_steps=300)
        write_run(tmp_path, 7 + seed, metrics=("a", "eval/mean_reward"), seed=seed)
    runs = read(tmp_path)
    page, _ = page_of(runs)

    assert [group.label for group in grouped(runs)] == [
        "walker, max_episode_steps 0, evaluations none, 2 runs",
        "walker, max_episode_steps 300, evaluations none, 2 runs",
        "walker, max_episode_steps 0, evaluations some, 2 runs",
    ]
    assert re.search(
        r"<th>max_episode_steps</th><td>0</td><td>0</td><td class=\"changed\">300", page
    )


def test_a_long_curve_is_drawn_with_few_points_and_its_extremes(tmp_path):
    directory = write_run(tmp_path, 1)
    write_curve(directory, (5_000.0 if n == 4_321 else float(n % 10) for n in range(9_000)))
    (group,) = grouped(read(tmp_path))
    line = draw(group, "a").line

    assert len(line) <= 4 * COLUMNS
    assert [4_321.0, 5_000.0] in line.tolist()
    assert line[-1].tolist() == [8_999.0, 9.0]


@pytest.mark.parametrize("values", [[0.0], [1e-300, 1e-299], [1e308, -1e308], [7.0, 7.0]])
def test_any_finite_values_are_drawn_within_the_chart(tmp_path, values):
    directory = write_run(tmp_path, 1)
    write_curve(directory, values, "eval/mean_reward")
    page, _ = page_of(read(tmp_path))
    (data,) = re.findall(r"<path class=\"line c0\" d=\"([^\"]*)\"", page)
    places = places_of(data)

    assert len(places) <= len(values)
    assert all(58 <= x <= 436 and 30 <= y <= 196 for x, y in places)


def places_of(data):
    """The places of an SVG path: one that is absolute, and steps from there."""
    numbers = [float(number) for number in re.findall(r"-?(?:\d+\.?\d*|\.\d+)", data)]
    steps = np.array(numbers).reshape(-1, 2)
    return np.cumsum(steps, axis=0).tolist()


def test_a_line_goes_through_its_points_to_tenths_of_a_pixel(tmp_path):
    directory, values = write_run(tmp_path, 1), [0.0, 10.0, 2.5, 2.5, -0.04, 7.77]
    write_curve(directory, values, "eval/mean_reward")
    page, _ = page_of(read(tmp_path))
    (data,) = re.findall(r"<path class=\"line c0\" d=\"([^\"]*)\"", page)
    labels = re.findall(r"<text y=\"([\d.]+)\">(-?\d+)</text>", page)
    at = {float(text): float(place) for place, text in labels}
    unit = (at[10.0] - at[0.0]) / 10

    found = [y for _, y in places_of(data)]
    assert found == pytest.approx([at[0.0] + unit * value for value in values], abs=0.11)


def test_a_run_without_metrics_has_a_page(tmp_path):
    write_run(tmp_path, 1)

    assert "There are no metrics yet." in page_of(read(tmp_path))[1].texts


def test_a_name_is_the_newest_run_of_that_name_and_an_id_is_that_run(tmp_path):
    for number in (1, 2):
        write_run(tmp_path, number)

    assert [run.info.id[-1] for run in read(tmp_path, "walker", f"{1:016x}")] == ["2", "1"]
    with pytest.raises(UsageError, match=r"there is no run 'other' in .*, which has 2 runs"):
        read(tmp_path, "other")


def test_a_run_that_cannot_be_read_is_named_and_the_others_are_shown(tmp_path):
    write_run(tmp_path, 1)
    (write_run(tmp_path, 2) / "run.json").write_text("{")
    sentences = []
    runs = read_from_directory(tmp_path, (), sentences.append)

    assert [run.info.id for run in runs] == [f"{1:016x}"]
    assert sentences[0].startswith(f"run {2:016x} cannot be read: ")
    with pytest.raises(HiveError, match="cannot be read"):
        read(tmp_path, f"{2:016x}")


@pytest.mark.parametrize("name", ["run.json", "metrics.sqlite"])
def test_a_pipe_in_the_place_of_a_file_is_not_waited_for(tmp_path, name):
    write_run(tmp_path, 1, metrics=["reward"])
    damaged = write_run(tmp_path, 2, metrics=["reward"])
    (damaged / name).unlink(missing_ok=True)
    os.mkfifo(damaged / name)
    sentences = []
    runs = read_from_directory(tmp_path, (), sentences.append)

    assert [run.info.id for run in runs] == [f"{1:016x}"]
    assert "not a plain file" in sentences[0]


def test_a_pipe_as_the_mark_of_the_best_checkpoint_marks_none(tmp_path):
    marked = write_run(tmp_path, 1) / "checkpoints" / "best"
    marked.unlink()
    os.mkfifo(marked)
    [run] = read(tmp_path)

    assert [one.best for one in run.checkpoints] == [False]


def test_a_directory_without_runs_is_refused(tmp_path):
    with pytest.raises(UsageError, match="holds no runs"):
        read(tmp_path)


def test_the_directory_of_a_training_is_one_of_its_hive(tmp_path):
    write_run(tmp_path / "hive", 1)

    assert len(read(tmp_path)) == 1


def test_the_directory_of_several_seeds_has_the_runs_of_all(tmp_path):
    for seed in (0, 1):
        write_run(tmp_path / f"seed-{seed}" / "hive", seed, seed=seed)
        (tmp_path / f"seed-{seed}.json").touch()

    (tmp_path / "seed-2").mkdir()  # it failed before it had a run
    told = []
    runs = read_from_directory(tmp_path, (), told.append)
    ids = [run.info.id for run in runs]
    named, one = (
        read_from_directory(tmp_path, (name,), told.append) for name in ("walker", ids[1])
    )

    assert [run.settings.seed for run in (*runs, *named, *one)] == [0, 1, 0, 1, 1]
    assert told == [f"{tmp_path / 'seed-2'} holds no runs"] * 3
    with pytest.raises(UsageError, match=r"there is no run 'hopper' in .* which has 2 runs"):
        read_from_directory(tmp_path, ("hopper",), told.append)


@pytest.mark.parametrize(
    ("record", "sentence"),
    [
        ('{"run": "00000000000000a7", "name": "walker"}', ": arkml report 00000000000000a7 --hive"),
        ('{"run": "", "name": "my walker"}', ": arkml report 'my walker' --hive HOST:PORT reads"),
        ("{", "holds no runs: name the data directory of a hive, or the directory of a training"),
    ],
)
def test_the_directory_of_a_training_elsewhere_is_refused_with_the_way_to_its_run(
    tmp_path, record, sentence
):
    (tmp_path / "training.json").write_text(record)
    with pytest.raises(UsageError) as refused:
        read(tmp_path)

    assert sentence in str(refused.value)


def test_a_setting_that_a_guest_gave_with_32_bits_is_no_change(tmp_path):
    dust = float(np.float32(0.001))
    write_run(tmp_path, 1, learning_rate_init=0.001)
    write_run(tmp_path, 2, learning_rate_init=dust)
    runs = read(tmp_path)
    page, _ = page_of(runs)

    assert dust != 0.001
    assert [group.label for group in grouped(runs)] == ["walker, 2 runs"]
    assert "All settings are the defaults." in page
    assert "0.0010000000" not in page


def test_a_report_without_an_episode_says_so(tmp_path):
    write_run(tmp_path, 1, metrics=("train/n_updates",))

    assert "No episode has ended yet: there are no returns." in page_of(read(tmp_path))[0]


def test_the_checkpoint_of_the_best_policy_is_told_by_the_updates_between(tmp_path):
    write_run(tmp_path, 1, best=Best("evaluation", 3.0, 2, 180))
    write_run(tmp_path, 2)
    page, _ = page_of(read(tmp_path))

    assert page.count("<td>when the best policy was rated, 320 updates later</td>") == 1
    assert page.count("<td>when the best policy was rated</td>") == 1
    assert "<td>best</td>" not in page


def test_the_command_that_starts_from_a_checkpoint_can_be_pasted(tmp_path):
    data = tmp_path / "my runs"
    directory = write_run(data, 1)
    (run,) = read(data)
    local = unescape(make_page([run], "0").decode())
    served = unescape(make_page([replace(run, directory=None, source="[::1]:9")], "0").decode())
    file = directory / "checkpoints" / "000000000500.safetensors"

    assert f"arkml train GUEST --from '{file}'" in local
    assert "arkml train GUEST --hive '[::1]:9' --from 0000000000000001@500" in served
