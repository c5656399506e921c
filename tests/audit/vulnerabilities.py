"""The known vulnerabilities of pinned packages, as pip-audit reports them."""

from __future__ import annotations

import json
import subprocess
from dataclasses import dataclass
from pathlib import Path

_LONGEST = 300  # letters of a reason, which quotes requests


@dataclass(frozen=True, slots=True)
class Findings:
    """
    The outcome of an audit.

    `audited` is the number of packages that were looked up. `vulnerable` has a line for each known
    vulnerability. `unknown` are the packages that the service had no answer for. `failure` is the
    reason why nothing was looked up, "" if something was.
    """

    audited: int = 0
    vulnerable: tuple[str, ...] = ()
    unknown: tuple[str, ...] = ()
    failure: str = ""

    @property
    def is_clean(self) -> bool:
        """True if every package was looked up, and none has a known vulnerability."""
        return self.audited > 0 and not (self.vulnerable or self.unknown or self.failure)

    def sentence(self) -> str:
        """Return what is to be said of the audit."""
        if self.failure:
            return f"nothing was audited, the service cannot be used: {self.failure}"
        if self.vulnerable:
            return f"{len(self.vulnerable)} known vulnerabilities"
        if self.unknown:
            names = ", ".join(self.unknown[:5])
            return (
                f"{len(self.unknown)} of {len(self.unknown) + self.audited} packages could not be"
                f" looked up ({names}{', …' if len(self.unknown) > 5 else ''}): nothing is known"
                " of them"
            )
        return f"no known vulnerability in {self.audited} packages"


def audit(program: Path, pins: Path) -> Findings:
    """Have pip-audit, at `program`, look up the packages that the file `pins` pins."""
    command = [
        str(program), "--requirement", str(pins), "--no-deps", "--disable-pip", "--format=json",
        "--progress-spinner=off",
    ]  # fmt: skip
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    return read(done.stdout, done.stderr)


def read(out: str, error: str) -> Findings:
    """
    Return the findings in what pip-audit printed.

    It ends with status 0 if it could look up nothing, and with 1 for a vulnerability as for a
    service that is not there; the report tells them apart.
    """
    try:
        dependencies = json.loads(out)["dependencies"]
    except (ValueError, KeyError, TypeError):
        lines = [line for line in error.strip().splitlines() if line.strip()]
        return Findings(failure=lines[-1].strip()[:_LONGEST] if lines else "it printed no report")
    vulnerable = tuple(
        f"{each['name']} {each['version']}: {found['id']}, mended in"
        f" {', '.join(found.get('fix_versions') or ['no version yet'])}"
        for each in dependencies
        for found in each.get("vulns", ())
    )
    unknown = tuple(each["name"] for each in dependencies if "skip_reason" in each)
    return Findings(len(dependencies) - len(unknown), vulnerable, unknown)
