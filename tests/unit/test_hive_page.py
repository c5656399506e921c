"""The parts of the hive's page that need no browser; `make test-browser` has the rest."""

import shutil
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from tests.documented_metrics import documented
from tests.node import Respondent

import arkml.server.page
from arkml import page_scripts
from arkml.hive.protocol.parts import Part, PlaceChoices, in_words
from arkml.server.page.site_files import SHARED

SITE = Path(arkml.server.page.__file__).parent / "site"
VIEW = {
    "runs": [], "q": "", "metric": "", "sort": "-started_at", "x": "rows", "smooth": 0,
    "log": False, "group": "", "columns": [], "hidden": [], "pins": [], "charts": [], "against": "",
    "of": "best", "brush": {}, "zoom": None,
}  # fmt: skip


@cache
def served():
    """A folder with the files of the page as it is served; it goes with the object."""
    folder = TemporaryDirectory()
    shutil.copytree(SITE, folder.name, dirs_exist_ok=True)
    shutil.copytree(page_scripts.FOLDER, Path(folder.name, SHARED))
    return folder


@cache
def respondent(program):
    """Return a process of one of the programs here, which answers questions about that page."""
    return Respondent(Path(__file__).with_name(program), f"{Path(served().name).as_uri()}/")


UPDATES = "train/n_updates"


def asked(*question):
    return all_asked(question)[0]


def all_asked(*questions):
    return respondent("hive_page.mjs").ask(*questions)


def test_a_name_cannot_hide_or_turn_its_letters():
    points = {"a": {"m": [[1, 1, 1]]}}
    [line] = asked("traces", {"name": "m"}, [run("a", name="a\u202ecod\u200b")], {}, points, {})

    assert line["name"] == "a\\u202ecod\\u200b"


@pytest.mark.parametrize("text", ["=1+1", "+cmd", "-2+3", "@SUM(A1)", "\tx", "\rx"])
def test_a_cell_is_no_formula(text):
    assert asked("cell", text) == f'"\'{text}"'


def test_cells_keep_numbers_and_quote_what_would_end_them():
    cells = all_asked(
        ("cell", -2.5), ("cell", "plain"), ("cell", 'a "b"'), ("cell", "a,b"), ("cell", "a\nb")
    )

    assert cells == ["-2.5", "plain", '"a ""b"""', '"a,b"', '"a\nb"']


def test_a_file_of_curves_has_a_row_for_each_point():
    run = {"name": "=evil", "id": "ab"}
    rows = asked("curveRows", [{"run": run, "name": "m", "points": [[8, -1.5, 1_000_000]]}])

    assert rows[1] == ["=evil", "ab", "m", 8, "1970-01-01T00:00:00.001Z", -1.5]
    assert asked("csv", rows).splitlines()[1] == '"\'=evil",ab,m,8,1970-01-01T00:00:00.001Z,-1.5'


def test_a_file_has_a_harmless_name():
    assert asked("fileName", "../../a b", "best") == "a-b-best"
    assert asked("fileName", "...") == "arkml"


def test_a_view_lies_in_its_address():
    view = {
        **VIEW, "runs": ["ab", "cd"], "q": "a=b&c", "metric": "loss", "sort": "setting:gamma",
        "x": "time", "smooth": 0.6, "log": True, "zoom": [1, 2.5],
        "group": "setting:gamma", "columns": ["name", "metric:a,b"], "hidden": ["checkpoint"],
        "pins": ["train/loss"], "charts": [["a,b", "c"]], "against": "gamma", "of": "return",
        "brush": {"a:b..c": [0.5, None]},
    }  # fmt: skip

    assert asked("again", view) == view
    assert asked("fragment", {"runs": ["ab", "cd"]}) == "#runs=ab,cd"
    assert asked("fragment", {}) == ""


def test_what_is_wrong_in_an_address_is_left_out():
    wrong = "#runs=ok,../x,<b>&x=nonsense&smooth=7&zoom=5,1&log=yes"

    assert asked("view", wrong) == {**VIEW, "runs": ["ok"]}


def test_the_one_time_token_leaves_the_address():
    assert asked("token", "#token=secret&runs=ab,cd") == {
        "token": "secret",
        "address": "/hive/#runs=ab,cd",
    }
    assert asked("token", "#runs=ab") == {"token": "", "address": None}


