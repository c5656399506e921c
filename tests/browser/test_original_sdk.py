"""The published JavaScript SDK plays a guest of ours, from a page of another origin."""

import signal
import socket
import sys
from pathlib import Path

import numpy as np
import pytest
from tests.browser.served import (
    EIGHTH,
    GUESTS,
    PATIENCE,
    assert_rows_have_actions,
    process_of,
    ticks_of,
)
from tests.cogment.browser import serving_pages

pytestmark = pytest.mark.browser
HERE = Path(__file__).parent
GUEST = GUESTS / "c_walkers.wasm"
NUMBERS = ("--configure-numbers", "2,0,1,0,0")
ACTIONS = {
    "red_0": [0.5, -0.25, 1.0, 0.0, 0.125, -1.0],
    "red_1": [-1.0, -1.0, 0.75, 0.25, 0.0, 0.5],
}


@pytest.fixture
def files(tmp_path):
    """The files of the page by their path: the published SDK, and the messages of the guest."""
    package = Path(sys.prefix) / "package" / "dist" / "cogment.umd.js"
    assert package.exists(), "run `make test-browser`, which gets the published SDK"
    with process_of("spec", GUEST, *NUMBERS, "-o", tmp_path / "spec") as process:
        _, errors = process.communicate(timeout=PATIENCE)
    assert process.returncode == 0, errors
    folders = {"": HERE / "page", "project/": tmp_path / "spec" / "javascript"}
    found = {
        prefix + path.relative_to(folder).as_posix(): path
        for prefix, folder in folders.items()
        for path in folder.rglob("*.*")
    }
    return {**found, "cogment.umd.js": package}


def free_port():
    with socket.create_server(("127.0.0.1", 0)) as probe:
        return probe.getsockname()[1]


def test_a_page_with_the_published_sdk_plays_a_guest_as_all_of_its_actors(browser, files, tmp_path):
    data, port = tmp_path / "trials", free_port()
    ports = ("--lifecycle-port", 0, "--actor-port", 0, "--actor-web-port", port)
    options = (*ports, "--data", data, "--tick-rate", 0)
    with serving_pages(files) as pages:
        origin = ("--allow-origin", pages.origin, "--log-level", "warning")
        with process_of("serve", "--guest", GUEST, *NUMBERS, *options, *origin) as process:
            for line in process.stderr:
                if line.startswith("web: "):
                    break
            pages.given = {"endpoint": f"http://127.0.0.1:{port}", "actions": ACTIONS}
            page = browser.new_page()
            page.goto(f"{pages.origin}/original.html")
            result = pages.result.result(PATIENCE)
            page.context.close()
            process.send_signal(signal.SIGTERM)
            process.communicate(timeout=PATIENCE)
    assert "error" not in result, result["error"]
    ticks = ticks_of(data)

    for name, actions in ACTIONS.items():
        seen = result["seen"][name]
        assert seen["types"][-1] == "FINAL"
        assert [tick for tick, _ in seen["values"]] == list(range(len(ticks)))
        made = [tick.actions[name].action.continuous for tick in ticks[: len(actions)]]
        assert [one[0] if one else 0.0 for one in made] == actions
        assert {tick.actions[name].note for tick in ticks[: len(actions)]} == {"given"}
        way = np.float32(sum(actions)) * EIGHTH
        assert seen["values"][len(actions)][1] == pytest.approx(seen["values"][0][1] + way)
        assert_rows_have_actions(ticks, name)
