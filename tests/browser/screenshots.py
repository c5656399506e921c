"""
Pictures of the page for the documentation: python -m tests.browser.screenshots.

Two people play hunters of the guest `chase`, one of them in the dark.
"""

import io
import json
import shutil
import tempfile
from pathlib import Path

from PIL import Image
from playwright.sync_api import sync_playwright
from tests.browser.people import Person
from tests.browser.served import GUESTS, ROOT, playing

SIZE = {"width": 1180, "height": 780}
COLORS = 160  # of a picture, which makes it a third as large
PARTS = ("to the hare", "velocity", "to the nearest")
PLACE = {"name": "place", "shape": [2], "low": -1.5, "high": 1.5}
SPEC = {
    "observations": [*({"name": name, "shape": [2]} for name in PARTS), PLACE],
    "actions": {"continuous": 2},
    "positions": [6, 7],
}


def take(person, name):
    """Write what a person sees."""
    with Image.open(io.BytesIO(person.page.screenshot())) as image:
        image.convert("RGB").quantize(COLORS, Image.Quantize.MAXCOVERAGE).save(
            ROOT / "docs" / name, optimize=True
        )


def main():
    """Take the pictures."""
    with tempfile.TemporaryDirectory() as folder, sync_playwright() as playwright:
        spec = Path(folder, "spec.json")
        spec.write_text(json.dumps(SPEC))
        program = shutil.which("chromium") or shutil.which("chromium-browser")
        browser = playwright.chromium.launch(executable_path=program, args=["--no-sandbox"])
        options = ("--configure-numbers", "4,{seed}", "--spec", spec, "--seed", 5)
        guest = GUESTS / "c_chase.wasm"
        with playing(guest, Path(folder, "trials"), *options) as served:
            ann = Person(browser, served.play, "Ann", viewport=SIZE).plays("chase_0")
            link = served.slot("chase_2")
            bob = Person(browser, link, "Bob", viewport=SIZE, color_scheme="dark")
            bob.plays("chase_2")
            for _ in range(2):
                ann.holds("ArrowLeft", "ArrowUp", ticks=25)
                bob.holds("ArrowRight", "ArrowDown", ticks=25)
                ann.holds("ArrowRight", "ArrowDown", ticks=25)
                bob.holds("ArrowLeft", "ArrowUp", ticks=25)
            ann.page.keyboard.down("ArrowRight")
            ann.waits(8)
            take(ann, "trials_play.png")
            bob.page.keyboard.down("ArrowDown")
            bob.waits(8)
            take(bob, "trials_play_dark.png")
        browser.close()


if __name__ == "__main__":
    main()