@pytest.mark.parametrize(
    ("link", "address"),
    [
        ("http://127.0.0.1:12356/#runs=a", "127.0.0.1:12356"),
        ("http://[::1]:12356/", "[::1]:12356"),
        ("http://hive.example/", "http://hive.example"),
        ("https://hive.example/", "https://hive.example"),
        ("https://hive.example:8443/", "https://hive.example:8443"),
        ("https://hive.example/hive/?a=b", "https://hive.example/hive"),
        ("http://hive.example:8080/lab/hive/index.html", "http://hive.example:8080/lab/hive"),
    ],
)
def test_commands_have_the_address_of_the_hive_as_it_is_reached(link, address):
    assert asked("hiveAddress", link) == address


def test_newer_points_are_joined_once_each():
    old, newer = [[1, 1, 10], [2, 2, 20]], [[2, 2, 20], [3, 3, 30]]

    assert asked("joined", old, newer) == [[1, 1, 10], [2, 2, 20], [3, 3, 30]]
    assert asked("joined", old, [[0, 0, 5]]) == [[0, 0, 5], *old]


def test_a_thinned_curve_keeps_its_extremes_and_its_end():
    points = [[step, 0.0, step] for step in range(5_000)]
    points[1_234][1], points[3_000][1] = 9.0, -9.0
    kept = asked("thinned", points, 100)

    assert len(kept) <= 100
    assert points[1_234] in kept
    assert points[3_000] in kept
    assert kept[-1] == points[-1]
    assert kept == sorted(kept, key=lambda point: point[2])
    assert asked("thinned", points[:50], 100) == points[:50]


def test_a_curve_that_grows_never_has_more_than_1000_points():
    curve = asked("grown", 2_500)

    assert curve["longest"] == 1_000
    assert curve["last"][0] == 2_500


def test_smoothing_begins_at_the_first_value():
    assert asked("smoothed", [4, 4, 4], 0.9) == pytest.approx([4, 4, 4])
    assert asked("smoothed", [0, 1], 0.5) == pytest.approx([0, 2 / 3])
    assert asked("smoothed", [0, 1], 0) == [0, 1]


def test_a_curve_over_updates_has_those_of_its_times():
    points, updates = [[10, 1, 100], [20, 2, 200], [30, 3, 400]], [[10, 0, 100], [30, 50, 300]]
    given = {"updates": updates, "started": 0}

    assert asked("onAxis", points, "updates", given) == {"xs": [0, 25, 50], "ys": [1, 2, 3]}
    assert asked("onAxis", points, "rows", given)["xs"] == [10, 20, 30]
    assert asked("onAxis", [[1, 7, 3_000_000_000]], "age", given)["xs"] == [3]
    assert asked("onAxis", [[1, 7, 3_000_000]], "time", given)["xs"] == [3]


def test_seeds_are_a_band_where_all_of_them_are():
    curves = [{"xs": [0, 2, 4], "ys": [0, 2, 4]}, {"xs": [1, 3], "ys": [5, 5]}]
    band = asked("band", curves)

    assert band["xs"] == [1, 2, 3]
    assert band["low"] == [1, 2, 3]
    assert band["high"] == [5, 5, 5]
    assert band["middle"] == [3, 3.5, 4]


def run(id_, **values):
    shape = {"game": "g", "features": 1, "actions": 1, "branches": [], "seed": 0}
    run = {"id": id_, "name": id_, "status": "running", "started_at": 0, "latest": {}}
    return {**run, **shape, "rows": 0, "n_opts": 0, "ended_at": 1, **values}


def test_runs_that_differ_in_their_seed_only_are_one_group():
    rated = run("e", latest={"eval/mean_reward": 1.0})
    other = run("f", seed=2, guest="3e23e816")
    runs = [run("a"), run("b", seed=1), run("c"), run("d", game="h"), rated, other]
    settings = {name: {"gamma": 0.9} for name in "abdef"} | {"c": {"gamma": 0.8}}

    assert asked("seeds", runs, settings) == [["a", "b"], ["c"], ["d"], ["e"], ["f"]]
    made = asked(
        "groups", [run("a", guest="ca978112"), other], {"runs": {}, "defaults": {}}, "seed"
    )
    assert [one["label"] for one in made] == ["guest 3e23e816", "guest ca978112"]


