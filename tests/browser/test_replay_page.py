"""The page of a replay in a browser: steps in both directions, marks, a trap, hostile texts."""

import re

import numpy as np
import pytest
from playwright.sync_api import expect
from tests.browser.people import listen
from tests.browser.served import GUESTS
from tests.integration.guest_text import LOG, data, function, i32, logging_of, module

import arkml
from arkml.replays.documents import document_of
from arkml.replays.page import page_of

pytestmark = pytest.mark.browser
HOSTILE = "<img src=x onerror=alert(1)></script>"
SPEC = {
    "observations": [
        {"name": "position", "shape": [2], "low": -1, "high": 1},
        {"name": "velocity", "shape": [2]},
    ],
    "positions": [0, 1],
}
_TEXT, _SAY = logging_of(HOSTILE)
TRAPPING = module(
    "(global $frame (mut i32) (i32.const 0))",
    _TEXT,
    data(60, b"here"),
    function(
        "ark_applet_update",
        f"""(global.set $frame (i32.add (global.get $frame) {i32(1)}))
        {_SAY}
        (if (i32.eq (global.get $frame) {i32(9)}) (then (drop (i32.load {i32(65534)}))))""",
    ),
    uses=[LOG],
)


@pytest.fixture
def opened(browser, tmp_path):
    """Opens the page of a document, which must not have complained at the end of the test."""
    complaints, context = [], browser.new_context()

    def open_page(document):
        path = tmp_path / "replay.html"
        path.write_bytes(page_of(document))
        page = context.new_page()
        listen(page, complaints.append)
        page.on("dialog", lambda dialog: complaints.append(dialog.message))
        page.goto(path.as_uri())
        expect(page.locator(".present strong")).not_to_be_empty()
        return page

    yield open_page
    context.close()
    assert complaints == []


@pytest.fixture
def points(tmp_path):
    """The document of 120 frames of points in a plane."""
    path, source = tmp_path / "points.trace", GUESTS / "c_point_mass.wasm"
    arkml.record(
        source, lambda seen: -0.5 * seen[:, :2], tmp_path / "rows.npz", frames=120, trace=path
    )
    return document_of(path, source, spec=SPEC)


def frame_of(page):
    return int(re.match(r"frame ([\d,]+) of", page.locator(".present strong").inner_text())[1])


def shown_of(page):
    """What the page shows of its frame: the table, the values, and the pixels of the plane."""
    texts = [page.locator(one).first.inner_text() for one in ("tbody", ".values")]
    return *texts, page.locator("canvas.plane").evaluate("canvas => canvas.toDataURL()")


def test_a_step_backwards_shows_what_was_there(opened, points):
    page = opened(points)
    page.keyboard.press("Home")
    for _ in range(30):
        page.keyboard.press("ArrowRight")
    assert frame_of(page) == 31
    there = shown_of(page)
    page.keyboard.press("ArrowRight")
    assert shown_of(page) != there
    page.keyboard.press("ArrowLeft")

    assert frame_of(page) == 31
    assert shown_of(page) == there


def test_keys_buttons_the_slider_and_the_time_line_go_to_frames(opened, points):
    page = opened(points)
    for press, frame in (
        (lambda: page.keyboard.press("End"), 120),
        (lambda: page.keyboard.press("Shift+ArrowLeft"), 110),
        (lambda: page.get_by_role("button", name="back (←)").click(), 109),
        (lambda: page.get_by_role("button", name="first frame (Home)").click(), 1),
        (lambda: page.get_by_role("button", name="forward (→)").click(), 2),
        (lambda: page.keyboard.press("n"), 51),
        (lambda: page.keyboard.press("n"), 102),
        (lambda: page.keyboard.press("p"), 51),
        (lambda: page.get_by_role("slider").fill("19"), 20),
    ):
        press()
        assert frame_of(page) == frame
    box = page.locator(".timeline").bounding_box()
    page.mouse.click(box["x"] + box["width"] - 1, box["y"] + 10)
    assert frame_of(page) == 120


def test_it_plays_to_the_last_frame_and_stops_there(opened, points):
    page = opened(points)
    page.get_by_role("combobox").select_option("60")
    page.keyboard.press("Space")
    expect(page.locator(".present strong")).to_have_text("frame 120 of 120")
    expect(page.get_by_role("button", name="play (space)")).to_have_text("Play")


