"""People watch versions of runs: real guests, real policies, a real hive and its players."""

import json
from pathlib import Path

import pytest
from tests.children import children_of
from tests.faults.player import processes
from tests.integration.command_line import FRAMES, GUESTS, LOOP
from tests.integration.duel_guest import STEPS, duel
from tests.integration.hive_service import grant_of
from tests.integration.test_other_behaviors import always
from tests.integration.watched_runs import Watcher, watched_hive, with_section
from tests.waiting import eventually
from wasmtime import wat2wasm

import arkml
from arkml import Host
from arkml.hive.protocol.replay_messages import ReplayDocument
from arkml.server.access.callers import AccessRole
from arkml.server.access.token_file import TokenFile

CARTPOLE = GUESTS / "c_cartpole.wasm"
PLAYER = "arkml.watching"
QUICK = {"algorithm": "drawn", "batch_size": 16, "memory_min_size": 64}


@pytest.fixture
def hive(tmp_path):
    with watched_hive(tmp_path) as made:
        yield made


@pytest.fixture
def watcher(hive):
    """Begins to watch; all leave at the end of the test."""
    watchers = []

    def watch(run, **query):
        watchers.append(Watcher(hive, run, **query))
        return watchers[-1]

    yield watch
    for one in watchers:
        one.leave()


def players(hive):
    """The processes of a hive's players."""
    return set(children_of(hive.hive.pid)) & set(processes(PLAYER))


def test_twenty_watch_one_version_and_get_the_frames_of_one_player(hive, watcher):
    run = hive.train()
    hive.keep(run).raise_for_status()
    all_of_them = [watcher(run, version="latest") for _ in range(20)]
    heads = [one.first("head") for one in all_of_them]
    for one in all_of_them:
        eventually(lambda: len(one.of("frame")) > 5)  # noqa: B023
    assert len(players(hive)) == 1

    assert {head["version"] for head in heads} == {1}
    assert heads[0]["behaviors"][0]["observations"][0]["shape"] == [4]
    seen = [{frame["frame"]: frame for frame in one.of("frame")} for one in all_of_them]
    common = set.intersection(*map(set, seen))
    assert common
    for number in common:
        assert all(one[number] == seen[0][number] for one in seen)
    [submit] = seen[0][min(common)]["submits"]
    assert (submit["rows"], len(submit["observations"][0]), len(submit["actions"][0])) == (16, 4, 1)
    for one in all_of_them[1:]:
        one.leave()
    assert len(players(hive)) == 1
    all_of_them[0].leave()
    eventually(lambda: not players(hive))


def test_two_versions_from_one_seed_begin_alike(hive, watcher):
    run = hive.train(versions=2)
    hive.keep(run).raise_for_status()
    before, after = watcher(run, version="1", seed=7), watcher(run, version="2", seed=7)
    assert [before.first("head")["version"], after.first("head")["version"]] == [1, 2]

    eventually(lambda: len(players(hive)) == 2)
    frames = [{f["frame"]: f["submits"] for f in one.of("frame")} for one in (before, after)]
    for number in set(frames[0]) & set(frames[1]):
        assert frames[0][number] == frames[1][number]  # both files have one policy


def test_a_version_that_is_thinned_away_plays_on_and_is_not_found_again(hive, watcher):
    run = hive.train(versions=3)
    hive.keep(run).raise_for_status()
    ann = watcher(run, version="1")
    ann.first("frame")
    hive.published(run, 1).unlink()

    assert ann.first("kept") is False
    count = len(ann.of("frame"))
    eventually(lambda: len(ann.of("frame")) > count + 5)
    bob = watcher(run, version="1", seed=1)
    eventually(lambda: bob.error)
    assert (bob.status, bob.error) == (404, f"run {run} keeps no version 1: there are 2, 3")
    versions = hive.get(f"/runs/{run}/versions").json()
    assert [one["version"] for one in versions["versions"]] == [2, 3]
    assert (versions["latest"], versions["best"], versions["obstacle"]) == (3, None, "")


def test_a_guest_that_traps_says_where_and_touches_nothing_else(hive, watcher):
    run = hive.train()
    text = """(module (memory (export "memory") 1)
      (func $sink unreachable) (func (export "ark_applet_update") (call $sink)))"""
    hive.keep(run, bytes(wat2wasm(text))).raise_for_status()
    ended = watcher(run).first("ended")

    assert "unreachable" in ended["reason"]
    assert ended["calls"][0].startswith("sink (guest")
    eventually(lambda: not players(hive))
    assert hive.run(run)["status"] == "running"


