"""What the page of a hive says of labels, of where a run came from, and of its progress."""

import pytest
from tests.unit.test_hive_page import respondent

from arkml.hive.protocol.runs import RunInfo
from arkml.hive_commands.run_progress import RunProgress, progress_of

SECOND = 10**9
SHAPE = {"id": "r1", "name": "run", "game": "game", "features": 3, "actions": 1}
RUN = {
    "status": "running", "started_at": 1_000 * SECOND, "ended_at": 0, "seconds": 0,
    "policy_version": 1,
}  # fmt: skip


def asked(*question):
    return respondent("hive_labels.mjs").ask(question)[0]


@pytest.mark.parametrize(
    ("run", "title"),
    [
        ({"id": "r1", "name": "walker"}, "walker"),
        ({"id": "r1", "name": "walker", "title": ""}, "walker"),
        ({"id": "r1", "name": "walker", "title": "the good one"}, "the good one"),
        ({"id": "r1", "name": ""}, "r1"),
    ],
)
def test_a_run_is_shown_by_its_title_or_its_name(run, title):
    assert asked("title", run) == title


def test_those_who_act_label_and_those_who_read_do_not():
    assert [asked("may", {"role": role}) for role in ("act", "read", "admin")] == [
        True, False, True,
    ]  # fmt: skip
    assert asked("may", None) is False


def test_tags_are_added_once_each():
    assert asked("tags", ["a"], " b, a ,,c d") == ["a", "b", "c d"]


def test_an_origin_is_listed_without_what_is_not_known_and_made_harmless():
    origin = {"command": "arkml \u202egnp", "host": "", "versions": {"arkml": "1", "python": "3"}}
    run = {"goal": {"seconds": 120, "frames": 1_500, "mean_return": -2.5}}

    assert asked("origin", {"origin": origin, "owner_name": "ann"}, run) == [
        ["started by", "ann"],
        ["command", "arkml \\u202egnp"],
        ["versions", "arkml 1, python 3"],
        ["asked for", "2 min, or 1,500 frames, or a mean return of -2.5"],
    ]
    assert asked("origin", {"origin": None}, {}) == []
    assert asked("origin", None, None) == []


@pytest.mark.parametrize(
    ("run", "share", "text"),
    [
        ({}, None, "5 min"),
        ({"seconds": 600}, 0.5, "5 min of 10 min"),
        ({"seconds": 86_400, "goal": {"seconds": 120, "since": 1_240 * SECOND}}, 0.5,
         "1 min of 2 min"),
        ({"seconds": 310, "goal": {"seconds": 3_600, "since": 1_000 * SECOND}}, 300 / 310,
         "5 min of 5 min"),
        ({"goal": {"seconds": 120, "since": 1_000 * SECOND}}, 1, "2 min of 2 min"),
        ({"goal": {"seconds": 120, "since": 1_000 * SECOND}, "policy_version": 0}, 0,
         "0 s of 2 min"),
        ({"seconds": 600, "policy_version": 0}, 0.5, "5 min of 10 min"),
        ({"goal": {"seconds": 120, "since": 1_000 * SECOND}, "status": "paused"}, None, "5 min"),
        ({"goal": {"frames": 600, "seconds": 120}, "frames": 60, "status": "paused"}, 0.1,
         "60 of 600 frames"),
        ({"goal": {"frames": 9_000}}, None, "5 min, 9,000 frames wanted"),
        ({"goal": {"frames": 9_000}, "frames": 2_250}, 0.25, "2,250 of 9,000 frames"),
        ({"goal": {"frames": 600}, "frames": 601}, 1, "600 of 600 frames"),
        ({"goal": {"frames": 600, "seconds": 3_000, "since": 1_000 * SECOND}, "frames": 0}, 0.1,
         "5 min of 50 min"),
        ({"goal": {"mean_return": -200}}, None, "5 min, -200 wanted"),
        ({"goal": {"mean_return": -200}, "latest": {"rollout/ep_rew_mean": -812.34}}, None,
         "5 min, return -812.3, -200 wanted"),
        ({"goal": {"mean_return": 9.5, "frames": 10}, "frames": 5,
          "latest": {"rollout/ep_rew_mean": 1, "eval/mean_reward": 7.25}}, 0.5,
         "5 of 10 frames, return 7.25, 9.5 wanted"),
        ({"goal": {"frames": 600}, "frames": 6, "status": "stopped", "ended_at": 1_090 * SECOND},
         None, "1 min"),
        ({"seconds": 600, "status": "stopped", "ended_at": 1_090 * SECOND}, None, "1 min"),
    ],
)  # fmt: skip
def test_progress_is_that_of_the_limit_that_is_reached_first(run, share, text):
    found = asked("progress", {**RUN, **run}, 1_300_000)
    told = progress_of(RunInfo.from_json({**SHAPE, **RUN, **run}), 1_300 * SECOND)

    assert found["text"] == told.text == text
    assert found["share"] == told.share == (share if share is None else pytest.approx(share))


@pytest.mark.parametrize(
    ("share", "bar"),
    [(None, ""), (0.0, "░░░░░░░░"), (0.3, "██▍░░░░░"), (0.5, "████░░░░"), (1.0, "████████")],
)
def test_a_bar_has_eighths_of_cells(share, bar):
    assert RunProgress(share, "").bar == bar


@pytest.mark.parametrize(
    ("status", "is_page", "is_proxy"),
    [(502, True, True), (502, False, True), (200, True, True), (500, False, False)],
)
def test_an_answer_of_a_proxy_is_told_from_that_of_the_hive(status, is_page, is_proxy):
    sentence = asked("stranger", status, is_page)

    assert sentence.startswith("something between" if is_proxy else "the hive answers")
    assert str(status) in sentence
