"""The published Python SDK plays trials of our server, and with ours."""

import json
import subprocess
from pathlib import Path

import pytest
from tests.cogment.conftest import ORIGINAL, OURS, serving_trials

pytestmark = pytest.mark.cogment
ALL_STATES = ["INITIALIZING", "PENDING", "RUNNING", "TERMINATING", "ENDED"]
PAIRS = {
    "originals": (ORIGINAL, ORIGINAL),
    "original clients, our environment and service": (ORIGINAL, OURS),
    "our clients, original environment and service": (OURS, ORIGINAL),
    "ours": (OURS, OURS),
}


def cast(endpoint):
    """Two actors that join, and one that is called."""
    return [
        {"name": "ada", "class": "player", "endpoint": "cogment://client"},
        {"name": "bob", "class": "watcher", "endpoint": "cogment://client"},
        {"name": "carol", "class": "player", "endpoint": endpoint, "implementation": "service"},
    ]


async def played(participants, data, clients, server_side, end="environment", ticks=4, **given):
    """What the clients saw, the environment and the actor that is called."""
    async with (
        serving_trials(data) as server,
        participants.serving(server_side) as (endpoint, lines),
    ):
        result = await participants.played(
            clients, server=server, environment=endpoint, actors=cast(endpoint), end=end,
            ticks=ticks, joins=["ada", "bob"], **given,
        )  # fmt: skip
        told = {}
        while len(told) < 2:
            line = await lines.next()
            for kind in ("environment", "actor"):
                if line.get(kind) == result["trial"]:
                    told[kind] = line
    return result, told["environment"], told["actor"]


@pytest.mark.parametrize(("clients", "server_side"), PAIRS.values(), ids=PAIRS)
async def test_a_whole_trial_is_seen_alike_by_originals_and_ours(
    participants, clients, server_side, tmp_path
):
    result, world, carol = await played(participants, tmp_path, clients, server_side, id="my-trial")
    ada, bob = result["seen"]["ada"], result["seen"]["bob"]

    assert result["trial"] == "my-trial"
    assert result["again"] == ""
    assert result["states"] == ALL_STATES
    assert result["before"][1] == "world"
    assert result["after"] == ["ENDED", 4]
    assert result["actors"] == [["ada", "player"], ["bob", "watcher"], ["carol", "player"]]
    assert {"orchestrator", "cogment-api", "grpc"} <= set(result["versions"])
    assert world["name"] == "world"
    assert world["actors"] == result["actors"]
    assert world["actions"] == [[[0, 3], [1, 3], [2, 5]]] * 4
    assert ["ada", "to the world"] in world["messages"]
    for actor in (ada, bob, carol):
        assert actor["observations"] == [[tick, tick, 11 * tick] for tick in range(5)]
        assert actor["types"][-1] == "FINAL"
        assert actor["types"].count("FINAL") == 1
        assert ["world", "to all"] in actor["messages"]
        assert 7.0 not in [value for _, value, _ in actor["rewards"]]
    assert ["ada", "to watchers"] in bob["messages"]
    assert ["ada", "to watchers"] not in carol["messages"]
    assert ada["rewards"] == [[0, 1.0, [["world", 1.0]]], [1, 2.0, [["world", 2.0]]]]
    assert carol["rewards"] == ada["rewards"]
    assert bob["rewards"] == [[0, 0.75, [["ada", 0.5], ["world", 1.0]]]]


@pytest.mark.parametrize(("clients", "server_side"), PAIRS.values(), ids=PAIRS)
async def test_a_soft_end_by_a_controller_is_seen_as_ending_and_final(
    participants, clients, server_side, tmp_path
):
    result, world, carol = await played(
        participants, tmp_path, clients, server_side, "soft", 10_000
    )

    assert result["states"] == ALL_STATES
    for actor in (result["seen"]["ada"], result["seen"]["bob"], carol):
        assert [kind for kind in actor["types"] if kind != "ACTIVE"] == ["ENDING", "FINAL"]
    assert [kind for kind in world["types"] if kind != "ACTIVE"] == ["ENDING", "FINAL"]


@pytest.mark.parametrize(("clients", "server_side"), PAIRS.values(), ids=PAIRS)
async def test_a_hard_end_by_a_controller_has_no_final_event(
    participants, clients, server_side, tmp_path
):
    result, world, carol = await played(
        participants, tmp_path, clients, server_side, "hard", 10_000
    )

    assert result["states"] == [state for state in ALL_STATES if state != "TERMINATING"]
    for seen in (result["seen"]["ada"], result["seen"]["bob"], carol, world):
        assert set(seen["types"]) == {"ACTIVE"}


@pytest.mark.parametrize("package", [ORIGINAL, OURS])
async def test_hooks_change_the_parameters_one_after_the_other(participants, package, tmp_path):
    async with (
        participants.serving(package, hook="ticks + 2") as (adding, _),
        participants.serving(ORIGINAL, hook="ticks * 2") as (doubling, _),
        participants.serving(ORIGINAL) as (endpoint, _),
    ):
        file = tmp_path / "params.yaml"
        file.write_text(
            "trial_params:\n"
            f"  environment: {{name: world, endpoint: {endpoint}, implementation: tally}}\n"
            "  actors:\n"
            "    - {name: ada, actor_class: player, endpoint: cogment://client}\n"
        )
        hooks = f"{adding},{doubling}"
        async with serving_trials(tmp_path, "--params", file, "--pre-trial-hooks", hooks) as server:
            result = await participants.played(
                ORIGINAL, server=server, environment=endpoint, actors=cast(endpoint), ticks=1,
                joins=["ada"], end="environment", config=1,
            )  # fmt: skip

    assert result["after"] == ["ENDED", 6]


@pytest.mark.parametrize("package", [ORIGINAL, OURS])
async def test_a_datalog_gets_every_tick(participants, package, tmp_path):
    async with participants.serving(package, datalog=True) as (store, samples):
        result, *_ = await played(participants, tmp_path, OURS, ORIGINAL, datalog=store)
        probe, logged = await samples.next(), await samples.next()

    assert [one["tick"] for one in probe["samples"]] == [0]
    assert (logged["datalog"], logged["user"]) == (result["trial"], "player")
    assert logged["actors"] == 3
    ticks = logged["samples"]
    assert [one["tick"] for one in ticks] == [0, 1, 2, 3, 4]
    assert [one["state"] for one in ticks] == ["RUNNING"] * 3 + ["TERMINATING", "ENDED"]
    assert [one["action"] for one in ticks] == [3, 3, 3, 3, None]
    assert [one["observation"] for one in ticks] == [0, 1, 2, 3, 4]
    assert ["*", 1.0] in ticks[0]["rewards"]
    assert ["world", "*"] in ticks[0]["messages"]
    assert logged["late"] == [[0, 7.0]]


def test_the_golden_file_has_the_signatures_of_the_published_package(programs, tmp_path):
    golden = Path(__file__).with_name("python_sdk.json")
    script = Path(__file__).with_name("signatures.py")
    subprocess.run([programs / "python", script, tmp_path / "now.json"], check=True)

    assert json.loads((tmp_path / "now.json").read_text()) == json.loads(golden.read_text())
