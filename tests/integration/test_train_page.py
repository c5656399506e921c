"""The page of a training: its link, its login, its port."""

import socket

import httpx
import numpy as np
import pytest
from tests.integration.command_line import GUESTS

import arkml
from arkml.cli.application import _with_page_port
from arkml.errors import HiveUnreachable, UsageError
from arkml.training.training_options import page_port

REACH = GUESTS / "c_reach.wasm"
QUICK = {"algorithm": "drawn", "hidden": 32, "batch_size": 64, "memory_min_size": 640}


def test_a_training_gives_the_link_to_its_page(tmp_path):
    links, seen = [], []

    def look(state):
        if state.run_id is not None and not seen:
            address, _, token = state.page.removesuffix("&runs=first").partition("#token=")
            with httpx.Client(base_url=address, trust_env=False) as browser:
                assert browser.get("/").status_code == 200
                answer = browser.post("/login", json={"token": token}, headers={"x-arkml": "1"})
                assert answer.status_code == 200
                seen.extend(run["id"] for run in browser.get("/v1/runs").json()["runs"])
        return not seen or state.versions < 1

    out = tmp_path / "out"
    result = arkml.train(
        REACH, minutes=5, settings=QUICK, directory=out, page=links.append, progress=look
    )

    assert seen == [result.run_id]
    assert links[0].startswith("http://127.0.0.1:")
    assert (out / "hive" / "runs" / result.run_id / "run.json").exists()


def test_a_page_has_the_port_that_it_was_given(tmp_path):
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(HiveUnreachable, match=f"port {port} of 127.0.0.1 is in use"):
            arkml.train(REACH, frames=10, directory=tmp_path / "taken", page=port)
    links = []
    arkml.train(
        REACH, minutes=5, settings=QUICK, directory=tmp_path / "out", page=port,
        progress=lambda state: (links.append(state.page), state.versions < 1)[1],
    )  # fmt: skip

    assert links[0].startswith(f"http://127.0.0.1:{port}/#token=")


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"page": 70_000}, "page is 70000: it takes a port"),
        ({"page": "8080"}, "page is '8080': it takes a port"),
        ({"page": True, "hive": "hive.example:1"}, "the page of hive.example:1 is at http://"),
    ],
)
def test_a_page_that_cannot_be_had_is_refused(tmp_path, options, message):
    with pytest.raises(UsageError, match=message):
        arkml.train(REACH, directory=tmp_path, **options)


def test_the_port_of_the_option_may_be_left_out():
    assert _with_page_port(["train", "a.wasm", "--page"]) == ["train", "a.wasm", "--page=0"]
    assert _with_page_port(["train", "a.wasm", "--page=80"]) == ["train", "a.wasm", "--page=80"]
    assert _with_page_port(["run", "--page"]) == ["run", "--page"]


@pytest.mark.parametrize("kind", [bool, np.bool_])
def test_a_page_is_wanted_by_true_and_not_by_false(kind):
    assert page_port(kind(True)) == 0
    assert page_port(kind(False)) is None
    assert page_port(80) == 80