def test_a_chart_of_one_run_has_its_line_its_band_and_its_best():
    spec = {"name": "m", "spread": "s", "best": True}
    points = {"a": {"m": [[1, 5, 10], [2, 9, 20]], "s": [[1, 1, 10], [2, 2, 20]]}}
    low, high, line, best = asked("traces", spec, [run("a", name="<b>a")], {}, points, {})

    assert (low["y"], high["y"]) == ([4, 7], [6, 11])
    assert (line["x"], line["y"], line["name"]) == ([1, 2], [5, 9], "<b>a")
    assert (best["x"], best["y"], best["marker"]["symbol"]) == ([2], [9], "star")


def test_a_chart_of_seeds_has_one_line_unless_they_are_apart():
    runs = [run("a"), run("b", seed=1)]
    points = {"a": {"m": [[1, 1, 1], [2, 2, 2]]}, "b": {"m": [[1, 3, 1], [2, 4, 2]]}}
    joined, apart = all_asked(
        ("traces", {"name": "m"}, runs, {}, points, {}),
        ("traces", {"name": "m"}, runs, {}, points, {"group": "none"}),
    )

    assert [trace["y"] for trace in joined] == [[1, 2], [3, 4], [2, 3]]
    assert [trace["y"] for trace in apart] == [[1, 2], [3, 4]]


def test_a_chart_of_seeds_that_have_no_place_in_common_has_a_line_of_each():
    runs = [run("a"), run("b", seed=1)]
    points = {"a": {"m": [[1, 1, 1]]}, "b": {"m": [[2, 4, 2]]}}
    traces = asked("traces", {"name": "m"}, runs, {}, points, {})

    assert [(trace["x"], trace["y"]) for trace in traces] == [([1], [1]), ([2], [4])]
    assert {trace["mode"] for trace in traces} == {"markers"}


def test_a_chart_of_seeds_marks_the_best_of_all_of_them():
    runs = [run("a"), run("b", seed=1)]
    points = {"a": {"m": [[1, 1, 1], [2, 2, 2]]}, "b": {"m": [[1, 7, 1], [2, 4, 2]]}}
    *_, best = asked("traces", {"name": "m", "best": True}, runs, {}, points, {})

    assert (best["x"], best["y"], best["marker"]["symbol"]) == ([1], [7], "star")


def test_a_chart_has_a_line_where_the_module_of_the_guest_has_changed():
    points = {"a": {"m": [[10, 1, 100], [20, 2, 200], [30, 3, 300]], UPDATES: [[0, 7, 250]]}}
    events = [
        {"at": 90, "kind": "module", "text": "before the first value"},
        {"at": 200, "kind": "checkpoint", "text": "after 8 updates"},
        {"at": 250, "kind": "module", "text": "its state was kept"},
    ]
    by_rows, by_updates, by_age = all_asked(
        ("changes", [run("a")], points, {"a": events}, {}),
        ("changes", [run("a")], points, {"a": events}, {"x": "updates"}),
        ("changes", [run("a", started_at=50)], points, {"a": events}, {"x": "age"}),
    )

    assert by_rows == [{"x": 25, "color": "rgb(1, 2, 3)", "text": "module"}]
    assert [one["x"] for one in by_updates] == [7]
    assert [one["x"] for one in by_age] == [2e-7]


def test_versions_lie_between_the_points_beside_them_and_the_first_ones_at_the_first():
    points = {"m": [[10, 1.0, 100], [20, 2.0, 200]], "train/n_updates": [[5, 3, 90], [25, 7, 210]]}
    versions = [{"version": 1, "at": 50}, {"version": 2, "at": 150}, {"version": 9, "at": 250}]
    by_rows, by_updates, without = all_asked(
        ("versions", run("a"), points, versions, {}),
        ("versions", run("a"), points, versions, {"x": "updates"}),
        ("versions", run("a"), {}, versions, {}),
    )

    assert [(one["version"], one["x"]) for one in by_rows] == [(1, 10), (2, 15), (9, 20)]
    assert [one["x"] for one in by_updates] == pytest.approx([10 / 3, 5, 7])
    assert without == []


