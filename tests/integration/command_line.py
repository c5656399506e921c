"""The command line as its users have it: a process."""

import json
import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from tests import prefork
from tools.houses import PYTHONPATH

from arkml.runtime.module.description import describe
from arkml.runtime.module.parsing import parse

ROOT = Path(__file__).parents[2]
GUESTS = ROOT / "fixtures" / "guests"
POLICIES = ROOT / "fixtures" / "policies"
CORRIDOR = GUESTS / "c_corridor.wasm"  # declares "corridor": two branches of four choices, masked
PATH = os.pathsep.join((PYTHONPATH, str(ROOT / "tests" / "drawn_learner")))
ENVIRONMENT = {**os.environ, "PYTHONPATH": PATH, "PYTHONWARNINGS": "error"}

LOOP = '(module (memory (export "memory") 1) (func (export "ark_applet_update") (loop (br 0))))'
FRAMES = '(module (memory (export "memory") 1) (func (export "ark_applet_update")))'


def with_spec(path, document):
    """A module with another content of its section arkml.spec."""
    data = path.read_bytes()
    old = describe(parse(data)).spec
    return data.replace(old, json.dumps(document).encode().ljust(len(old)))


@dataclass(frozen=True)
class Ended:
    """A process that ended."""

    status: int
    out: str
    err: str

    @property
    def json(self):
        """The one object on stdout."""
        return json.loads(self.out)


def start(*words, cwd=ROOT, **more):
    environment = {**ENVIRONMENT, **more}
    kind = prefork.Process if prefork.fits(more) else subprocess.Popen
    return kind(
        [sys.executable, "-m", "arkml", *map(str, words)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        encoding="utf-8",
        cwd=cwd,
        env=environment,
    )


def arkml(*words, stdin="", cwd=ROOT, **more):
    """Run a command to its end; `more` are environment variables."""
    with start(*words, cwd=cwd, **more) as process:
        out, err = process.communicate(stdin)
    return Ended(process.returncode, out, err)


def arkml_for_each(commands):
    """Run commands, two at a time."""
    with ThreadPoolExecutor(2) as pool:
        return list(pool.map(lambda words: arkml(*words), commands))