def test_an_agent_that_is_chosen_has_its_own_values_and_rewards(opened, points):
    page = opened(points)
    page.keyboard.press("End")
    page.get_by_role("button", name=re.compile("^agent")).nth(2).click()
    name = page.get_by_role("button", pressed=True).inner_text()

    expect(page.get_by_role("heading", name=f"{name} observes")).to_be_visible()
    expect(page.get_by_text(f"reward of {name}")).to_be_visible()
    expect(page.get_by_text("position 1")).to_be_visible()


def test_a_trap_is_shown_with_its_backtrace_memory_and_lines(opened, tmp_path):
    trace = tmp_path / "orc.trace"
    host = arkml.Host(trace=trace)
    guest = host.load(TRAPPING, name=HOSTILE)
    for _ in range(8):
        guest.update()
    with pytest.raises(arkml.GuestTrap):
        guest.update()
    host.close()
    page = opened(document_of(trace, TRAPPING))

    assert frame_of(page) == 9
    expect(page.get_by_role("heading", name=HOSTILE)).to_be_visible()
    expect(page.get_by_role("heading", name="GuestTrap")).to_be_visible()
    expect(page.locator(".calls")).to_contain_text("ark_applet_update")
    expect(page.get_by_text("Memory around")).to_be_visible()
    expect(page.locator(".lines li.now")).to_contain_text(HOSTILE)
    page.keyboard.press("Home")
    assert frame_of(page) == 1
    page.get_by_role("button", name="to the failure").click()
    assert frame_of(page) == 9


def seen_by(guest, tmp_path):
    """The document of 20 frames of a guest whose agents take their second choice."""
    path, source = tmp_path / "seen.trace", GUESTS / f"{guest}.wasm"
    choices = {"c_sorter": 2}.get(guest, 1)
    arkml.record(
        source, lambda seen: np.ones((len(seen), choices), "f4"), tmp_path / "rows.npz",
        frames=20, trace=path,
    )  # fmt: skip
    return document_of(path, source)


def colors_of(canvas):
    """The colors of a canvas, and its size."""
    return canvas.evaluate(
        """(one) => {
          const { width, height } = one;
          const bytes = one.getContext("2d").getImageData(0, 0, width, height).data;
          return [width, height, new Set(new Uint32Array(bytes.buffer)).size];
        }"""
    )


def test_an_image_is_a_picture_with_a_label(opened, tmp_path):
    page = opened(seen_by("c_gallery", tmp_path))
    picture = page.get_by_role("img", name="view: an image of 64 by 64 pixels, 3 channels")

    expect(picture).to_be_visible()
    page.keyboard.press("End")
    width, height, colors = colors_of(picture)
    assert (width, height) == (64, 64)
    assert colors > 3
    expect(page.locator(".values").first.locator(".bars")).to_have_count(0)
    before = picture.evaluate("one => one.toDataURL()")
    page.get_by_role("button", name=re.compile("^gallery")).nth(1).click()
    assert picture.evaluate("one => one.toDataURL()") != before


def test_a_grid_has_cells_and_a_legend_of_its_channels(opened, tmp_path):
    page = opened(seen_by("c_minatar_breakout", tmp_path))
    grid = page.get_by_role("img", name="screen: a grid of 10 by 10 cells, 4 channels")

    expect(grid).to_be_visible()
    expect(page.locator(".legend li")).to_have_text([f"channel {n}" for n in range(4)])
    page.keyboard.press("End")
    assert colors_of(grid)[2] >= 5  # lines, paper, paddle, ball, bricks
    swatches = page.locator(".legend i").evaluate_all(
        "all => all.map((one) => getComputedStyle(one).backgroundColor)"
    )
    assert len(set(swatches)) == 4


def test_entities_are_a_table_of_those_that_are_there(opened, tmp_path):
    document = seen_by("c_sorter", tmp_path)
    count = int(document.frames[0].submits[0].observations[0][4])
    page = opened(document)
    page.keyboard.press("Home")
    table = page.get_by_role("table", name=f"tiles: {count} of 20")

    expect(table).to_be_visible()
    expect(table.locator("thead th")).to_have_text(["", *map(str, range(6))])
    expect(table.locator("tbody tr:visible")).to_have_count(count)
    expect(page.get_by_text("tiles_count")).to_have_count(0)
