"""`arkml train --watch`: a guest that is rebuilt while it trains."""

import hashlib
import json

import pytest
from tests.integration.command_line import GUESTS, arkml
from tests.integration.rebuilt_modules import BROKEN, with_a_note, with_a_trap, with_other_data

from arkml.training.guest_trainer import GuestTrainer
from arkml.training.training_options import Goal, TrainingOptions

PENDULUM = (GUESTS / "c_pendulum.wasm").read_bytes()
OTHER_RUN = (GUESTS / "c_pendulum_no_velocity.wasm").read_bytes()
LONG = 60.0  # minutes, which no test lasts


def trained(tmp_path, changes, instances=1):
    """Train while the guest is rebuilt, up to the sentence that follows the last change."""
    path, said = tmp_path / "npc.wasm", []
    path.write_bytes(PENDULUM)
    waiting, left = None, list(changes)

    def progress(state):
        nonlocal waiting
        said.extend(state.warnings)
        if not state.rows or not (waiting is None or any(waiting in line for line in said)):
            return True
        if not left:
            return False
        said.clear()
        module, waiting = left.pop(0)
        path.write_bytes(module)
        return True

    options = TrainingOptions(
        "npc.wasm", tmp_path / "out", goal=Goal(minutes=LONG), fps=300, eval_every=None,
        watch=path, instances=instances,
    )  # fmt: skip
    with GuestTrainer(PENDULUM, options, progress) as trainer:
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
            (OTHER_RUN, "it starts the run 'hard_pendulum', and this training is of 'pendulum'"),
        ],
        instances,
    )

    assert result.end_reason == "stopped"
    assert result.errors == ()
    assert any("its state was kept: only code has changed" in line for line in result.warnings)
    assert "the module before begins anew" in result.warnings[-1]
    assert digest == hashlib.sha256(anew).hexdigest()


def test_a_guest_that_traps_after_it_was_rebuilt_trains_on_as_it_was(tmp_path):
    said = "goes on with the module before, which begins anew as its run was left"
    kept = with_a_note(PENDULUM)
    changes = [(with_a_trap(PENDULUM), said), (kept, "reloaded")]
    result, digest = trained(tmp_path, changes)

    assert (result.end_reason, result.errors) == ("stopped", ())
    assert digest == hashlib.sha256(kept).hexdigest()


@pytest.mark.parametrize(
    ("guest", "words", "sentence"),
    [
        ("c_pendulum.wasm", ["--actors", "2"], "--watch does not go with --actors 2"),
        ("ark_api/cmdlet_train_016.wasm", ["--cmdlet", ""], "--watch does not go with"),
    ],
)
def test_watch_is_for_the_frames_of_one_process(tmp_path, guest, words, sentence):
    refused = arkml("train", GUESTS / guest, "--watch", *words, "--out", tmp_path / "out")

    assert refused.status == 2
    assert sentence in refused.err