def test_of_a_guest_that_plays_copies_as_many_are_played_as_are_shown(hive, watcher):
    run = hive.train()
    declared = {"behaviors": {"*": {"copies": 100}}}
    hive.keep(run, with_section(CARTPOLE.read_bytes(), declared)).raise_for_status()
    one = watcher(run, version="latest")
    eventually(lambda: one.of("frame"))

    [submit] = one.of("frame")[0]["submits"]
    assert (submit["rows"], len(submit["actions"][0])) == (64, 1)


def test_a_guest_of_wasi_is_watched_and_recorded(hive, watcher):
    run = hive.train("c_drift")
    hive.keep(run, (GUESTS / "c_drift.wasm").read_bytes(), behavior="drift").raise_for_status()
    watched = watcher(run)
    frame = watched.first("frame")
    recorded = hive.post(f"/runs/{run}/recordings", {"version": "latest"})

    assert watched.of("ended") == []
    assert frame["submits"][0]["rows"] == 4
    assert recorded.json()["recorded"]["version"] == 1


def test_a_guest_that_imports_functions_of_a_game_says_which_and_where_to_look(hive, watcher):
    run = hive.train()
    names = ("raycast", "spawn", "log", "now")
    imports = "".join(f'(import "env" "{name}" (func))' for name in names)
    hive.keep(run, bytes(wat2wasm(f"(module {imports})"))).raise_for_status()
    ended = watcher(run).first("ended")
    recorded = hive.post(f"/runs/{run}/recordings", {"version": "latest"})

    assert ended["reason"] == (
        "guest.wasm imports env.raycast, env.spawn, env.log and 1 more: a hive has no functions of"
        " a game, so it cannot play this guest; a training records episodes where they are (arkml"
        " train --trace-every)"
    )
    assert recorded.status_code == 503
    assert "imports env.raycast" in recorded.json()["error"]


def test_versions_have_the_mean_returns_of_their_evaluations_also_after_a_restart(tmp_path):
    with watched_hive(tmp_path) as hive:
        run = hive.train(versions=3)
        for version, returns in ((1, [-5.0, -7.0]), (3, [2.0])):
            body = {"version": version, "returns": returns, "lengths": [9] * len(returns)}
            hive.post(f"/runs/{run}/evaluations", body).raise_for_status()
        found = hive.get(f"/runs/{run}/versions").json()["versions"]
    with watched_hive(tmp_path) as hive:
        again = hive.get(f"/runs/{run}/versions").json()["versions"]

    assert {one["version"]: one["mean_return"] for one in found} == {1: -6.0, 2: None, 3: 2.0}
    assert again == found


def test_a_guest_that_never_returns_is_ended(hive, watcher):
    run = hive.train()
    hive.keep(run, bytes(wat2wasm(LOOP))).raise_for_status()

    assert "1 s" in watcher(run).first("ended")["reason"]


def test_a_guest_that_starts_no_training_is_told(hive, watcher):
    run = hive.train()
    hive.keep(run, bytes(wat2wasm(FRAMES))).raise_for_status()

    reason = watcher(run).first("ended")["reason"]
    assert reason == "guest.wasm started no training within 600 frames"


def test_a_run_without_a_guest_says_how_to_keep_one(hive, watcher):
    run = hive.train()
    ann = watcher(run)
    eventually(lambda: ann.error)

    assert ann.status == 404
    assert "--keep-module" in ann.error
    assert hive.get(f"/runs/{run}/versions").json()["obstacle"] == ann.error
    refused = hive.post(f"/runs/{run}/guest", {"module": "0" * 64, "name": "a", "behavior": "b"})
    assert refused.status_code == 404


@pytest.mark.parametrize("version", ["newest", "-1", "1.5", "", "99999999999"])
def test_a_version_of_another_form_is_refused(hive, version):
    run = hive.train()
    hive.keep(run).raise_for_status()

    refused = hive.get(f"/runs/{run}/watch", params={"version": version})
    assert refused.status_code == 422
    assert "version is" in refused.json()["error"]


