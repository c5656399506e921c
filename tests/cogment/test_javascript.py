"""The published JavaScript SDK, and ours, play trials of our web port in Chromium."""

from pathlib import Path

import pytest
from tests.cogment.browser import serving_pages, shown
from tests.cogment.conftest import HERE, ORIGINAL, OURS

from arkml.trials import Server, TrialsOptions
from arkml.trials.generate import generate
from arkml.trials.server.parameter_file import read_parameters
from arkml.trials.server.web.port import WebPort
from arkml.trials.server.web.web_options import WebOptions

pytestmark = pytest.mark.cogment
STATES = ["INITIALIZING", "PENDING", "RUNNING", "TERMINATING", "ENDED"]
SKIPPED = ("TERMINATING", "hard")


@pytest.fixture
def files(programs, tmp_path):
    """The files of pages by their path: the SDKs and the project."""
    generate(HERE / "project" / "cogment.yaml", javascript=tmp_path / "project")
    folders = {"": HERE / "page", "project/": tmp_path / "project"}
    found = {
        prefix + path.relative_to(folder).as_posix(): path
        for prefix, folder in folders.items()
        for path in folder.rglob("*")
        if path.is_file()
    }
    package = programs.parent / "package"
    return {**found, "cogment.umd.js": package / "dist" / "cogment.umd.js"}


def parameter_file(folder, endpoint):
    path = Path(folder, "params.yaml")
    path.write_text(
        "trial_params:\n"
        f"  environment: {{name: world, endpoint: {endpoint}, implementation: tally}}\n"
        "  actors:\n"
        "    - {name: ada, actor_class: player, endpoint: cogment://client}\n"
        f"    - {{name: carol, actor_class: watcher, endpoint: {endpoint},"
        " implementation: service}\n"
    )
    return path


@pytest.mark.parametrize("package", [ORIGINAL, OURS], ids=["original world", "our world"])
@pytest.mark.parametrize("page", ["original.html", "ours.html"])
async def test_a_page_plays_trials_to_all_their_ends(participants, files, tmp_path, page, package):
    async with (
        participants.serving(package, hook="asked") as (endpoint, lines),
        Server(
            TrialsOptions(
                params=read_parameters(parameter_file(tmp_path, endpoint)), hooks=(endpoint,)
            )
        ) as server,
    ):
        with serving_pages(files) as pages:
            port = WebPort(server, WebOptions(allow_origins=(pages.origin,)))
            await port.open()
            pages.given = {"endpoint": port.endpoint()}
            result = await shown(pages, page, tmp_path / "profile")
            await port.close()
        told = {}
        while "environment" not in told.get("trial-environment", {}):
            line = await lines.next()
            told.setdefault(line.get("environment", ""), line)

    assert "error" not in result, result["error"]
    assert result["environment"]["observations"] == [[tick, tick, 8 * tick] for tick in range(5)]
    assert result["environment"]["tick"] == 4
    assert result["environment"]["rewards"] == [[0, 1, ["world"]], [1, 2, ["world"]]]
    assert ["ada", "from a page"] in told["trial-environment"]["messages"]
    assert told["trial-environment"]["actions"] == [[[0, 3], [1, 5]]] * 4
    for end, seen in result.items():
        assert seen["trial"] == f"trial-{end}"
        assert seen["again"] == ""
        assert seen["state"] == "ENDED"
        assert "to all" in seen["messages"]
        assert seen["isOver"]
        assert ("FINAL" in seen["types"]) == (end != "hard")
        assert seen["states"] == [state for state in STATES if (state, end) != SKIPPED]
        assert ("ENDING" in seen["types"]) == (end != "hard")
