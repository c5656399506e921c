"""The example of a first environment plays as its README says, in process and through a server."""

import re
import shutil
import subprocess
import sys

import pytest
from tests.integration.command_line import ENVIRONMENT, ROOT, arkml, start

ELSEWHERE = """
import asyncio, sys
import cog_settings, harvest
from arkml.trials import Context, ServedEndpoint

async def main(server):
    async with Context("harvest", cog_settings) as context:
        context.register_environment(harvest.field, "field")
        context.register_actor(harvest.greedy, "greedy", ["picker"])
        context.register_actor(harvest.idle, "idle")
        serving = asyncio.create_task(context.serve_all_registered(ServedEndpoint(port=0)))
        while not context.served_port:
            await asyncio.sleep(0.01)
        endpoint = f"grpc://127.0.0.1:{context.served_port}"
        controller = context.get_controller(server)
        trial = await controller.start_trial(trial_params=harvest.parameters(endpoint, 5, 3))
        async for info in controller.watch_trials():
            if info.trial_id == trial:
                print("trial", info.state.name)
                if info.state.name == "ENDED":
                    break
        await context.close()
        await asyncio.gather(serving, return_exceptions=True)

asyncio.run(main(sys.argv[1]))
"""


@pytest.fixture(scope="module")
def project(tmp_path_factory):
    folder = tmp_path_factory.mktemp("project") / "harvest"
    shutil.copytree(ROOT / "examples" / "harvest", folder)
    made = arkml("trials", "generate", "cogment.yaml", "--python", ".", cwd=folder)
    assert made.status == 0, made.err
    return folder


def run(project, *words):
    ended = subprocess.run(
        [sys.executable, *words], cwd=project, env=ENVIRONMENT, capture_output=True, text=True,
        timeout=300, check=False,
    )  # fmt: skip
    assert ended.returncode == 0, ended.stderr
    return ended


def assert_all_was_picked(lines):
    assert [line for line in lines if line.startswith("trial ")][-1] == "trial ENDED"
    assert sum("picked an apple" in line for line in lines) == 5
    totals = [re.fullmatch(r"\w+ ends with (\d)", line) for line in lines]
    assert sum(int(total[1]) for total in totals if total) == 5


def test_the_example_plays_in_one_process(project):
    ended = run(project, "harvest.py", "--seed", "3")

    assert_all_was_picked(ended.stdout.splitlines())
    assert ended.stderr == ""


def test_the_same_parts_play_through_a_server(project, tmp_path):
    with start(
        "trials", "serve", "--lifecycle-port", "0", "--actor-port", "0", "--data", tmp_path / "log"
    ) as server:
        line = server.stderr.readline()
        address = re.search(r"grpc://127\.0\.0\.1:\d+", line)[0]
        try:
            ended = run(project, "-c", ELSEWHERE, address)
        finally:
            server.terminate()
            server.communicate(timeout=300)

    assert_all_was_picked(ended.stdout.splitlines())
    assert server.returncode == 143
