"""`arkml publish` as a process: what it prints, and its exit codes."""

import json

import pytest
from tests.integration.command_line import arkml
from tests.integration.duel_guest import duel
from tests.integration.guest_text import GUESTS

from arkml.policies.constant import zeros

APPLET = GUESTS / "c_applet.wasm"
POINTMASS = GUESTS / "policies/pointmass.onnx"


def test_a_folder_is_written_and_told(tmp_path):
    site = tmp_path / "site"
    words = ("--policy", POINTMASS, "-o", site, "--license", "MIT", "--json")
    ended = arkml("publish", APPLET, *words)
    told = json.loads(ended.out)

    assert ended.status == 0, ended.err
    assert told["files"] == {path.name: path.stat().st_size for path in site.iterdir()}
    assert told["trains"] is False
    assert ended.err == ""


def test_the_policies_of_other_behaviors_are_named(tmp_path):
    (tmp_path / "duel.wat").write_bytes(duel("left", "right"))
    (tmp_path / "l.onnx").write_bytes(zeros(2, 1))
    (tmp_path / "r.onnx").write_bytes(zeros(3, 1))
    words = ("publish", "duel.wat", "--policy", "l.onnx", "-o", "site", "--license", "MIT")
    ended = arkml(*words, "--other", "right=r.onnx", "--json", cwd=tmp_path)
    refused = arkml(*words, "--other", "rihgt=r.onnx", cwd=tmp_path)

    assert ended.status == 0, ended.err
    assert {"duel.wasm", "policy.wasm", "policy-1.wasm"} <= set(json.loads(ended.out)["files"])
    assert refused.status == 2
    assert "others (--other) has 'rihgt', and duel.wat declares left, right" in refused.err


def test_a_license_is_asked_for(tmp_path):
    ended = arkml("publish", APPLET, "--policy", POINTMASS, "-o", tmp_path / "site")

    assert ended.status == 0
    assert "the card names no license: give one with --license" in ended.err
    assert "index.html" in ended.out


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ((APPLET, "--policy", POINTMASS), "Missing option '-o'"),
        ((APPLET, "-o", "SITE"), "name a policy, a replay, or both"),
        ((APPLET, "-o", "SITE", "--policy", POINTMASS, "--fps", "0"), "fps is 0"),
        ((GUESTS / "c_servlet.wasm", "-o", "SITE", "--policy", POINTMASS), "has no frame"),
        ((APPLET, "-o", "SITE", "--policy", "none.onnx"), "none.onnx"),
    ],
)
def test_what_cannot_be_published_ends_with_two(words, said, tmp_path):
    given = [tmp_path / "site" if word == "SITE" else word for word in words]
    ended = arkml("publish", *given)

    assert ended.status == 2
    assert said in ended.err
    assert not (tmp_path / "site").exists()