def test_a_histogram_is_a_map_of_shares():
    reply = {"times": [1, 2], "rows": [10, 20], "edges": [0, 1, 2], "counts": [[1, 3], [2, 2]]}
    trace = asked("heat", reply)

    assert trace["x"] == [10, 20]
    assert trace["edges"] == [0, 1, 2]
    assert trace["z"] == [[0.25, 0.5], [0.75, 0.5]]


def test_a_histogram_over_updates_lies_where_its_times_do():
    reply = {"times": [1, 2], "rows": [10, 20], "edges": [0, 1], "counts": [[1], [2]]}
    placed = asked("heat", reply, "updates", [[5, 30, 0], [25, 50, 2]])
    unplaced = asked("heat", reply, "updates", [])

    assert (placed["x"], placed["axis"]) == ([40, 50], "updates")
    assert (unplaced["x"], unplaced["axis"]) == ([10, 20], "rows")


def test_a_histogram_is_asked_for_every_half_a_minute_and_drawn_from_what_is_known():
    seconds = [(0, True), (1, True), (29, True), (31, False), (32, True), (62, True)]
    found = asked("histogram", seconds)

    path = "v1/runs/a/histograms actions/0"
    assert found["asked"] == [f"0 {path}", f"31 {path}", f"62 {path}"]
    assert found["drawn"] == [1, 1, 1, 1, 1, 3]


def test_the_parts_of_rows_are_shown_in_words():
    parts = [
        Part("me", (4,)),
        Part("tiles", (20, 6), "entities"),
        Part("b", (9, 9), "grid", 3),
        Part("c", (2, 2, 1), "grid", choices=PlaceChoices("cells", 1, 3)),
        Part("d", (2, 2, 1), "grid", choices=PlaceChoices("rows")),
    ]
    shown = asked("format", "setting", [part.as_json() for part in parts])

    assert shown == in_words(parts)
    assert asked("format", "setting", [3, 2]) == "[3,2]"


def test_every_metric_has_its_place_once():
    names = [
        "rollout/ep_rew_mean", "rollout/ep_rew_p10", "train/q_min", "train/q_mean", "guest/speed",
        "train/new_one", "actions/saturated", "features/clipped", "mine", "hist/x", "time/episodes",
    ]  # fmt: skip
    sections = asked("sections", names, "")
    charts = {section["id"]: [chart["name"] for chart in section["charts"]] for section in sections}

    assert charts["returns"] == ["rollout/ep_rew_mean"]
    assert charts["losses"] == ["train/q_mean"]
    assert charts["actions"] == ["actions/saturated"]
    assert charts["features"] == ["features/clipped"]
    assert charts["guest"] == ["guest/speed", "mine"]
    assert charts["others"] == ["time/episodes", "train/new_one"]
    found = [section["charts"] for section in asked("sections", names, "SPEED")]
    assert [chart["name"] for charts in found for chart in charts] == ["guest/speed"]


def test_every_documented_metric_has_a_section_that_is_not_the_guest_s():
    names = documented("sac", (3, 2)) | documented("ppo", (3, 2))
    shown = [
        (section["id"], name)
        for section in asked("sections", sorted(names), "")
        for chart in section["charts"]
        for key in ("name", "low", "high", "spread")
        if (name := chart.get(key)) in names
    ]
    resources = {name for section, name in shown if section == "resources"}

    assert sorted(name for _, name in shown) == sorted(names)
    assert not [name for section, name in shown if section == "guest"]
    assert resources == {"system/cpu_share", "system/memory_bytes", "system/disk_bytes"}


NEWER = "run a was written by a newer release of arkml"


def answers_of(status, reason):
    """What a hive with two runs answers, by path: for one of them nothing but a reason."""
    own = ("", "/metrics", "/events")
    many = {"runs": [{"run": "a", "curves": [], "error": reason}]}
    return {
        "v1/runs": {"body": {"runs": [run("a"), run("b")]}},
        "v1/settings": {"body": {"defaults": {}, "runs": {}}},
        "v1/usage": {"body": {"usage": []}},
        "v1/curves": {"body": many},
        **{f"v1/runs/a{path}": {"status": status, "body": {"error": reason}} for path in own},
    }


