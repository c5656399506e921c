"""A page runs a policy by onnxruntime-web where no kernel has its operators."""

import os

import onnx
import pytest
from playwright.sync_api import expect
from tests.browser.served import GUESTS
from tests.browser.test_published_page import number_in, runs, until

import arkml

pytestmark = pytest.mark.browser


@pytest.fixture
def runtime():
    found = os.environ.get("ARKML_ONNXRUNTIME_WEB")
    if found is None:
        pytest.fail("ARKML_ONNXRUNTIME_WEB names no folder: run `make test-browser`")
    return f"{found}/node_modules/onnxruntime-web"


@pytest.fixture
def turning(tmp_path, runtime):
    """A site of eight point masses, whose forces are arc tangents."""
    policy = onnx.load(GUESTS / "policies/pointmass.onnx")
    policy.graph.node[0].output[0] = "h"
    policy.graph.node.append(onnx.helper.make_node("Atan", ["h"], ["actions"]))
    data, guest = policy.SerializeToString(), GUESTS / "c_applet.wasm"
    return arkml.publish(guest, data, tmp_path / "site", episodes=0, runtime=runtime)


@pytest.mark.usefixtures("turning")
def test_the_runtime_plays_and_people_take_over(served, visited):
    page = runs(visited(f"{served}/site/index.html"))
    row = page.locator("#actors tr", has_text="agent 2")
    until(page, lambda: abs(number_in(page, "#values output")) < 0.5)  # it drives the mass to 0
    row.get_by_role("button", name="Take over").click()
    page.keyboard.down("ArrowRight")

    until(page, lambda: number_in(page, "#values output") > 1.5)
    page.keyboard.up("ArrowRight")
    page.get_by_role("button", name="Hand back").click()
    until(page, lambda: abs(number_in(page, "#values output")) < 0.5)
    page.get_by_role("button", name="Start again").click()  # while a frame may wait for its answer
    until(page, lambda: 0 < number_in(page, "#tick") < 60)


def test_its_size_is_said(turning):
    assert turning.runtime_bytes == sum(
        size for name, size in turning.files.items() if name.startswith("ort")
    )
    assert turning.runtime_bytes > 14_000_000


@pytest.mark.usefixtures("turning")
def test_a_browser_that_cannot_wait_says_so(served, browser):
    page = browser.new_page()
    page.add_init_script("delete WebAssembly.Suspending")
    page.goto(f"{served}/site/index.html")

    expect(page.locator("#notice")).to_contain_text("this browser has no WebAssembly.Suspending")
    page.close()


def test_a_page_from_a_disk_says_what_it_needs(turning, browser):
    page = browser.new_page()
    page.goto((turning.folder / "index.html").as_uri())

    expect(page.locator("#notice")).to_contain_text("browsers load that from servers only")
    page.close()


def test_an_altered_model_is_refused(served, browser, turning):
    path = turning.folder / "policy.onnx"
    path.write_bytes(path.read_bytes().replace(b"Atan", b"Asin"))
    page = browser.new_page()
    page.goto(f"{served}/site/index.html")

    expect(page.locator("#notice")).to_contain_text("policy.onnx was altered on its way here")
    page.close()
