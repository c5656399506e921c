"""The originals, in the environment that `make test-cogment` made for them, beside our server."""

import asyncio
import contextlib
import json
import os
import re
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from tools.houses import PYTHONPATH

from arkml.trials.generate import generate

HERE = Path(__file__).parent
PATIENCE = 60
ORIGINAL, OURS = "cogment", "arkml.trials"


class Lines:
    """The JSON objects that a process prints, one a line."""

    def __init__(self, process):
        self.process = process

    async def next(self):
        line = await asyncio.wait_for(self.process.stdout.readline(), PATIENCE)
        assert line, (await self.process.stderr.read()).decode()
        return json.loads(line)


class Participants:
    """Starts participants with the published SDK, and with ours."""

    def __init__(self, programs, folder):
        self.programs = {ORIGINAL: programs / "python", OURS: Path(sys.executable)}
        self.folders = {ORIGINAL: folder / "original", OURS: folder / "ours"}

    @contextlib.asynccontextmanager
    async def started(self, package, command, **given):
        pipe = asyncio.subprocess.PIPE
        environment = {**os.environ, "PYTHONPATH": PYTHONPATH if package == OURS else ""}
        process = await asyncio.create_subprocess_exec(
            self.programs[package], HERE / "participant.py", package, self.folders[package],
            command, json.dumps(given), stdout=pipe, stderr=pipe, env=environment,
        )  # fmt: skip
        try:
            yield Lines(process)
        finally:
            if process.returncode is None:
                process.kill()
            await process.communicate()

    @contextlib.asynccontextmanager
    async def serving(self, package, **given):
        """A process that serves; yields its endpoint and what it prints later."""
        async with self.started(package, "serve", **given) as lines:
            yield f"grpc://localhost:{(await lines.next())['port']}", lines

    async def played(self, package, **given):
        async with self.started(package, "play", **given) as lines:
            return await lines.next()


@pytest.fixture(scope="session")
def programs():
    found = os.environ.get("ARKML_COGMENT")
    if found is None:
        pytest.fail("ARKML_COGMENT names no environment: run `make test-cogment`")
    return Path(found) / "bin"


@pytest.fixture(scope="session")
def participants(programs, tmp_path_factory):
    folder = tmp_path_factory.mktemp("project")
    shutil.copytree(HERE / "project", folder / "original")
    subprocess.run(
        [programs / "python", "-m", "cogment.generate", "--output", "cog_settings.py"],
        cwd=folder / "original", check=True, capture_output=True,
        env={**os.environ, "PYTHONPATH": ""},
    )  # fmt: skip
    generate(HERE / "project" / "cogment.yaml", python=folder / "ours")
    return Participants(programs, folder)


@contextlib.asynccontextmanager
async def serving_trials(data, *options):
    """The process of `arkml trials serve`; yields its endpoint. It ends as SIGTERM has it."""
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "arkml", "trials", "serve", "--lifecycle-port", "0",
        "--actor-port", "0", "--data", data, "--log-level", "warning", *map(str, options),
        stdin=asyncio.subprocess.DEVNULL, stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE, env={**os.environ, "PYTHONPATH": PYTHONPATH},
    )  # fmt: skip
    try:
        line = await asyncio.wait_for(process.stderr.readline(), PATIENCE)
        found = re.match(rb"trials: grpc://127.0.0.1:(\d+), log in ", line)
        assert found, line + await process.stderr.read()
        yield f"grpc://localhost:{int(found[1])}"
        process.send_signal(signal.SIGTERM)
        await asyncio.wait_for(process.communicate(), PATIENCE)
        assert process.returncode == 128 + signal.SIGTERM
    finally:
        if process.returncode is None:
            process.kill()
            await process.communicate()
