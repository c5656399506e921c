"""A published guest has in each browser the memory of wasmtime, to the bit."""

import json
import re
import shutil

import pytest
from tests.browser.served import GUESTS
from tests.published_host import played_in_wasmtime
from tests.published_policies import noisy, remembering, scoring

import arkml
from arkml import page_scripts

pytestmark = pytest.mark.browser
FRAMES, EVERY = 10_000, 1_000
PLAYED = """async ([root, site, frames, every]) => {
  const { played } = await import(`${root}/published_frames.js`);
  const bytes = async (name) =>
    new Uint8Array(await (await fetch(`${root}/site/${name}`)).arrayBuffer());
  return await played({ scripts: `${root}/scripts/`, site, read: bytes, frames, every });
}"""


@pytest.mark.parametrize(
    ("guest", "policy"),
    [
        ("c_maze", scoring(2, 3)),  # a branch, with masks
        ("c_reach_seeded", noisy(4, 2)),
        ("c_echo", remembering(4, 3)),
        ("c_drift", scoring(2, 1)),  # WASI
    ],
)
def test_a_guest_in_a_browser_does_what_it_does_in_wasmtime(
    guest, policy, tmp_path, browser, served
):
    path = GUESTS / f"{guest}.wasm"
    arkml.publish(path, policy, tmp_path / "site", seed=5, episodes=0)
    shutil.copytree(page_scripts.FOLDER, tmp_path / "scripts")
    shutil.copy(GUESTS.parents[1] / "tests/published_frames.js", tmp_path)
    (tmp_path / "blank.html").write_text('<!doctype html><link rel="icon" href="data:,">')
    text = (tmp_path / "site/index.html").read_text()
    found = re.search(r'<script id="site" type="application/json">(.*)</script>', text)
    page = browser.new_page()
    page.goto(f"{served}/blank.html")
    in_browser = page.evaluate(PLAYED, [served, json.loads(found[1]), FRAMES, EVERY])
    page.close()

    wanted = played_in_wasmtime(path, policy, FRAMES, EVERY, seed=5)
    assert len(wanted["hashes"]) == FRAMES // EVERY
    assert in_browser["hashes"] == wanted["hashes"]
