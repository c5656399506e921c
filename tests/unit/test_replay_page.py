"""The page of a replay, without a browser; `make test-browser` has the rest."""

import base64
import gzip
import hashlib
import json
import re
import subprocess
from pathlib import Path

import msgspec
import pytest
from tests.node import NODE, run_module
from tests.unit.shown_replays import DRIVER, document, submit

from arkml import page_scripts
from arkml.hive.protocol.replay_messages import ReplayDocument, ShownLine, ShownPart
from arkml.page_scripts.bundle import bundled
from arkml.replays.page import NO_ICON, page_of

PROGRAM = Path(__file__).parent / "replay_page.mjs"
HOSTILE = "</script><script>alert(1)</script><b>"


def asked(*question):
    given = [
        json.loads(one.as_bytes()) if isinstance(one, ReplayDocument) else one for one in question
    ]
    folder = f"{page_scripts.FOLDER.as_uri()}/"
    return run_module(PROGRAM, {"folder": folder, "questions": [given]})[0]


def test_a_frame_without_submits_shows_the_rows_before_it_in_both_directions():
    shown = document([], [submit(["1", "2"], [1, 2])], [], [submit(["2"], [3])])
    scenes = asked("scenes", shown, [3, 2, 1, 0])

    assert [[one["name"] for one in scene["actors"]] for scene in scenes] == [
        ["driver 2"], ["driver 1", "driver 2"], ["driver 1", "driver 2"], [],
    ]  # fmt: skip
    assert [scene["isFresh"] for scene in scenes] == [True, False, True, False]


def test_an_agent_has_one_color_whatever_frame_is_seen_first():
    shown = document([submit(["7"], [0])], [submit(["8", "7"], [0, 0])])
    (later, earlier) = asked("scenes", shown, [1, 0])

    assert {one["name"]: one["color"] for one in later["actors"]} == {"driver 7": 0, "driver 8": 1}
    assert earlier["actors"][0]["color"] == 0


def test_agents_of_several_sessions_have_names_of_their_own():
    shown = document([submit(["1"], [0]), submit(["1"], [0], session=1)])
    (scene,) = asked("scenes", shown, [0])

    assert [one["name"] for one in scene["actors"]] == ["driver 0:1", "driver 1:1"]


def test_numbers_that_are_words_and_values_of_the_policy_are_shown():
    (scene,) = asked("scenes", document([submit(["4"], ["Infinity"], values=[2.5])]), [0])

    (actor,) = scene["actors"]
    assert actor["values"] == [4, "NaN", "-Infinity"]
    assert (actor["actions"], actor["value"]) == ([0.5, 2], 2.5)


def test_the_bytes_of_images_are_in_their_places_among_the_features():
    parts = [
        ShownPart("speed", [1], [None], [None]),
        ShownPart("eye", [1, 1, 3], [0] * 3, [255] * 3, "image"),
        ShownPart("gear", [2], [None] * 2, [None] * 2),
        ShownPart("ear", [1, 1, 1], [0], [255], "image"),
    ]
    seen = {"observations": [[1, "NaN", 3]], "images": [["AP8H", "CQ=="]]}
    one = msgspec.structs.replace(submit(["1"], [0]), **seen)
    other = msgspec.structs.replace(one, images=[["AP8="]])  # they are too short and too few
    behavior = msgspec.structs.replace(DRIVER, observations=parts, positions=[])
    scenes = asked("scenes", document([one], [other], behaviors=[behavior]), [0, 1])

    assert [scene["actors"][0]["values"] for scene in scenes] == [
        [1, 0, 255, 7, "NaN", 3, 9],
        [1, 0, 255, "NaN", "NaN", 3, "NaN"],
    ]


def test_observations_and_actions_have_their_names_and_bounds():
    observed, acted = asked("classes", document([submit(["1"], [0])]))

    assert observed == [
        ["place", [2], [-1, -1], [1, "Infinity"]],
        ["gear", [1], ["-Infinity"], ["Infinity"]],
    ]
    assert acted == [["action", [1], [-1], [1]], ["choice 0", [1], [0], [2]]]


