"""Every command line of the READMEs in examples/, by someone who has arkml from a wheel."""

import os
import re
import shutil
import subprocess
import sys
import sysconfig
from pathlib import Path

import pytest
from tests.integration.command_line import ROOT
from tests.integration.test_environment_examples import shown, without_numbers

pytestmark = pytest.mark.slow

EXAMPLES = ROOT / "examples"
ELSEWHERE = {
    "torchrl_ppo.py": "test-torchrl",
    "rllib_ppo.py": "test-torchrl",
    "puffer_env.py": "test-puffer",
    "curriculum.yaml": "test-mlagents",
}
"""Those that need packages of another environment, with the target that runs them."""

RUN_BY = {
    "arcade": "unit/test_arcade_tool.py",
    "game": "integration/test_game_example.py",
    "game_functions": "integration/test_game_function_examples.py",
}
"""Folders of examples that other tests run."""


def lines_of(folder):
    """The command lines of a README, without their comments."""
    lines = (EXAMPLES / folder / "README.md").read_text().splitlines()
    return [line.split(" # ")[0].strip() for line in lines if re.match("    [a-z]", line)]


def programs():
    """The files of examples/environments that its README lists, with how each is installed."""
    rows = re.findall(
        r"^\| \[(\S+)\].*\| (.*) \|$",
        (EXAMPLES / "environments/README.md").read_text(),
        re.MULTILINE,
    )
    return {name: re.findall("`(pip [^`]*)`", needs) for name, needs in rows}


class Stranger:
    """Someone with a Python environment of their own, an empty home and a copy of the examples."""

    def __init__(self, top):
        self.repository = top / "somewhere else"
        self.repository.mkdir()
        for name in ("examples", "fixtures"):
            shutil.copytree(ROOT / name, self.repository / name)
        environment = top / "environment"
        subprocess.run([sys.executable, "-m", "venv", environment], check=True)
        # What arkml depends on is that of the environment of the tests, which needs no network.
        site = next(environment.glob("lib/python*/site-packages"))
        (site / "dependencies.pth").write_text(sysconfig.get_path("purelib"))
        self.environment = {
            "PATH": f"{environment}/bin:{os.defpath}", "HOME": str(top / "home"), "LANG": "C.UTF-8",
            "PIP_NO_INDEX": "1", "PIP_NO_BUILD_ISOLATION": "0", "OMP_NUM_THREADS": "1",
            "PIP_DISABLE_PIP_VERSION_CHECK": "1",
        }  # fmt: skip
        self.run("pip uninstall --quiet --yes setuptools")  # older than that of the tests
        self.run(f"pip wheel --quiet --no-deps --wheel-dir '{top}/dist' '{ROOT}'")
        self.run(f"pip install --quiet --no-deps '{top}'/dist/arkml-*.whl")

    def run(self, line, folder=".", *, is_quiet=False):
        """What a command line prints; with `is_quiet` nothing may be on stderr."""
        ended = subprocess.run(
            line, shell=True, cwd=self.repository / folder, env=self.environment, check=False,
            capture_output=True, text=True, timeout=500,
        )  # fmt: skip
        assert ended.returncode == 0, f"{line}\n{ended.stdout[-2000:]}\n{ended.stderr[-2000:]}"
        assert not (is_quiet and ended.stderr), ended.stderr
        return ended.stdout


@pytest.fixture(scope="module")
def stranger(tmp_path_factory):
    return Stranger(tmp_path_factory.mktemp("stranger"))


def test_the_package_is_that_of_the_wheel(stranger):
    where = stranger.run("python -c 'import arkml; print(arkml.__file__)'").strip()

    assert Path(where).is_relative_to(stranger.repository.parent / "environment")


def test_every_example_is_run_here_or_by_a_target_of_its_own():
    folders = {path.name for path in EXAMPLES.iterdir() if path.is_dir()}
    files = {path.name for path in (EXAMPLES / "environments").iterdir()} - {"README.md"}
    makefile = (ROOT / "Makefile").read_text()

    assert folders == {"environments", "evolution", "harvest"} | RUN_BY.keys()
    for folder, test in RUN_BY.items():
        assert folder in (ROOT / "tests" / test).read_text()
    assert programs().keys() == files
    assert all(re.search(f"^{target}:", makefile, re.MULTILINE) for target in ELSEWHERE.values())


@pytest.mark.parametrize("name", sorted(programs().keys() - ELSEWHERE.keys()))
def test_a_program_of_environments_prints_what_its_readme_says(name, stranger):
    for line in programs()[name]:
        stranger.run(line)
    # torch warns of the exporter that needs no further package
    printed = stranger.run(f"python examples/environments/{name}", is_quiet="to_guest" not in name)

    assert without_numbers(printed.splitlines()) == without_numbers(shown(name))


def test_the_learner_of_evolution_trains_and_its_policy_plays(stranger):
    install, train = lines_of("evolution")
    stranger.run(install)
    printed = stranger.run(train)
    play = re.search(r"play it +(arkml run .*)", printed)[1].strip()

    assert "best policy" in printed
    assert "frame time" in stranger.run(f"{play} --frames 100")


def test_the_trial_of_harvest_is_played(stranger):
    folder = "examples/harvest"
    *before, play = lines_of("harvest")
    for line in before:
        stranger.run(line, folder)
    printed = stranger.run(play, folder, is_quiet=True)

    assert printed.splitlines()[-1] == "trial ENDED"