def test_a_run_that_the_hive_refuses_leaves_the_others_and_says_why():
    found = asked("loaded", answers_of(409, NEWER), "a")

    assert found == {
        "failure": None,
        "trouble": NEWER,
        "runs": ["a", "b"],
        "events": None,
        "curves": 1,
    }


def test_a_session_that_has_ended_is_no_trouble_of_a_run():
    found = asked("loaded", answers_of(401, "log in"), "a")

    assert found["failure"] == "log in"
    assert found["trouble"] is None


def session(**figures):
    before = {"index": 1, "role": "train", "rows_per_second": 0.0, "refused": 0, "dropped": 0}
    return {**before, "policy_seconds": 0.0, "lag": 0, **figures}


def test_sessions_have_lines_of_their_rates_their_lag_and_the_age_of_their_policies():
    first = session(rows_per_second=30.0, refused=10, policy_seconds=2.5, lag=1)
    second = session(rows_per_second=60.0, refused=25, dropped=5, policy_seconds=3.5, lag=2)
    found = asked("sampled", [[0, [first]], [10_000, [second, session(index=0)]]])
    lines = {name: [line["y"] for line in traces] for name, traces in found["charts"].items()}
    names = [line["name"] for line in found["charts"]["sessions/lag"]]

    assert names == ["session 0 (train)", "session 1 (train)"]
    assert lines["sessions/accepted"] == [[None, 0], [30, 60]]
    assert lines["sessions/refused"] == [[None, None], [None, 1.5]]
    assert lines["sessions/dropped"] == [[None, None], [None, 0.5]]
    assert lines["sessions/age"] == [[None, 0], [2.5, 3.5]]
    assert lines["sessions/lag"] == [[None, 0], [1, 2]]
    assert (found["refused"], found["dropped"]) == (1.5, 0.5)


def test_a_page_keeps_the_last_900_samples_of_sessions():
    found = asked("sampled", [[1_000 * at, [session()]] for at in range(1_000)])

    assert found["kept"] == 900


def test_a_rate_is_not_of_two_samples_at_once():
    samples = [[0, [session()]], [9_999, [session(refused=9)]], [10_000, [session(refused=20)]]]
    found = asked("sampled", samples)

    assert (found["kept"], found["refused"]) == (2, 2.0)


def test_histograms_and_lines_over_time_are_files_too():
    reply = {"times": [2_000_000], "rows": [10], "edges": [0, 1, 2], "counts": [[3, 4]]}
    heat = asked("heatRows", {"name": "n", "id": "a"}, "hist/actions/0", reply)
    line = {"name": "hive", "x": [], "y": []}
    empty, without = all_asked(
        ("lineRows", {"name": "usage/cpu", "title": "CPU"}, [line]),
        ("heatRows", {"name": "n", "id": "a"}, "hist/actions/0", None),
    )

    at = "1970-01-01T00:00:00.002Z"
    assert heat[1:] == [
        ["n", "a", "hist/actions/0", 10, at, 0, 1, 3],
        ["n", "a", "hist/actions/0", 10, at, 1, 2, 4],
    ]
    assert (empty, without) == ([["chart", "title", "line", "time", "value"]], heat[:1])


def test_a_file_of_lines_has_a_row_for_each_known_value():
    lines = asked("sampled", [[5_000, [session(lag=3)]], [6_000, []]])["charts"]["sessions/lag"]
    rows = asked("lineRows", {"name": "sessions/lag", "title": "Lag"}, lines)

    assert rows[1:] == [["sessions/lag", "Lag", "session 1 (train)", "1970-01-01T00:00:05.000Z", 3]]


def test_runs_are_found_and_sorted_by_what_was_changed():
    runs = [run("a", rows=5), run("b", rows=7), run("c", rows=6, latest={"eval/mean_reward": 1})]
    settings = {"defaults": {"gamma": 0.99}, "runs": {"a": {"gamma": 0.5}, "b": {}, "c": {}}}

    assert asked("changed", runs, settings) == ["gamma"]
    assert asked("searched", runs, "GAMMA=0.5 a", settings) == ["a"]
    assert asked("sorted", runs, "-rows", settings) == ["b", "c", "a"]
    assert asked("sorted", runs, "setting:gamma", settings) == ["a", "b", "c"]
    assert asked("sorted", runs, "-evaluation", settings)[0] == "c"


