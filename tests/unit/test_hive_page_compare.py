"""The comparison of runs on the hive's page: groups, filters, returns against settings."""

import pytest
from tests.unit.test_hive_page import all_asked, asked, run

GAMMAS = [0.8, 0.85, 0.9, 0.93, 0.95, 0.97, 0.98, 0.985, 0.99, 0.995]
MARKUP = "<img src=x onerror=alert(1)>\u202e"


def settings_of(defaults=None, **runs):
    return {"defaults": {"gamma": 0.99, "hidden": 64, **(defaults or {})}, "runs": runs}


def of_gammas(count=33):
    runs = [run(f"r{n:02}", name=f"corridor-{n}", seed=n // 10) for n in range(count)]
    return runs, settings_of(**{f"r{n:02}": {"gamma": GAMMAS[n % 10]} for n in range(count)})


def labels(runs, settings, by="seed"):
    return [group["label"] for group in asked("groups", runs, settings, by)]


def test_the_groups_of_33_runs_are_named_by_their_gammas_and_look_different():
    groups = asked("groups", *of_gammas(), "seed")

    assert [group["label"] for group in groups] == [
        f"gamma {gamma}, {4 if place < 3 else 3} seeds" for place, gamma in enumerate(GAMMAS)
    ]
    assert len({group["looks"] for group in groups}) == 10


def test_ten_groups_of_dashes_and_marks_are_unlike_with_two_colors_only():
    """The page has eight colors, so that 40 groups are unlike."""
    runs = [run(f"r{n:02}") for n in range(10)]
    groups = asked("groups", runs, settings_of(), "none")

    assert len({group["looks"] for group in groups}) == 10


def test_a_value_that_is_the_default_is_said_as_a_number():
    runs = [run("a"), run("b")]

    assert labels(runs, settings_of(a={"gamma": 0.5})) == ["gamma 0.5", "gamma 0.99"]


def test_runs_that_differ_in_nothing_but_their_names_are_called_by_them():
    runs = [run("a", name="walker"), run("b", name="runner", title="Best so far")]

    assert labels(runs, settings_of(), "none") == ["walker", "Best so far"]


def test_the_same_settings_are_told_apart_by_their_seeds_and_else_by_names():
    seeds = [run("a"), run("b", seed=1), run("c")]
    names = [run("a", name="x"), run("b", name="y"), run("c")]
    settings = settings_of(a={"gamma": 0.5}, b={"gamma": 0.5})

    assert labels(seeds, settings, "none") == [
        "gamma 0.5, seed 0",
        "gamma 0.5, seed 1",
        "gamma 0.99",
    ]
    assert labels(names, settings, "none") == ["gamma 0.5, x", "gamma 0.5, y", "gamma 0.99"]


def test_groups_by_game_and_by_a_setting_take_runs_of_other_settings_along():
    runs = [run("a"), run("b", game="h"), run("c"), run("d", game="h")]
    settings = settings_of(a={"gamma": 0.5}, b={"gamma": 0.5, "hidden": 32})

    assert labels(runs, settings, "game") == ["g, 2 runs", "h, 2 runs"]
    assert labels(runs, settings, "setting:gamma") == ["gamma 0.5, 2 runs", "gamma 0.99, 2 runs"]
    assert asked("choices", runs, settings) == [
        ["seed", "seeds joined"], ["none", "each run"], ["game", "game"],
        ["setting:gamma", "gamma"], ["setting:hidden", "hidden"],
    ]  # fmt: skip


def test_keys_of_a_configuration_tell_groups_apart_too():
    runs = [run("a"), run("b")]
    settings = settings_of(a={"other": {"level": 1}}, b={"other": {"level": 2, "__proto__": 3}})

    assert labels(runs, settings)[0] == "other.__proto__ 3, other.level 2"


def test_a_label_has_no_marks_that_turn_its_letters():
    runs = [run("a", name=MARKUP), run("b", name="b")]

    assert labels(runs, settings_of(), "none")[0] == MARKUP.replace("\u202e", "\\u202e")


FOUND = {
    "": "abc", "return>450": "b", "return>=450": "bc", "rows<1e6": "ac", "rows<2k": "a",
    "gamma=0.98": "a", "GAMMA=0.98": "a", "gamma=0.9..0.99": "ac", "gamma=..0.9": "bc",
    "gamma!=0.98": "bc", "tag:good": "a", "tag:goo": "", "status:run": "ac", "status=run": "",
    "game:corr": "b", "starred": "c", "archived": "d", "walk": "a", "walk return>450": "",
    'name:"a walk"': "a", "train/loss<1": "b", "hidden=64": "abc", "evaluation>0": "",
    "hours<1": "abc", "updates=0": "abc", "good": "a", "level=3": "", "other.level=3": "c",
}  # fmt: skip


@pytest.mark.parametrize(("q", "ids"), FOUND.items())
def test_a_search_takes_comparisons_ranges_and_words(q, ids):
    mean = "rollout/ep_rew_mean"
    runs = [
        run("a", name="a walk", rows=1_000, tags=["good"], latest={mean: 100}),
        run(
            "b", game="corridor", status="stopped", rows=2_000_000,
            latest={mean: 500, "train/loss": 0.5},
        ),
        run("c", rows=5_000, starred=True, latest={mean: 450}),
        run("d", archived=True),
    ]  # fmt: skip
    settings = settings_of(
        a={"gamma": 0.9800000190734863}, b={"gamma": 0.8}, c={"gamma": 0.9, "other": {"level": 3}}
    )

    known = q != "level=3"
    assert "".join(asked("searched", runs, q, settings)) == ids
    assert (asked("wrong", runs, q, settings) == "") is known


@pytest.mark.parametrize(
    ("q", "part"),
    [
        ("gama=1", 'there is no "gama" to compare'),
        ("return>high", '"return>high" compares with a text: > takes a number'),
        (">450", "does not say what is compared"),
        ("return>", "has no value"),
        ("gamma=0.99..0.9", "is not a range"),
        ("gamma=..", "is not a range"),
        ("__proto__=1", 'there is no "__proto__"'),
        ("constructor:x", 'there is no "constructor"'),
        ("rows\u202ex=1", "rows\\u202ex"),
        ("<img src=x>", '"<img" does not say what is compared'),
        ("x" * 10_000, "a search takes 500 letters at most"),
        ("a=" * 5_000, "a search takes 500 letters at most"),
    ],
)
def test_a_wrong_search_finds_nothing_and_is_said_in_a_sentence(q, part):
    runs = [run("a", name="x" * 600)]

    assert asked("searched", runs, q, settings_of()) == []
    assert part in asked("wrong", runs, q, settings_of())


def test_an_address_keeps_one_letter_more_than_a_search_takes():
    view = asked("view", f"#q={'x' * 10_000}")

    assert len(view["q"]) == 501


def test_rubbish_in_an_address_is_left_out():
    rubbish = (
        "#group=<b>&chart=[1]&chart={}&chart=[[[&chart=[]&of=worst&brush=:a&brush=1..x:a"
        "&brush=1..2&brush=a&band=2&column=&pin=&hide=&against=" + "&pin=".join(map(str, range(99)))
    )
    view = asked("view", rubbish)

    assert (view["group"], view["charts"], view["of"], view["brush"]) == ("", [], "best", {})
    assert len(view["pins"]) == 24
    assert asked("view", "#band=0")["group"] == "none"


def test_medians_of_returns_are_those_of_each_value():
    mean = "rollout/ep_rew_mean"
    returns = {"a": 1, "b": 5, "c": 2, "d": 4, "e": 8}
    runs = [run(id_, latest={mean: value}) for id_, value in returns.items()]
    settings = settings_of(
        a={"gamma": 0.5}, b={"gamma": 0.5}, c={"gamma": 0.5}, d={"gamma": 0.9}, e={"gamma": 0.9}
    )
    [axis] = asked("medians", runs, settings, "return", {})

    assert axis == {
        "name": "gamma", "isLog": False, "categories": None,
        "medians": [[0.5, 2, 3], [0.9, 6, 2]],
    }  # fmt: skip
    assert asked("median", [3, None, 1, 2, 10]) == 2.5
    assert asked("median", []) is None


def test_an_axis_of_decades_is_logarithmic_and_one_of_texts_has_categories():
    runs = [run("a"), run("b"), run("c", game="h")]
    settings = settings_of(
        {"rate": 1e-3, "kind": "sac"}, a={"rate": 1e-5}, b={"rate": 1e-4, "kind": "ppo"}
    )
    axes = {axis["name"]: axis for axis in asked("medians", runs, settings, "return", {})}

    assert axes["rate"]["isLog"]
    assert axes["kind"]["categories"] == ["ppo", "sac"]
    assert axes["game"]["categories"] == ["g", "h"]


def test_the_best_evaluation_is_never_below_the_last_one():
    evaluated = [run("a", latest={"eval/mean_reward": 3}), run("b", latest={"eval/mean_reward": 7})]
    settings = settings_of(a={"gamma": 0.5})

    [best] = asked("medians", evaluated, settings, "best", {"a": 9, "b": 2})
    [last] = asked("medians", evaluated, settings, "evaluation", {"a": 9, "b": 2})
    assert best["medians"] == [[0.5, 9, 1], [0.99, 7, 1]]
    assert last["medians"] == [[0.5, 3, 1], [0.99, 7, 1]]


def test_a_brushed_axis_leaves_out_the_runs_beyond_it():
    runs, settings = of_gammas(10)
    settings["defaults"]["kind"] = "sac"
    settings["runs"]["r09"]["kind"] = "ppo"

    within = asked("within", runs, settings, {"gamma": [0.9, 0.97]})
    assert within == ["r02", "r03", "r04", "r05"]
    assert asked("within", runs, settings, {"gamma": [0.99, None]}) == ["r08", "r09"]
    assert asked("within", runs, settings, {"gamma": [0.99, None], "kind": [2, 2]}) == ["r08"]


def test_a_file_of_returns_has_a_row_for_each_run():
    runs = [run("a", rows=5), run("b", rows=7, seed=3)]
    settings = settings_of({"kind": "sac"}, a={"gamma": 0.5}, b={"kind": "ppo"})

    assert asked("sweepRows", runs, settings) == [
        ["run", "id", "seed", "gamma", "kind", "r"],
        ["a", "a", 0, 0.5, "sac", 5],
        ["b", "b", 3, 0.99, "ppo", 7],
    ]


def test_ticks_are_round_numbers_and_places_lead_back_to_values():
    linear = {"isLog": False, "low": 0.8, "high": 0.995}
    decades = {"isLog": True, "low": 1e-5, "high": 1e-2}

    assert asked("ticks", linear) == [0.8, 0.85, 0.9, 0.95]
    assert asked("ticks", decades) == pytest.approx([1e-5, 1e-4, 1e-3, 1e-2])
    assert asked("ticks", {"isLog": False, "low": 2, "high": 2}) == [2]
    for axis in (linear, decades):
        middle = axis["low"] * 1.2
        assert asked("places", axis, [axis["low"], middle]) == pytest.approx([axis["low"], middle])


def test_columns_of_settings_and_metrics_have_their_texts():
    one = run("a", latest={"train/loss": 0.123456})
    texts = all_asked(
        ("cellText", one, "setting:gamma", settings_of()),
        ("cellText", one, "metric:train/loss", settings_of()),
        ("cellText", one, "metric:__proto__", settings_of()),
        ("cellText", one, "nonsense", settings_of()),
    )

    assert texts == ["0.99", "0.1235", "", None]


@pytest.mark.parametrize(
    "text", ["", "{", "{}", "[1]", '[["a"]]', '[["a", 1]]', f'[["{"x" * 61}", ""]]', None]
)
def test_saved_views_that_are_no_views_are_left_out(text):
    assert asked("views", text) == []


def test_saved_views_are_bounded():
    assert (
        asked("views", "[" + ",".join(['["a", "#x=time"]'] * 99) + "]") == [["a", "#x=time"]] * 50
    )


def test_the_curves_of_many_runs_are_one_request():
    found = asked("bulk", {"runs": [f"r{n}" for n in range(33)]})

    assert found["asked"] == [["v1/curves", 33, ["a", "b"]]]
    assert set(found["points"]) == {1}


def test_a_run_that_is_refused_has_no_curve_and_is_not_asked_for_again():
    found = asked("bulk", {"runs": ["a", "b"], "refused": ["b"]})

    assert len(found["asked"]) == 1
    assert found["points"] == [1, 0]


def test_a_run_that_reports_after_the_page_was_opened_has_its_metrics():
    answers = {
        "v1/runs": {"runs": [run("a")]},
        "v1/settings": settings_of(),
        "v1/usage": {"usage": []},
        "v1/runs/a": {},
        "v1/runs/a/events": {"events": []},
    }

    assert asked("reportedLater", answers) == ["m"]


def test_a_page_loads_once_although_browsers_have_an_event_named_open_too():
    assert asked("stream", [["connected"]])["said"] == ["load", "live"]


def test_requests_for_curves_stay_within_what_the_hive_gives():
    names = [f"n{n}" for n in range(100)]
    portions = asked("portions", [f"r{n}" for n in range(70)], names, 200)

    assert max(runs for runs, _ in portions) == 64
    assert max(runs * count * 200 for runs, count in portions) <= 250_000
    assert sum(runs * count for runs, count in portions) == 70 * 100


def test_a_chart_of_several_metrics_has_a_line_of_each():
    runs = [run("a")]
    points = {"a": {"m": [[1, 5, 10]], "n": [[1, 6, 10]]}}
    lines = asked("traces", {"name": "chart", "names": ["m", "n"]}, runs, {}, points, {})

    assert [(line["name"], line["y"]) for line in lines] == [("m", [5]), ("n", [6])]
    assert lines[0]["line"] != lines[1]["line"]


def test_the_same_metrics_of_groups_share_a_dash_and_each_group_a_color():
    runs = [run("a"), run("b")]
    points = {id_: {"m": [[1, 5, 1], [2, 5, 2]], "n": [[1, 6, 1], [2, 6, 2]]} for id_ in "ab"}
    spec = {"name": "chart", "names": ["m", "n"]}
    lines = asked("traces", spec, runs, {"a": {"gamma": 0.5}}, points, {})
    looks = {line["name"]: (line["line"]["color"], line["line"]["dash"]) for line in lines}

    assert set(looks) == {f"{name}, gamma {gamma}" for name in "mn" for gamma in (0.5, "default")}
    assert looks["m, gamma 0.5"][0] == looks["n, gamma 0.5"][0]
    assert looks["m, gamma 0.5"][1] == looks["m, gamma default"][1]
    assert looks["m, gamma 0.5"][1] != looks["n, gamma 0.5"][1]
