"""`arkml state save`, `load` and `show`."""

import hashlib
import json
import os
import shutil
import zlib

import pytest
from tests.integration.command_line import arkml as invoke
from tests.integration.guest_text import ACTOR, GUESTS, POINTMASS, data, function, module

from arkml import FleetSnapshot, GuestSnapshot, Host
from arkml.abi.codes import SnapshotFormat
from arkml.guests.guest import calls_of
from arkml.sessions import results

APPLET = GUESTS / "c_applet.wasm"
TRAPS = module(
    "(global $frames (mut i32) (i32.const 0))",
    function(
        "ark_applet_update",
        "(global.set $frames (i32.add (global.get $frames) (i32.const 1)))"
        "(if (i32.gt_u (global.get $frames) (i32.const 5)) (then unreachable))",
    ),
)


TIMED = module(
    data(100, (8).to_bytes(4, "little") + "load".encode("utf-16-le")),  # of AssemblyScript
    function("ark_applet_update", "(call $time (i32.const 104))"),
    imports=['(import "env" "console.time" (func $time (param i32)))'],
)


def saved(tmp_path, *words, name="a.state"):
    result = invoke("state", "save", tmp_path / name, APPLET, *words)
    assert result.status == 0, result.err
    return tmp_path / name


def test_a_guest_goes_on_behind_the_frames_that_it_had(tmp_path):
    file = saved(tmp_path, "--frames", "40")
    with Host() as host:
        again = host.restore(file, APPLET)
        assert again.call("frames") == 40

    loaded = invoke("state", "load", file, APPLET, "--frames", "11")
    assert loaded.status == 0
    assert "frame 51: 8 episodes" in loaded.err


def test_what_is_saved_twice_is_what_is_saved_once(tmp_path):
    whole = saved(tmp_path, "--frames", "70", name="whole.state")
    part = saved(tmp_path, "--frames", "30", name="part.state")
    with Host() as host:
        guest = host.restore(part, APPLET)
        for _ in range(40):
            guest.update()
        assert bytes(guest.snapshot()) == whole.read_bytes()


def test_a_fleet_goes_on_with_as_many_guests(tmp_path):
    file = saved(tmp_path, "--frames", "3", "--instances", "7")
    assert len(FleetSnapshot.load(file)) == 7

    assert invoke("state", "load", file, APPLET, "--frames", "2", "--json").json["instances"] == 7
    same = invoke("state", "load", file, APPLET, "--instances", "7", "--frames", "2", "--json")
    assert same.json["instances"] == 7
    other = invoke("state", "load", file, APPLET, "--instances", "3")
    assert other.status == 2
    assert "a fleet of 7, which goes on with as many guests" in other.err


def test_each_guest_of_a_fleet_goes_on_from_the_state_of_one(tmp_path):
    file = saved(tmp_path, "--frames", "40")
    loaded = invoke("state", "load", file, APPLET, "--instances", "3", "--frames", "11")

    assert loaded.status == 0
    assert "#0: frame 51: 8 episodes" in loaded.err


def test_a_state_is_shown_without_its_module(tmp_path):
    file = saved(tmp_path, "--frames", "3", "--instances", "4")
    shown = invoke("state", "show", file, "--json").json
    state = FleetSnapshot.load(file)

    assert shown["sessions"] == [
        {
            "features": 2, "actions": 1, "policy": shown["sessions"][0]["policy"],
            "run": None, "sessions": 4, "agents": 0, "remembered": 0,
        }
    ]  # fmt: skip
    assert shown["sessions"][0]["policy"].endswith("(ONNX)")
    del shown["sessions"]
    assert shown == {
        "kind": "fleet", "name": "c_applet.wasm", "module": state.module, "guests": 4, "saved": 4,
        "memory_bytes": 4 * 131_072, "held_bytes": state.nbytes, "globals": 1,
        "file_bytes": file.stat().st_size, "unpacked_bytes": shown["unpacked_bytes"],
        "version": 1, "timers": {}, "futures": {}, "brains": {},
    }  # fmt: skip
    table = invoke("state", "show", file)
    assert table.status == 0
    for text in (
        "the state of a fleet", state.module, "512.0 KiB", "sessions", "none waiting",
        "unpacked, in version 1 of its form",
    ):  # fmt: skip
        assert text in table.out
    assert shown["unpacked_bytes"] == len(zlib.decompress(file.read_bytes()[13 + 32 :]))


