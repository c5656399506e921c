"""Debian's Firefox, which Playwright cannot drive: puppeteer opens a page and looks at it."""

import shutil
import sys
from pathlib import Path

import pytest
from tests.node import run_module

MODULES = Path(sys.prefix)
PATIENCE = 30_000  # milliseconds, of one step
SIZE = (1280, 900)


def visit(address, *steps, size=SIZE):
    """
    Open a page in Firefox, and return the values that steps ask for.

    Fails where the page complains: an error of the console, of a script or of the policy, a
    request that fails, or one that leaves the folder of the address.

    Args:
        address: Of the page.
        steps: What is done, one after the other: `{"see": EXPRESSION}` waits until an expression of
            JavaScript is true, `{"say": EXPRESSION}` asks for its value, `{"click": SELECTOR}` and
            `{"press": KEY}` do what people do.
        size: Width and height of the window, in pixels.

    """
    program = shutil.which("firefox-esr") or shutil.which("firefox")
    if program is None:
        pytest.fail("there is no program firefox-esr: install Debian's package of that name")
    if not (MODULES / "node_modules" / "puppeteer-core").is_dir():
        pytest.fail("puppeteer-core is not there: run `make test-browser`, which gets it")
    width, height = size
    given = {
        "modules": str(MODULES), "program": program, "address": address, "steps": steps,
        "width": width, "height": height, "patience": PATIENCE,
    }  # fmt: skip
    found = run_module(Path(__file__).with_name("firefox.mjs"), given)
    assert found["complaints"] == [], "\n".join(found["complaints"])
    return found["values"]
