"""What an audit finds and says, and that the files of hashes agree with the others."""

import json
import tomllib
from importlib.metadata import PathDistribution, distributions

import pytest
from tests.audit import run
from tests.audit.hashes import CONSTRAINTS, RELEASE, ROOT, RUNTIME, disagreements, missing, pins
from tests.audit.licenses import Licensed, licensed, refused
from tests.audit.vulnerabilities import audit, read
from tests.programs import write_program

HASH = "--hash=sha256:" + "a1" * 32


def package(folder, *lines):
    """A distribution with this metadata."""
    folder.mkdir()
    (folder / "METADATA").write_text("\n".join(["Name: some", "Version: 1.0", *lines, "", "text"]))
    return PathDistribution(folder)


@pytest.mark.parametrize(
    ("lines", "expression"),
    [
        (["License-Expression: MIT OR Apache-2.0"], "MIT OR Apache-2.0"),
        (["License: MIT"], "MIT"),
        (["License: Apache License 2.0"], "Apache-2.0"),
        (["Classifier: License :: OSI Approved :: MIT License", "License: long"], "MIT"),
        (["Classifier: License :: OSI Approved :: BSD License"], "BSD-3-Clause"),
        ([], ""),
    ],
)
def test_a_license_is_read_from_where_it_is(tmp_path, lines, expression):
    found = licensed(package(tmp_path / "some.dist-info", *lines))

    assert found == Licensed("some", "1.0", expression)


@pytest.mark.parametrize(
    ("expression", "is_allowed"),
    [
        ("MIT", True),
        ("MIT AND BSD-3-Clause", True),
        ("Apache-2.0 WITH LLVM-exception AND MIT", True),
        ("GPL-3.0-only OR MIT", True),
        ("(GPL-3.0-only OR Apache-2.0)", True),
        ("GPL-3.0-only", False),
        ("MIT AND GPL-3.0-only", False),
        ("Mitigated", False),
        ("", False),
    ],
)
def test_one_alternative_must_be_allowed_as_a_whole(expression, is_allowed):
    assert Licensed("some", "1", expression).is_allowed is is_allowed


def test_what_pypi_has_torch_bring_is_no_part_of_a_release():
    names = ("nvidia-cublas", "nvidia-nccl-cu13", "cuda-toolkit", "nvidiax")

    assert [Licensed(name, "1", "Other").is_allowed for name in names] == [True, True, True, False]


def test_a_package_with_another_license_is_named(tmp_path):
    bad = package(tmp_path / "some.dist-info", "License-Expression: AGPL-3.0-only")

    assert refused([bad]) == [Licensed("some", "1.0", "AGPL-3.0-only")]


def test_every_package_of_this_environment_has_a_license_that_is_allowed():
    assert refused(distributions()) == []


def report(*dependencies):
    return json.dumps({"dependencies": dependencies, "fixes": []})


CLEAN = {"name": "clean", "version": "1.0", "vulns": []}
UNKNOWN = {"name": "unknown", "skip_reason": "Dependency not found on PyPI"}
BROKEN = {
    "name": "broken",
    "version": "2.0",
    "vulns": [{"id": "PYSEC-1", "fix_versions": ["2.1"]}, {"id": "PYSEC-2", "fix_versions": []}],
}


@pytest.mark.parametrize(
    ("out", "error", "is_clean", "sentence"),
    [
        (report(CLEAN), "", True, "no known vulnerability in 1 packages"),
        (report(CLEAN, BROKEN), "", False, "2 known vulnerabilities"),
        (report(CLEAN, UNKNOWN), "", False, "1 of 2 packages could not be looked up (unknown)"),
        (report(UNKNOWN), "", False, "1 of 1 packages could not be looked up"),
        (report(), "", False, "no known vulnerability in 0 packages"),
        ("", "WARNING: x\nERROR: no route to host\n", False, "cannot be used: ERROR: no route"),
        ("", "", False, "cannot be used: it printed no report"),
        ("{}", "", False, "nothing was audited"),
    ],
)
def test_only_packages_that_were_looked_up_are_clean(out, error, is_clean, sentence):
    findings = read(out, error)

    assert findings.is_clean is is_clean
    assert sentence in findings.sentence()


def test_a_vulnerability_comes_with_the_version_that_mends_it():
    assert read(report(BROKEN), "").vulnerable == (
        "broken 2.0: PYSEC-1, mended in 2.1",
        "broken 2.0: PYSEC-2, mended in no version yet",
    )


def test_a_service_that_cannot_be_reached_fails_the_audit(tmp_path, capsys):
    program = write_program(tmp_path / "pip-audit", "raise SystemExit('no route to host')\n")
    findings = audit(program, CONSTRAINTS)

    assert not run.audit_vulnerabilities(tmp_path)
    assert findings.failure == "no route to host"
    assert "nothing was audited" in capsys.readouterr().out


def test_pins_are_read_with_their_hashes():
    found = pins(f"# note\nSome_Name==1.0 \\\n    {HASH} \\\n    {HASH[:-1]}0\nother==2 ; x\n")

    assert {name: (pin.version, len(pin.hashes)) for name, pin in found.items()} == {
        "some-name": ("1.0", 2),
        "other": ("2", 0),
    }


def test_a_pin_without_a_hash_or_of_another_version_is_named():
    hashed = f"one==1.0 {HASH}\ntwo==2.0\nthree==3.0 {HASH}\n"

    assert disagreements(hashed, "one==1.0\nthree==3.1\n") == [
        "two 2.0 has no hash",
        "three is 3.0, constraints.txt has 3.1",
    ]
    assert missing(hashed, ["one>=1,<2", "Four[extra]==4.*"]) == ["four has no pin"]


def test_the_hashes_agree_with_constraints_and_with_what_the_package_requires(capsys):
    assert run.audit_hashes(), capsys.readouterr().out


def test_a_release_is_built_with_the_backend_that_is_declared():
    required = tomllib.loads((ROOT / "pyproject.toml").read_text())["build-system"]["requires"]

    assert missing(RELEASE.read_text(), required) == []
    assert pins(RUNTIME.read_text())["wasmtime"].version.startswith("50.")


def test_a_bill_that_cannot_be_written_fails_the_audit(tmp_path, capsys):
    write_program(tmp_path / "cyclonedx-py", "raise SystemExit('no such file')\n")

    assert not run.write_bill(tmp_path)
    assert capsys.readouterr().out == "bill: no such file\n"
