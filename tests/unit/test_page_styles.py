"""The styles of the pages: one palette, and each name in it is one that the pages use."""

import re
from pathlib import Path

import pytest

from arkml import page_scripts
from arkml.replays import page
from arkml.server import page as hive_page

ROOT = Path(__file__).parents[2]
PALETTE = page_scripts.FOLDER / "palette.css"
HIVE = Path(hive_page.__file__).parent / "site"
TRIAL = ROOT / "host/play/arkml/guest_trials/page"
STYLES = [
    *(path for path in page_scripts.FOLDER.glob("*.css") if path != PALETTE),
    HIVE / "page.css",
]


def declared(path):
    return set(re.findall(r"^\s*(--[\w-]+):", path.read_text(), re.MULTILINE))


@pytest.mark.parametrize("folder", [HIVE, TRIAL], ids=["hive", "trial"])
def test_a_page_links_the_palette_before_its_own_styles(folder):
    linked = re.findall(r'rel="stylesheet" href="([^"]+)"', (folder / "index.html").read_text())

    assert linked[0] == "shared/palette.css"
    assert page._STYLES[0] == "palette.css"


@pytest.mark.parametrize("path", STYLES, ids=lambda path: f"{path.parent.name}/{path.name}")
def test_no_style_writes_a_color_of_the_palette_again(path):
    assert not declared(path) & declared(PALETTE)
    assert "box-sizing" not in path.read_text()


def test_each_color_of_the_palette_is_used():
    used = set(re.findall(r"var\((--[\w-]+)", "".join(path.read_text() for path in STYLES)))

    assert declared(PALETTE) <= used | set(re.findall(r"var\((--[\w-]+)", PALETTE.read_text()))
