"""What axe-core finds on a page: barriers for people who do not see it, or see little."""

import sys
from pathlib import Path

import pytest

SCRIPT = Path(sys.prefix) / "node_modules" / "axe-core" / "axe.min.js"
FIND = """async () => (await axe.run(document, { resultTypes: ["violations"] })).violations
  .filter(({ impact }) => ["serious", "critical"].includes(impact))
  .map(({ id, help, nodes }) => `${id}: ${help}: ${nodes.map((one) => one.target).join(", ")}`)"""


def prepare(page):
    """Have axe-core in each document that a page opens from now on."""
    if not SCRIPT.is_file():
        pytest.fail("axe-core is not there: run `make test-browser`, which gets it")
    page.add_init_script(path=SCRIPT)


def barriers(page):
    """Return what axe-core calls serious or critical, each in a sentence."""
    return page.evaluate(FIND)
