"""What the runs of a plain host say of where they come from."""

import shutil
import subprocess

import pytest
from tests.integration.command_line import GUESTS
from tests.integration.hive_service import Service, grant_of, start_hive
from tests.waiting import eventually

from arkml import Host


@pytest.fixture
def hive(tmp_path):
    with start_hive(tmp_path / "data") as one:
        yield one


def origin_of(hive, load):
    """The origin of the run that a guest of a host starts."""
    service = Service(hive)
    with Host(hive=grant_of(hive)) as host, load(host) as guest:

        def started():
            guest.update()
            return service.get("/runs").json()["runs"]

        [run] = eventually(started)
        found = service.get(f"/runs/{run['id']}").json()["origin"]
    service.close()
    return found


def test_a_guest_that_is_loaded_from_a_path_has_its_file_and_what_git_says(hive, tmp_path):
    folder = tmp_path / "game"
    folder.mkdir()
    path = shutil.copy(GUESTS / "c_reach.wasm", folder / "reach.wasm")
    for words in (["init"], ["add", "."], ["commit", "-m", "one"], ["tag", "-a", "v7", "-m", "7"]):
        git = ["git", "-c", "user.name=a", "-c", "user.email=a@b", *words]
        subprocess.run(git, cwd=folder, check=True, capture_output=True)
    origin = origin_of(hive, lambda host: host.load(path, name="hero"))

    assert origin["guest_file"] == "reach.wasm"
    assert origin["git"] == "v7"


def test_a_guest_of_bytes_has_its_name_and_no_folder(hive):
    data = (GUESTS / "c_reach.wasm").read_bytes()
    origin = origin_of(hive, lambda host: host.load(data, name="hero"))

    assert origin["guest_file"] == "hero"
    assert origin.get("git", "") == ""