def test_declared_names_stand_for_the_numbers_of_actions_and_choices():
    named = msgspec.structs.replace(
        DRIVER, names=["steer", "gear"], choices=["low", "middle", "high"]
    )
    _, acted = asked("classes", document([submit(["1"], [0])], behaviors=[named]))
    texts = asked("texts", document([submit(["1"], [0])], behaviors=[named]))

    assert acted == [["steer", [1], [-1], [1]], ["gear", [1], [0], [2]]]
    assert texts == [None, ["low", "middle", "high"]]


def test_only_declared_positions_make_a_plane():
    flat = msgspec.structs.replace(DRIVER, positions=[])

    assert asked("plane", document([submit(["1"], [0])]))
    assert not asked("plane", document([submit(["1"], [0])], behaviors=[flat]))


def test_the_time_line_has_the_mean_reward_or_that_of_one_agent():
    shown = document(
        [submit(["1", "2"], [1, 3])], [], [submit(["2"], ["NaN"])], [submit(["2"], [5])]
    )

    assert asked("rewards", shown, "") == [[0, 2], [3, 5]]
    assert asked("rewards", shown, "driver 1") == [[0, 1]]


@pytest.mark.parametrize(
    ("wanted", "index"), [(0, 0), (1, 0), (4, 0), (5, 1), (6, 1), (9, 2), (99, 2)]
)
def test_a_frame_that_is_left_out_is_the_last_one_before_it(wanted, index):
    assert asked("index", [1, 5, 9], wanted) == index


def test_the_byte_of_a_fault_is_marked_in_the_memory():
    rows = asked("dump", {"start": 0xFFF0, "fault": 0xFFF2, "data": b"\0ab<".hex() + "ff" * 14})

    assert [row["address"] for row in rows] == ["0x0000fff0", "0x00010000"]
    assert rows[0]["text"].startswith("·ab<·")
    assert [byte["hex"] for byte in rows[0]["bytes"] if byte["isFault"]] == ["62"]
    assert len(rows[1]["bytes"]) == 2


def test_scripts_are_joined_into_one_module_that_node_takes(tmp_path):
    script = bundled("replay_page.js")
    path = tmp_path / "bundle.mjs"
    path.write_text(script)

    assert not re.search(r"^(import|export)\b", script, re.MULTILINE)
    assert script.count("class Plane ") == script.count("class ReplayView ") == 1
    subprocess.run([NODE, "--check", path], check=True, capture_output=True)


def test_a_page_permits_its_own_script_and_style_and_nothing_else():
    page = page_of(document([submit(["1"], [0])])).decode()
    policy = re.search(r'Content-Security-Policy" content="([^"]*)"', page)[1]
    inside = [
        re.search(r'<script type="module">(.*?)</script>', page, re.DOTALL)[1],
        re.search(r"<style>(.*?)</style>", page, re.DOTALL)[1],
    ]
    hashes = [base64.b64encode(hashlib.sha256(one.encode()).digest()).decode() for one in inside]

    assert policy == (
        f"default-src 'none'; script-src 'sha256-{hashes[0]}'; style-src 'sha256-{hashes[1]}';"
        " img-src data:; base-uri 'none'; form-action 'none'"
    )
    assert not re.search(r"(src|href)=|https?://", page.replace(NO_ICON, ""))


def test_texts_of_a_guest_are_in_the_document_only():
    shown = document([], guest=HOSTILE, lines=[ShownLine(1, "info", HOSTILE)], notes=[HOSTILE])
    page = page_of(shown).decode()
    packed = re.search(r'<script id="document" type="text/plain">([^<]*)</script>', page)[1]

    assert "<script>alert" not in page
    assert page.count("</script>") == 2
    assert ReplayDocument.from_bytes(gzip.decompress(base64.b64decode(packed))) == shown
