"""A training that joins the run of a colleague, and what a hive is told of where runs come from."""

import hashlib
import math
from pathlib import Path

import pytest
from tests.integration import command_line
from tests.integration.command_line import GUESTS, ROOT
from tests.integration.hive_service import Service
from tests.waiting import eventually

import arkml
from arkml.errors import NotTrainable, Unavailable, UsageError
from arkml.hive.embedded import EmbeddedHive
from arkml.hive.protocol.runs import RunRequest
from arkml.hive.protocol.settings import Settings
from arkml.server.access.callers import AccessRole
from arkml.server.access.token_file import TokenFile

REACH = GUESTS / "c_reach.wasm"
QUICK = {"hidden": 32, "batch_size": 64, "memory_min_size": 640}


@pytest.fixture(scope="module")
def service(tmp_path_factory):
    data = tmp_path_factory.mktemp("hive")
    with EmbeddedHive(data, {"spare": False}) as hive:
        service = Service(hive)
        service.data = data
        yield service
        service.close()


def started(service, name, features=4, actions=2, **more):
    settings = Settings(features, actions, algorithm="drawn", **QUICK, **more)
    answer = service.post("/runs", RunRequest(name, "game", settings).as_json())
    assert answer.status_code == 201, answer.text
    return answer.json()["run"]["id"]


def known_token(service, name):
    """A new token, which the hive knows: it looks for new ones twice a second."""
    _, token = TokenFile(service.data).add(name, AccessRole.ACT, None)
    headers = {"authorization": f"Bearer {token}"}
    eventually(lambda: service.get("/whoami", headers=headers).status_code == 200)
    return token


def trained(service, tmp_path, token=None, **options):
    address = service.base.removesuffix("/v1")
    token = token or service.token
    return arkml.train(
        REACH, hive=address, token=token, directory=tmp_path, eval_every=None,
        **{"minutes": 5, "progress": lambda state: state.rows < 640, **options},
    )  # fmt: skip


def test_a_run_of_a_colleague_is_joined_by_its_name_with_a_token_that_acts(service, tmp_path):
    token = known_token(service, "bob")
    before = len(service.get("/runs").json()["runs"])
    started(service, "another")
    run = started(service, "of ann")
    result = trained(service, tmp_path, token, join="of ann")
    shown = service.get(f"/runs/{run}").json()

    assert result.run_id == run
    assert shown["run"]["rows"] >= 640
    assert shown["run"]["status"] != "stopped"  # it is not bob's
    assert "goal" not in shown["run"]
    assert len(service.get("/runs").json()["runs"]) == before + 2


def test_the_updates_of_a_joined_run_are_shown_without_a_rate_of_this_host(service, tmp_path):
    run = started(service, "of eve")
    ended = command_line.arkml(
        "train", REACH, "--hive", service.base.removesuffix("/v1"), "--join", run,
        "--frames", 700, "--eval-every", "never", "--out", tmp_path / "out",
        ARKML_HIVE_TOKEN=service.token,
    )  # fmt: skip
    (updates,) = [line for line in ended.out.splitlines() if line.strip().startswith("updates ")]

    assert int(updates.split()[1].replace(",", "")) > 0
    assert "/s" not in updates


@pytest.mark.parametrize(
    ("join", "shape", "options", "sentence"),
    [
        ("wide", {"features": 5}, {}, "run 'wide' has 5 features and 2 actions; another guest"),
        ("nothing", {}, {}, "run 'nothing' cannot be joined: there is none of that id"),
        ("own", {}, {"settings": {"gamma": 0.5}}, "run 'own' has its own settings, and others"),
        ("sync", {"sync": True}, {}, "run 'sync' learns in lockstep with one host"),
    ],
)
def test_a_run_that_does_not_fit_is_not_joined(service, tmp_path, join, shape, options, sentence):
    if join != "nothing":
        run = started(service, join, **shape)
    before = len(service.get("/runs").json()["runs"])
    with pytest.raises(NotTrainable, match=sentence) as refused:
        trained(service, tmp_path, join=join, **options)

    assert len(str(refused.value)) < 400
    assert len(service.get("/runs").json()["runs"]) == before
    if join != "nothing":
        service.post(f"/runs/{run}/stop")


def test_a_run_that_is_over_is_not_resumed(service, tmp_path):
    run = started(service, "over")
    service.post(f"/runs/{run}/stop")
    service.wait_for_status(run, "stopped")
    with pytest.raises(NotTrainable, match="run 'over' cannot be joined: 'over' is stopped"):
        trained(service, tmp_path, join="over")


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"join": "x"}, "join is 'x': a run is joined on the hive of others"),
        ({"join": "x", "hive": "localhost:1", "resume": True}, "join is 'x', and resume is given"),
        ({"join": "x", "hive": "localhost:1", "checkpoint": "r1"}, "and checkpoint is given"),
        ({"join": 7, "hive": "localhost:1"}, "join is 7: it takes the id or name of a run"),
    ],
)
def test_a_join_that_makes_no_sense_is_refused_before_anything_begins(tmp_path, options, sentence):
    with pytest.raises(UsageError, match=sentence):
        arkml.train(REACH, directory=tmp_path, **options)


@pytest.mark.parametrize("options", [{"resume": True}, {"join": "x"}], ids=["resume", "join"])
def test_a_run_of_a_hive_that_is_absent_is_not_waited_for(tmp_path, monkeypatch, options):
    monkeypatch.setattr("arkml.training.monitor._UNANSWERED", math.inf)

    with pytest.raises(Unavailable, match="no hive answers at"):
        arkml.train(REACH, hive="127.0.0.1:9", directory=tmp_path, **options)


def test_a_hive_is_told_where_a_run_comes_from_and_what_was_asked_for(
    service, tmp_path, monkeypatch
):
    monkeypatch.setattr("sys.argv", ["/x/train.py", "--token", "abc123", "--seed", "3"])
    guest = Path(tmp_path, "mine.wasm")
    guest.write_bytes(REACH.read_bytes())
    address = service.base.removesuffix("/v1")
    seen = {}

    def look(state):
        if state.run_id and not seen:
            seen.update(service.get(f"/runs/{state.run_id}").json())
        return state.rows < 640

    for path in (guest, REACH):
        seen.clear()
        arkml.train(
            path, hive=address, token=service.token, directory=tmp_path / path.stem, minutes=5,
            settings={"algorithm": "drawn", **QUICK}, eval_every=None, progress=look,
        )  # fmt: skip
        origin = seen["origin"]
        assert origin["command"] == "train.py --token ... --seed 3"
        assert origin["guest_file"] == path.name
        assert origin["guest_sha256"] == hashlib.sha256(REACH.read_bytes()).hexdigest()
        assert origin["versions"]["arkml"]
        assert (origin["git"] != "") == (path == REACH and (ROOT / ".git").exists())
        assert seen["owner_name"] == "operator"
        assert seen["run"]["goal"]["seconds"] == 300
        assert seen["run"]["goal"]["since"] >= seen["run"]["started_at"] - 10**9
