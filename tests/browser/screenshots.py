"""
Pictures of the page for the documentation: python -m tests.browser.screenshots.

Two people play hunters by the command of docs/trials.md, one of them in the dark.
"""

import io
import re
import tempfile
from pathlib import Path

from PIL import Image
from tests.browser.browsers import launched
from tests.browser.people import Person
from tests.browser.served import ROOT, playing

SIZE = {"width": 1180, "height": 1000}
COLORS = 160  # of a picture, which makes it a third as large
COMMAND = re.compile(r"^    arkml trials play (fixtures/\S+) --policy (\S+) --open$", re.MULTILINE)
SECONDS = 20  # of an episode
TICKS = 60  # a second, as the guest's own clock has them


def take(person, name):
    """Write what a person sees."""
    with Image.open(io.BytesIO(person.page.screenshot())) as image:
        image.convert("RGB").quantize(COLORS, Image.Quantize.MAXCOVERAGE).save(
            ROOT / "docs" / name, optimize=True
        )


def main():
    """Take the pictures."""
    with tempfile.TemporaryDirectory() as folder, launched("chromium") as browser:
        guest, policy = COMMAND.search((ROOT / "docs/trials.md").read_text()).groups()
        options = ("--policy", ROOT / policy, "--tick-rate", TICKS)
        with playing(ROOT / guest, Path(folder, "trials"), *options) as served:
            ann = Person(browser, served.play, "Ann", viewport=SIZE).plays("chase_0")
            link = served.slot("chase_2")
            bob = Person(browser, link, "Bob", viewport=SIZE, color_scheme="dark")
            bob.plays("chase_2")
            for _ in range(2 * SECONDS + 2):  # to the end of an episode that counts
                ann.waits(TICKS)
            for _ in range(2):
                ann.holds("ArrowLeft", "ArrowUp", ticks=75)
                bob.holds("ArrowRight", "ArrowDown", ticks=75)
                ann.holds("ArrowRight", "ArrowDown", ticks=75)
                bob.holds("ArrowLeft", "ArrowUp", ticks=75)
            ann.page.keyboard.down("ArrowRight")
            ann.waits(24)
            take(ann, "trials_play.png")
            bob.page.keyboard.down("ArrowDown")
            bob.waits(24)
            take(bob, "trials_play_dark.png")


if __name__ == "__main__":
    main()
