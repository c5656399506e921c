"""The table of metrics in docs/training_settings.md."""

import re
from pathlib import Path

SETTINGS = Path(__file__).parents[1] / "docs" / "training_settings.md"
ALL = ("SAC", "PPO")


def rows():
    """The names of each row of the table, with the learners and the condition they come with."""
    text = SETTINGS.read_text().split("## Metrics", 1)[1].split("\n## ", 1)[0]
    for line in re.findall(r"^\| (`.*) \|$", text, re.MULTILINE):
        names, _, kinds = (cell.strip() for cell in line.split(" | "))
        yield re.findall(r"`([^`]+)`", names), kinds


def documented(learner, branches=(), *, certain=False):
    """
    The names that a learner reports, with those of its branches.

    With `certain` only those that every run has.
    """
    found = set()
    for names, kinds in rows():
        learners, _, condition = kinds.partition(", ")
        if learners not in ("all", learner.upper()) or (certain and condition):
            continue
        if condition == "with branches" and not branches:
            continue
        found |= {one for name in names for one in _expanded(name, branches)}
    return found


def _expanded(name, branches):
    if name != "actions/branch_B_share_C":
        return [name]
    return [
        f"actions/branch_{branch}_share_{choice}"
        for branch, choices in enumerate(branches)
        for choice in range(choices)
    ]