def test_as_many_are_watched_as_the_hive_plays(tmp_path):
    with watched_hive(tmp_path, watches={"total": 1}) as hive:
        run = hive.train(versions=2)
        hive.keep(run).raise_for_status()
        ann = Watcher(hive, run, version="1")
        ann.first("head")
        bob = Watcher(hive, run, version="2")
        eventually(lambda: bob.error)

        assert bob.status == 429
        assert bob.error.startswith("1 versions are watched or recorded on this hive")
        ann.leave()  # whose player lingers, and makes room
        cas = Watcher(hive, run, version="2")
        cas.first("head")
        hive.http.delete(f"/runs/{run}", params={"force": 1}).raise_for_status()
        assert cas.first("ended")["reason"] == f"run {run} was removed"
        bob.leave()
        cas.leave()


def test_a_hive_may_play_none(tmp_path):
    with watched_hive(tmp_path, watches={"total": 0}) as hive:
        run = hive.train()
        refused = hive.get(f"/runs/{run}/watch")

        assert refused.status_code == 503
        assert "--watches N" in refused.json()["error"]
        assert hive.get(f"/runs/{run}/versions").json()["obstacle"] == refused.json()["error"]
        assert hive.http.put(f"/modules/{'0' * 64}", content=b"").status_code == 503


def test_players_end_with_the_hive(tmp_path):
    with watched_hive(tmp_path) as hive:
        run = hive.train()
        hive.keep(run).raise_for_status()
        ann = Watcher(hive, run)
        ann.first("frame")
        [player] = players(hive)
    ann.leave()

    eventually(lambda: not Path(f"/proc/{player}").exists())


def test_an_episode_is_recorded_and_kept_with_the_run(hive):
    run = hive.train(versions=2)
    hive.keep(run).raise_for_status()
    answer = eventually(lambda: recorded(hive, run, "1"))

    assert (answer["kind"], answer["version"]) == ("recorded", 1)
    assert hive.get(f"/runs/{run}/replays").json()["replays"] == [answer]
    packed = hive.get(f"/runs/{run}/replay", params={"which": "recorded", "version": 1}).content
    document = ReplayDocument.unpack(packed)
    assert document.guest.startswith("guest.wasm")
    assert len(document.frames) > 5
    assert not players(hive)
    missing = hive.get(f"/runs/{run}/replay", params={"which": "recorded", "version": 2})
    assert (missing.status_code, "recorded of version 2" in missing.json()["error"]) == (404, True)


def test_a_guest_says_of_itself_what_it_is_and_begins_as_its_run_said(hive, watcher):
    run = hive.train("c_reach")
    spec = {"behaviors": {"reach": {"observations": PARTS, "positions": [0, 1]}}}
    module = with_section((GUESTS / "c_reach.wasm").read_bytes(), spec)
    hive.keep(run, module, behavior="reach", max_episode_steps=5).raise_for_status()
    ann = watcher(run)
    [behavior] = ann.first("head")["behaviors"]

    assert (behavior["name"], behavior["positions"]) == ("reach", [0, 1])
    eventually(lambda: any(frame["frame"] > 20 for frame in ann.of("frame")))
    states = [frame["submits"][0]["states"][0] for frame in ann.of("frame")]
    assert states.count("initial") >= 2  # each guest is cut off after five steps


PARTS = [{"name": "target", "shape": [2]}, {"name": "speed", "shape": [2]}]


RIVALS = bytes(wat2wasm(duel("left", "right", rivals=True)))
"""A guest whose behavior left gets its action less that of right as reward."""


def rivals(hive, **right):
    """The run of left, which plays 0.75, and of right, which plays 0.25, as options say."""
    run = hive.train("left", policy=always(2, 0.75))
    other = hive.train("right", policy=always(3, 0.25), **right)
    options = {"behavior": "left", "others": {"right": other, "gone": "0" * 16}}
    hive.keep(run, RIVALS, **options).raise_for_status()
    return run


def test_agents_of_other_runs_act_by_their_newest_versions(hive, watcher):
    run = rivals(hive)
    ann = watcher(run)
    eventually(lambda: len(ann.of("frame")) > 5)
    heads, frames = ann.of("head"), ann.of("frame")[2:]
    actions = [[submit["actions"] for submit in frame["submits"]] for frame in frames]
    answer = eventually(lambda: recorded(hive, run, "1"))

    assert heads[-1]["notes"] == ["agents of right act by version 1 of their run"]
    assert [one["name"] for one in heads[-1]["behaviors"]] == ["left", "right"]
    assert [[[0.75]], [[0.25]]] in actions
    assert answer["score"] == STEPS * 0.5


