"""
Pictures of the hive's page for the documentation: python -m tests.browser.hive_screenshots.

Two seeds of one game learn, and then one person looks at one of them and another at all runs.
"""

import io
import tempfile
from contextlib import ExitStack
from pathlib import Path

from PIL import Image
from playwright.sync_api import expect
from tests.browser.browsers import launched
from tests.browser.hives import ROOT, serving, training
from tests.browser.people import Person
from tests.waiting import eventually

SIZE = {"width": 1380, "height": 900}
COLORS = 160  # of a picture, which makes it a third as large
LENGTH = ("--frames", 300, "--eval-every", 50, "--evaluate-episodes", 2)


def take(page, name):
    """Write what a person sees."""
    with Image.open(io.BytesIO(page.screenshot())) as image:
        image.convert("RGB").quantize(COLORS, Image.Quantize.MAXCOVERAGE).save(
            ROOT / "docs" / name, optimize=True
        )


def main():
    """Take the pictures."""
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        hive = stack.enter_context(serving(folder / "hive", "--max-learners", 2))
        trainings = [
            stack.enter_context(training(hive, folder / str(seed), "--seed", seed, *LENGTH))
            for seed in (1, 2)
        ]
        for one in trainings:
            one.wait()
        other = training(hive, folder / "other", "--frames", 20_000, guest="c_cartpole")
        stack.enter_context(other)
        eventually(lambda: len(hive.runs()) == 3 and hive.runs()[0]["rows"] > 1_500, 240)
        ids = [run["id"] for run in hive.runs()]
        browser = stack.enter_context(launched("chromium"))
        looks = {
            "hive_page.png": (f"#runs={ids[1]}", "light"),
            "hive_page_dark.png": (f"#runs={ids[1]},{ids[2]}&smooth=0.5", "dark"),
            "hive_page_runs.png": ("", "light"),
        }
        for name, (view, scheme) in looks.items():
            person = Person(
                browser, hive.link + view, name, begins=False, viewport=SIZE, color_scheme=scheme
            )
            if view:
                drawn = person.page.locator(".plot canvas")
                expect(drawn.nth(5)).to_be_attached(timeout=60_000)
            else:
                person.page.wait_for_selector(".spark polyline[points*=',']")
            take(person.page, name)
            assert person.complaints == []


if __name__ == "__main__":
    main()
