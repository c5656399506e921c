"""
Licenses, hashes, known vulnerabilities and the bill of materials of a release: `make audit`.

    python -m tests.audit.run --tools BIN

BIN is the folder of pip-audit and cyclonedx-py. Ends with status 1 if anything is wrong, or could
not be looked up.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tomllib
from importlib.metadata import distributions
from pathlib import Path

from tests.audit.hashes import CONSTRAINTS, RELEASE, ROOT, RUNTIME, disagreements, missing
from tests.audit.licenses import refused
from tests.audit.vulnerabilities import audit

BILL = ROOT / "dist" / "arkml.cdx.json"


def audit_licenses() -> bool:
    """Print the packages whose license is not allowed; return True if there is none."""
    found = refused(distributions())
    for each in found:
        print(f"license: {each.name} {each.version}: {each.license[:60] or 'none'}")
    print(f"licenses: {len(found)} that are not allowed" if found else "licenses: all allowed")
    return not found


def audit_hashes() -> bool:
    """Print the pins that disagree with the other files; return True if there is none."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    constraints = CONSTRAINTS.read_text()
    wanted = {RELEASE: project["build-system"]["requires"]}
    wanted[RUNTIME] = project["project"]["dependencies"]
    sentences = [
        f"{path.name}: {sentence}"
        for path, required in wanted.items()
        for sentence in (
            *disagreements(path.read_text(), constraints),
            *missing(path.read_text(), required),
        )
    ]
    for sentence in sentences:
        print(f"hashes: {sentence}")
    agree = "hashes: every pin has one, and its version is that of constraints.txt"
    print(f"hashes: write them anew, {len(sentences)} disagree" if sentences else agree)
    return not sentences


def audit_vulnerabilities(tools: Path) -> bool:
    """Print the known vulnerabilities; return True if all were looked up and there is none."""
    findings = audit(tools / "pip-audit", CONSTRAINTS)
    for line in findings.vulnerable:
        print(f"vulnerability: {line}")
    print(f"vulnerabilities: {findings.sentence()}")
    return findings.is_clean


def write_bill(tools: Path) -> bool:
    """Write the bill of materials; return True if that succeeded."""
    BILL.parent.mkdir(exist_ok=True)
    command = [
        str(tools / "cyclonedx-py"), "requirements", str(RUNTIME), "--pyproject=pyproject.toml",
        "--output-reproducible", f"--output-file={BILL}",
    ]  # fmt: skip
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    end = done.stderr.strip().splitlines()[-1:] or ["no message"]
    print(f"bill: {BILL.relative_to(ROOT)}" if done.returncode == 0 else f"bill: {end[0]}")
    return done.returncode == 0


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--tools", type=Path, required=True, metavar="BIN")
    tools = parser.parse_args().tools
    passed = [audit_licenses(), audit_hashes(), write_bill(tools), audit_vulnerabilities(tools)]
    sys.exit(0 if all(passed) else 1)


if __name__ == "__main__":
    main()