def test_a_run_of_somebody_else_plays_no_agents(tmp_path):
    with watched_hive(tmp_path) as hive:
        tokens = TokenFile(hive.hive.data)
        bob = bearer(tokens.add("bob", AccessRole.ACT, None)[1])
        eventually(lambda: hive.get("/whoami", headers=bob).status_code == 200)
        run = rivals(hive, headers=bob)
        answer = eventually(lambda: recorded(hive, run, "1"))

        assert answer["score"] == STEPS * 0.75


def test_the_runs_of_a_training_are_told_of_each_other(tmp_path):
    arkml.train(
        RIVALS, directory=tmp_path / "out", minutes=5, eval_every=None, settings=QUICK,
        progress=lambda state: not state.updates,
    )  # fmt: skip
    reports = [json.loads(one.read_bytes()) for one in tmp_path.glob("out/hive/runs/*/guest.json")]
    ids = {one.parent.name for one in tmp_path.glob("out/hive/runs/*/guest.json")}

    assert {one["behavior"]: list(one["others"]) for one in reports} == {
        "left": ["right"], "right": ["left"],
    }  # fmt: skip
    assert {run for one in reports for run in one["others"].values()} == ids


def test_a_training_has_its_own_hive_keep_its_guest_unless_it_says_otherwise(tmp_path):
    for name, keeps in (("kept", None), ("not", False)):
        arkml.train(
            CARTPOLE, directory=tmp_path / name, keep_module=keeps, minutes=5, eval_every=None,
            settings=QUICK, progress=lambda state: not state.updates,
        )  # fmt: skip

    [kept] = tmp_path.glob("kept/hive/runs/*/guest.wasm")
    assert kept.read_bytes() == CARTPOLE.read_bytes()
    assert not list(tmp_path.glob("not/hive/runs/*/guest.*"))


@pytest.mark.parametrize(("keeps", "is_kept"), [(None, False), (True, True)])
def test_another_hive_gets_a_copy_of_the_guest_only_where_that_is_said(hive, keeps, is_kept):
    grant = grant_of(hive.hive, keep_module=keeps)
    with Host(hive=grant) as host:
        guest = host.load(CARTPOLE)
        eventually(lambda: (guest.update(), hive.get("/runs").json()["runs"])[1])
        run = hive.get("/runs").json()["runs"][0]["id"]
        found = lambda: hive.get(f"/runs/{run}/versions").json()["guest"]  # noqa: E731
        assert (eventually(found) if is_kept else found()) == ("c_cartpole.wasm" * is_kept)


def recorded(hive, run, version):
    answer = hive.post(f"/runs/{run}/recordings", {"version": version})
    assert answer.status_code in (200, 202), answer.text
    return answer.json()["recorded"]


def test_who_reads_may_watch_and_who_acts_its_own_runs(tmp_path):
    with watched_hive(tmp_path) as hive:
        tokens = TokenFile(hive.hive.data)
        roles = {name: tokens.add(name, AccessRole(role), None)[1] for name, role in ROLES}
        whoami = lambda name: hive.get("/whoami", headers=bearer(roles[name]))  # noqa: E731
        eventually(lambda: all(whoami(name).status_code == 200 for name in roles))
        own = hive.train(headers=bearer(roles["ann"]))
        hive.keep(own).raise_for_status()

        def asked(name, path, body=None):
            headers = bearer(roles[name])
            if body is not None:
                return hive.post(f"/runs/{own}/{path}", body, headers=headers).status_code
            with hive.http.stream("GET", f"/runs/{own}/{path}", headers=headers) as answer:
                return answer.status_code

        watching = {name: asked(name, "watch") for name in roles}
        recording = {name: asked(name, "recordings", {"version": "7"}) for name in roles}
        assert watching == {"ann": 200, "bob": 403, "eve": 200, "root": 200}
        assert recording == {"ann": 404, "bob": 403, "eve": 403, "root": 404}


ROLES = (("ann", "act"), ("bob", "act"), ("eve", "read"), ("root", "admin"))


def bearer(token):
    return {"authorization": f"Bearer {token}"}
