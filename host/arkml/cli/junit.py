"""Smoke checks as JUnit XML, which build servers read."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING
from xml.etree.ElementTree import Element, SubElement, indent, tostring

from arkml.terminal import harmless

if TYPE_CHECKING:
    from arkml.cli.checks import Check

_FORBIDDEN = re.compile("[^\t\n\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")


def render(found: Mapping[str, Sequence[Check]]) -> bytes:
    """One suite for each guest, one case for each check."""
    root = Element("testsuites")
    for guest, checks in found.items():
        suite = SubElement(
            root,
            "testsuite",
            name=_text(guest),
            tests=str(len(checks)),
            failures=str(sum(not check.passed for check in checks)),
            errors="0",
            time=f"{sum(check.seconds for check in checks):.3f}",
        )
        for check in checks:
            case = SubElement(
                suite,
                "testcase",
                classname=_text(guest),
                name=check.name,
                time=f"{check.seconds:.3f}",
            )
            if not check.passed:
                message = _text(check.detail)
                SubElement(case, "failure", message=message.partition("\n")[0]).text = message
    indent(root)
    text: bytes = tostring(root, encoding="utf-8", xml_declaration=True)
    return text + b"\n"


def _text(text: str) -> str:
    return _FORBIDDEN.sub("", harmless(text))
