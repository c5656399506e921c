"""`arkml smoke`: checks that guests load, link, run and clean up."""

from __future__ import annotations

import re
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from arkml.base.output_files import write_file
from arkml.base.terminal import harmless
from arkml.cli import options
from arkml.cli.exits import FAILED, GOOD, print_json
from arkml.cli.launch import HostOptions, read_token
from arkml.cli.user_files import keep_apart
from arkml.cli.values import whole_number

if TYPE_CHECKING:
    from arkml.cli.checks import Check
    from arkml.runs.hive_access import HiveGrant

_EPILOG = options.epilog(
    "arkml smoke npc.wasm",
    "arkml smoke build/*.wasm --junit smoke.xml",
    "arkml smoke npc.wasm --hive embedded",
    'arkml smoke tool.wasm --cmdlet "infer all"',
    notes="""
A guest passes if it loads, finds every import, initializes and does its task without a trap and
within its limits; if its exports do not run its constructors again; if no handle is live after a
cmdlet, and no more after N frames than after N/2; if its memory does not grow in each quarter of
the frames; and if all actions were finite. Without --cmdlet a cmdlet runs without arguments;
without --input any status of a servlet passes. Below the checks is a line for each limit, with the
most that the guest used of it at once. With --hive the frames of an applet that asks for a run are
those after its run has begun; it fails if the run does not begin. The exit code is 1 if any check
fails.
""",
)

_FORBIDDEN = re.compile("[^\t\n\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")  # in XML


@dataclass(frozen=True, slots=True, kw_only=True)
class SmokeOptions:
    """The options of `arkml smoke`."""

    guests: Annotated[
        list[Path],
        typer.Argument(metavar="GUEST...", help="WebAssembly modules.", show_default=False),
    ]
    frames: Annotated[
        int,
        typer.Option(
            metavar="N", parser=whole_number("--frames", 2), help="Frames that an applet runs."
        ),
    ] = 120
    junit: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Write the checks as JUnit XML, too.")
    ] = None
    cmdlet: options.Cmdlet = None
    input: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="Bytes for a servlet or for a single function of bytes; - is stdin.",
        ),
    ] = None
    host: HostOptions
    hive: Annotated[str, options.hive("none", "none embedded")] = "none"
    output: options.OutputOptions

    def grant(self) -> HiveGrant | None:
        """Return the permission to train, None without a hive."""
        if self.hive == "none":
            return None
        from arkml.runs.hive_access import HiveGrant

        # Without a spare learner, and without a frame that waits for the learner.
        return HiveGrant(self.hive, read_token(), shared=True, wait_for_learner=False)


def register(app: typer.Typer) -> None:
    """Add the command `arkml smoke` to the application."""
    options.add_command(app, "smoke", SmokeOptions, smoke, epilog=_EPILOG)


def smoke(options: SmokeOptions) -> int:
    """Check that guests load, link, run and clean up."""
    from arkml.cli.checks import SmokeTest

    guests, as_json = options.guests, options.output.as_json
    options.output.start_logs("warning")
    keep_apart(options.junit, *options.host.policy_files, options.input, *guests)
    test = SmokeTest(options.host, options.frames, options.cmdlet, options.input, options.grant())
    results: dict[str, list[Check]] = {}
    for path in guests:
        if not as_json:
            sys.stdout.write(f"{harmless(str(path))}\n")
            sys.stdout.flush()
        checks = results.setdefault(str(path), [])
        for check in test.run(path):
            checks.append(check)
            if not as_json:
                _print(check)
                _print_limits(check)
    if options.junit is not None:
        write_file(options.junit, junit_xml(results))
    passed = {guest: all(check.passed for check in checks) for guest, checks in results.items()}
    if as_json:
        print_json(_document(results, passed))
    else:
        sys.stdout.write(f"{sum(passed.values())} of {len(passed)} guests passed\n")
    return GOOD if all(passed.values()) else FAILED


def _print(check: Check) -> None:
    color = sys.stdout.isatty()
    mark = "ok  " if check.passed else "FAIL"
    if color:
        mark = f"\x1b[{32 if check.passed else 31}m{mark}\x1b[0m"
    text = harmless(check.detail).replace("\n", "\n" + " " * 20)
    sys.stdout.write(f"  {mark}  {check.name:<10}  {text}\n")
    sys.stdout.flush()


def _print_limits(check: Check) -> None:
    from arkml.cli.tables import grid, show

    if check.limits:
        header = ("limit", "value", "used")
        show("limits", grid(header, [use.cells() for use in check.limits]))


def _document(results: dict[str, list[Check]], passed: dict[str, bool]) -> dict[str, object]:
    guests = [
        {
            "guest": guest,
            "passed": passed[guest],
            "checks": [
                {"name": check.name, "passed": check.passed, "detail": check.detail}
                for check in checks
            ],
            "limits": {use.name: use.document() for check in checks for use in check.limits},
        }
        for guest, checks in results.items()
    ]
    return {"passed": all(passed.values()), "guests": guests}


def junit_xml(results: Mapping[str, Sequence[Check]]) -> bytes:
    """
    Return the results of smoke tests as JUnit XML: a suite for each guest, a case for each check.
    """
    from xml.etree.ElementTree import Element, SubElement, indent, tostring

    root = Element("testsuites")
    for guest, checks in results.items():
        suite = SubElement(
            root,
            "testsuite",
            name=_xml_text(guest),
            tests=str(len(checks)),
            failures=str(sum(not check.passed for check in checks)),
            errors="0",
            time=f"{sum(check.seconds for check in checks):.3f}",
        )
        for check in checks:
            case = SubElement(
                suite,
                "testcase",
                classname=_xml_text(guest),
                name=check.name,
                time=f"{check.seconds:.3f}",
            )
            if not check.passed:
                message = _xml_text(check.detail)
                SubElement(case, "failure", message=message.partition("\n")[0]).text = message
    indent(root)
    text: bytes = tostring(root, encoding="utf-8", xml_declaration=True)
    return text + b"\n"


def _xml_text(text: str) -> str:
    return _FORBIDDEN.sub("", harmless(text))
