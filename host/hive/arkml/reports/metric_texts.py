"""Descriptions of the metrics that every run has, used in reports and on the page of a hive."""

from __future__ import annotations

import json
import re
from functools import cache
from typing import Final

from arkml.server.page.site_files import SITE

_CHOICE: Final = re.compile(r"actions/branch_\d+_share_\d+")
_GOOD: Final = {"higher": " Higher is better.", "lower": " Lower is better.", "": ""}


def description(name: str) -> str:
    """Return what a metric means and which direction is good; empty for metrics of guests."""
    key = "actions/branch_B_share_C" if _CHOICE.fullmatch(name) else name
    text, good = _known().get(key, ("", ""))
    return text + _GOOD[good]


@cache
def _known() -> dict[str, tuple[str, str]]:
    document = json.loads((SITE / "metrics.json").read_text(encoding="utf-8"))
    return {name: (text, good) for name, (text, good) in document.items()}