def test_timers_that_wait_are_shown(tmp_path):
    source = tmp_path / "timed.wat"
    source.write_bytes(TIMED)
    file = tmp_path / "a.state"
    done = invoke("state", "save", file, source, "--frames", "2", "--instances", "3")
    assert done.status == 0, done.err

    assert invoke("state", "show", file, "--json").json["timers"] == {"load": 3}
    assert "1 waiting: load" in invoke("state", "show", file).out


def test_results_and_models_that_are_in_a_state_are_shown(tmp_path):
    file = tmp_path / "a.state"
    with Host() as host:
        guest = host.load(ACTOR)
        services = calls_of(guest).services
        services.futures.open(results.METRICS_V3)
        brains = services.handler("ark-ml-inference-v0")
        brains.load_inference_async(brains.create_runtime(), SnapshotFormat.ONNX, POINTMASS)
        guest.snapshot().save(file)
    shown = invoke("state", "show", file)

    assert shown.status == 0
    assert "1 of metric vector of v3" in shown.out
    assert f"1 of {hashlib.sha256(POINTMASS).hexdigest()[:12]} (ONNX)" in shown.out


def test_a_guest_that_fails_is_not_saved(tmp_path):
    source = tmp_path / "traps.wat"
    source.write_bytes(TRAPS)
    result = invoke("state", "save", tmp_path / "a.state", source, "--frames", "9")

    assert result.status == 1
    assert "failed in frame 6 of 9" in result.err
    assert not (tmp_path / "a.state").exists()


@pytest.mark.parametrize("words", [("state", "load"), ("state", "show")])
def test_a_file_that_is_no_state_is_refused_in_a_sentence(tmp_path, words):
    file = saved(tmp_path, "--frames", "1")
    whole = file.read_bytes()
    guest = () if words[1] == "show" else (APPLET,)
    for content, reason in (
        (b"\0asm", "is not the state of a guest"),
        (whole[:-1], "is damaged"),
        (whole[:12] + b"\x09" + whole[13:], "of a later release"),
    ):
        file.write_bytes(content)
        result = invoke(*words, file, *guest)
        assert result.status == 2
        assert reason in result.err
        assert result.err.count("error:") == 1
    missing = invoke(*words, tmp_path / "none.state", *guest)
    assert missing.status == 2
    assert "cannot be read" in missing.err


def test_the_state_of_another_module_is_refused(tmp_path):
    """It was refused by what the other module lacks here, such as a function of its game."""
    file, lacking = saved(tmp_path, "--frames", "1"), tmp_path / "lacking.wat"
    lacking.write_text('(module (import "env" "f" (func)) (func (export "ark_applet_update")))')

    for other in (GUESTS / "c_echo.wasm", GUESTS / "c_servlet.wasm", lacking):
        result = invoke("state", "load", file, other)
        assert result.status == 2
        assert result.err.startswith(
            "error: the state belongs to another module: it is of c_applet.wasm, whose"
        )


def test_no_file_that_is_read_is_written_over(tmp_path):
    guest = tmp_path / "a.wasm"
    shutil.copy(APPLET, guest)
    os.link(guest, tmp_path / "b.wasm")
    result = invoke("state", "save", tmp_path / "b.wasm", guest)

    assert result.status == 2
    assert guest.read_bytes() == APPLET.read_bytes()


def test_json_has_the_run_and_nothing_else(tmp_path):
    result = invoke("state", "save", tmp_path / "a.state", APPLET, "--frames", "2", "--json")

    assert json.loads(result.out)["frames"] == 2
    assert GuestSnapshot.load(tmp_path / "a.state").name == "c_applet.wasm"
