"""A guest that is rebuilt while workers on a Ray cluster train it."""

import hashlib

import pytest
from tests.integration.rebuilt_modules import BROKEN, with_a_note, with_a_trap, with_other_data
from tests.integration.test_train_watch import PENDULUM, short, trained

pytestmark = [pytest.mark.ray, pytest.mark.usefixtures("own_cluster")]


def test_all_workers_on_ray_go_on_with_a_rebuilt_guest(tmp_path):
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
        runner="ray",
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