@pytest.mark.parametrize(
    ("name", "value", "text"),
    [
        ("short", 0.123456, "0.1235"),
        ("short", 1_234_567, "1.235M"),
        ("short", None, ""),
        ("whole", 1234567, "1,234,567"),
        ("bytes", 3 << 20, "3 MiB"),
        ("duration", 3_700, "1 h 1 min"),
        ("setting", 0.10000000149011612, "0.1"),
        ("harmless", "a\x1b[0m", "a\\u001b[0m"),
    ],
)
def test_values_are_short(name, value, text):
    assert asked("format", name, value) == text


def test_a_stream_loads_once_and_resumes_after_its_tab_was_hidden():
    steps = [
        ["event", "open", {}, "7"], ["event", "metrics", {"run": "a"}, "8"], ["hidden", True],
        ["wait", 60_000], ["hidden", False], ["event", "open", {}, "8"], ["watch", ["a", "b"]],
    ]  # fmt: skip
    played = asked("stream", steps)

    assert played["said"] == ["load", "live", "metrics a"]
    assert played["paths"] == [
        "v1/events?runs=",
        "v1/events?runs=&last_event_id=8",
        "v1/events?runs=a%2Cb&last_event_id=8",
    ]
    assert played["open"] == 1


def test_events_that_are_gone_are_loaded_anew():
    steps = [["event", "open", {}, "7"], ["event", "reset", {}, "900"]]

    assert asked("stream", steps)["said"] == ["load", "live", "load"]


def test_a_page_polls_where_nothing_comes():
    steps = [
        ["event", "open", {}, "7"], ["wait", 4_000], ["wait", 2_000],
        ["event", "metrics", {"run": "a"}],
    ]  # fmt: skip

    assert asked("stream", steps)["said"] == [
        "load",
        "live",
        "poll",
        "polling",
        "metrics a",
        "live",
    ]


def test_a_lost_server_is_said_and_recovered_from():
    steps = [
        ["event", "open", {}, "7"], ["server", False], ["broken"], ["wait", 6_000],
        ["wait", 4_000], ["server", True], ["wait", 4_000], ["event", "open", {}, "90"],
    ]  # fmt: skip
    played = asked("stream", steps)

    assert played["said"][:4] == ["load", "live", "poll", "lost"]
    assert played["said"][-1] == "live"
    assert "load" in played["said"][4:]


def test_a_stream_that_is_refused_asks_no_more():
    steps = [["event", "open", {}, "7"], ["status", 403], ["wait", 6_000]]
    steps += [["wait", 60_000], ["hidden", True], ["hidden", False], ["wait", 60_000]]
    played = asked("stream", steps)

    assert played["said"] == ["load", "live", "poll", "refused"]
    assert played["open"] == 0


def test_a_run_that_could_not_be_loaded_is_asked_for_until_it_is_there():
    steps = [
        ["event", "open", {}, "7"], ["server", False], ["need"], ["event", "metrics", {"run": "a"}],
        ["wait", 3_000], ["server", True], ["wait", 3_000], ["event", "metrics", {"run": "a"}],
    ]  # fmt: skip

    assert asked("stream", steps)["said"] == [
        "load", "live", "open", "lost", "metrics a", "open", "open", "polling",
        "metrics a", "live",
    ]  # fmt: skip


def test_a_legend_names_the_settings_in_which_runs_differ():
    runs = [run("a", name="walker"), run("b", name="walker", seed=1), run("c", name="walker 2")]
    points = {one["id"]: {"m": [[1, 1, 1]]} for one in runs}
    given = {"c": {"hidden": 64}}
    apart = asked("traces", {"name": "m"}, runs, given, points, {"group": "none"})
    joined = asked("traces", {"name": "m"}, runs, given, points, {})

    assert [trace["name"] for trace in apart] == [
        "hidden 64", "hidden default, seed 0", "hidden default, seed 1",
    ]  # fmt: skip
    assert "hidden default, 2 seeds" in {trace.get("name") for trace in joined}
