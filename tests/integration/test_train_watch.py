"""`arkml train --watch`: a guest that is rebuilt while it trains."""

import hashlib
import json
import re

import pytest
from tests.integration.command_line import GUESTS, arkml
from tests.integration.guest_text import function, module
from tests.integration.rebuilt_modules import (
    BROKEN,
    with_a_note,
    with_a_trap,
    with_a_trap_unless,
    with_other_data,
)

from arkml.hive.protocol.worker_jobs import environment_seed
from arkml.training.guest_trainer import GuestTrainer
from arkml.training.training_options import Goal, TrainingOptions

PENDULUM = (GUESTS / "c_pendulum.wasm").read_bytes()
SEEDED = (GUESTS / "c_reach_seeded.wasm").read_bytes()
TABLES = module(
    '(type $calls (func)) (table (export "t") 1 (ref null $calls))',
    function("ark_applet_update", "(table.set (i32.const 0) (ref.null $calls))"),
)
OTHER_RUN = (GUESTS / "c_pendulum_no_velocity.wasm").read_bytes()
QUICK = {"algorithm": "drawn", "hidden": 32, "batch_size": 64, "memory_min_size": 640}
LONG = 60.0  # minutes, which no test lasts


def short(module):
    """The beginning of a module's digest, as sentences have it."""
    return hashlib.sha256(module).hexdigest()[:12]


def events(directory):
    """The events of the one run of a training: their kinds and texts."""
    (file,) = directory.rglob("history.jsonl")
    return [(one["kind"], one["text"]) for one in map(json.loads, file.read_text().splitlines())]


def trained(tmp_path, changes, instances=1, guest=PENDULUM, **options):
    """Train while the guest is rebuilt, up to the sentence that follows the last change."""
    path, said = tmp_path / "npc.wasm", []
    path.write_bytes(guest)
    waiting, left = None, list(changes)

    def progress(state):
        nonlocal waiting
        said.extend(state.warnings)
        has_begun = state.rows and all(worker.rows for worker in state.workers)
        if not has_begun or not (waiting is None or any(waiting in line for line in said)):
            return True
        if not left:
            return False
        said.clear()
        rebuilt, waiting = left.pop(0)
        path.write_bytes(rebuilt)
        return True

    options = TrainingOptions(
        "npc.wasm", tmp_path / "out", goal=Goal(minutes=LONG), fps=60,
        watch=path, instances=instances, settings=QUICK,
        **{"eval_every": None, **options},
    )  # fmt: skip
    with GuestTrainer(guest, options, progress) as trainer:
        trainer.play()
        result = trainer.finish()
    record = json.loads((tmp_path / "out" / "training.json").read_text())
    return result, record["sha256"]


@pytest.mark.parametrize("instances", [1, 3])
def test_a_rebuilt_guest_trains_on_and_one_that_does_not_fit_is_not_taken(tmp_path, instances):
    kept, anew = with_a_note(PENDULUM), with_other_data(PENDULUM)
    result, digest = trained(
        tmp_path,
        [
            (kept, f"reloaded {hashlib.sha256(kept).hexdigest()[:12]} in"),
            (BROKEN, "not reloaded, the module before goes on"),
            (anew, "its state begins anew"),
            (module(), "not reloaded, the module before goes on: npc.wasm exports no ark_appl"),
            (OTHER_RUN, "it starts the run 'hard_pendulum', and this training is of 'pendulum'"),
        ],
        instances,
    )

    assert result.end_reason == "stopped"
    assert result.errors == ()
    assert any("its state was kept: only code has changed" in line for line in result.warnings)
    noted = [text for kind, text in events(tmp_path / "out") if kind == "module"]
    assert noted[:2] == [
        f"the guest is {short(kept)} after {short(PENDULUM)}: its state was kept",
        f"the guest is {short(anew)} after {short(kept)}: its state begins anew",
    ]
    assert noted[-1].startswith(f"the guest goes back from {short(OTHER_RUN)} to {short(anew)}: it")
    assert any("the module before begins anew" in line for line in result.warnings)
    assert digest == hashlib.sha256(anew).hexdigest()


def test_a_guest_that_traps_after_it_was_rebuilt_trains_on_as_it_was(tmp_path):
    said = "goes on with the module before, which begins anew as its run was left"
    kept = with_a_note(PENDULUM)
    changes = [(with_a_trap(PENDULUM), said), (kept, "reloaded")]
    result, digest = trained(tmp_path, changes)

    assert (result.end_reason, result.errors) == ("stopped", ())
    assert digest == hashlib.sha256(kept).hexdigest()


def test_all_workers_go_on_with_a_rebuilt_guest(tmp_path):
    kept, anew = with_a_note(PENDULUM), with_other_data(PENDULUM)
    result, digest = trained(
        tmp_path,
        [
            (kept, "workers 1 and 2 reloaded"),
            (BROKEN, "not reloaded, the module before goes on"),
            (anew, "workers 1 and 2 reloaded"),
            (with_a_trap(PENDULUM), "goes on with the module before"),
        ],
        actors=3,
    )

    assert (result.end_reason, result.errors) == ("stopped", ())
    assert [one for one in result.warnings if "workers 1 and 2" in one] == [
        f"npc.wasm: workers 1 and 2 reloaded {short(kept)}, too: the state was kept: only code has"
        " changed",
        f"npc.wasm: workers 1 and 2 reloaded {short(anew)}, too: the state begins anew",
    ]
    assert not any("died" in one for one in result.warnings)
    assert [worker.incarnation for worker in result.workers] == [0, 0, 0]
    assert digest == hashlib.sha256(anew).hexdigest()


def test_all_go_back_if_one_worker_cannot_go_on_with_a_rebuilt_guest(tmp_path):
    seeds = [environment_seed(1, worker, 0) for worker in range(3)]
    bit = next(bit for bit in range(6) if [seed >> bit & 1 for seed in seeds] == [1, 0, 0])
    choosy = with_a_trap_unless(with_other_data(SEEDED), bit)
    kept = with_a_note(SEEDED)
    result, digest = trained(
        tmp_path,
        [(choosy, "the module before"), (kept, "workers 1 and 2 reloaded")],
        guest=SEEDED, actors=3, seed=1,
    )  # fmt: skip

    assert (result.end_reason, result.errors) == ("stopped", ())
    (back,) = [one for one in result.warnings if "the module before begins anew" in one]
    assert re.match(r"npc\.wasm: worker [12]: npc\.wasm failed right after a reload", back)
    assert not any(f"reloaded {short(choosy)}, too" in one for one in result.warnings)
    assert digest == hashlib.sha256(kept).hexdigest()


def test_a_rebuilt_guest_whose_evaluations_cannot_be_recorded_is_not_taken(tmp_path):
    said = "npc.wasm cannot be recorded from an evaluation on: it has instruct"
    _, digest = trained(tmp_path, [(TABLES, said)], eval_every=10**9, trace_every=1)

    assert digest == hashlib.sha256(PENDULUM).hexdigest()


@pytest.mark.parametrize(
    ("guest", "words", "sentence"),
    [
        ("ark_api/cmdlet_train_016.wasm", ["--cmdlet", ""], "--watch does not go with"),
    ],
)
def test_watch_is_for_frames(tmp_path, guest, words, sentence):
    refused = arkml("train", GUESTS / guest, "--watch", *words, "--out", tmp_path / "out")

    assert refused.status == 2
    assert sentence in refused.err
