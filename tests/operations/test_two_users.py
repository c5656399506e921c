"""Root makes tokens and backups, and the service is another user, as docs/operations.md has it."""

import configparser
import os
import re
import shlex
import shutil
import signal
import subprocess
import sys
import tempfile
from contextlib import contextmanager
from pathlib import Path

import httpx
import pytest
from tests.integration.command_line import ENVIRONMENT, ROOT, arkml
from tests.integration.test_operations_followed import commands
from tests.waiting import eventually

pytestmark = pytest.mark.operations
SERVICE = 65_534


def as_service(words, **options):
    """The options of a process of the service's user, in a directory that everyone may enter."""
    environment = {
        **ENVIRONMENT,
        "ARKML_HIVE_TOKEN": "the operator's token",
        "PYTHONUNBUFFERED": "1",
    }
    return {
        "args": [sys.executable, "-m", "arkml", *words], "cwd": "/", "user": SERVICE, "text": True,
        "group": SERVICE, "extra_groups": [], "stderr": subprocess.PIPE, "env": environment,
        **options,
    }  # fmt: skip


def is_readable():
    try:
        tried = subprocess.run(**as_service(["--version"]), check=False, stdout=subprocess.DEVNULL)
    except PermissionError:
        return False
    return tried.returncode == 0


@pytest.fixture
def home():
    """What is /var/lib/arkml on the pages. Those of pytest are root's alone."""
    if os.geteuid() != 0:
        pytest.skip("root alone has a second user")
    if not is_readable():
        pytest.skip("this Python or this checkout is in a directory that other users may not read")
    top = Path(tempfile.mkdtemp())
    top.chmod(0o755)
    yield top / "arkml"
    shutil.rmtree(top)


def make(home):
    """As systemd does for StateDirectory, also if the directory is there."""
    home.mkdir(0o700, exist_ok=True)
    for path in (home, *home.rglob("*")):
        os.chown(path, SERVICE, SERVICE)


@contextmanager
def serving(words, home):
    """The address of the service."""
    with subprocess.Popen(**as_service([*words, "--port", "0"])) as process:
        try:
            url = ""
            while not url:
                line = process.stderr.readline()
                assert line, "the service has ended"
                url = re.search(r"https?://[\w.:]+|$", line)[0]
            yield url
        finally:
            process.send_signal(signal.SIGTERM)
            process.communicate()
    assert {path.stat().st_uid for path in (home, *home.rglob("*"))} == {SERVICE}


def name_of(url, token):
    answer = httpx.get(
        f"{url}/v1/whoami", headers={"authorization": f"Bearer {token}"}, trust_env=False
    )
    return answer.json().get("name")


@pytest.mark.parametrize("first", ["systemd", "root"])
def test_what_root_makes_serves_a_service_that_is_another_user(first, home, tmp_path):
    def here(words):
        return [word.replace("/var/lib/arkml", str(home)) for word in words]

    new = here(commands("operations/access.md", "arkml hive token new")[0])[1:]
    backup, restore = (
        here(commands("operations.md", f"arkml hive {name}")[0])[1:]
        for name in ("backup", "restore")
    )
    archive = str(tmp_path / "hive.tar")
    unit = configparser.ConfigParser(strict=False, interpolation=None)
    unit.optionxform = str
    unit.read(ROOT / "docs/operations/arkml-hive.service")
    words = here(shlex.split(unit["Service"]["ExecStart"])[1:])
    restored = [word.replace(f"{home}/hive", f"{home}/restored") for word in words]
    if first == "systemd":
        make(home)
    alice = arkml(*new).out.strip()
    if first == "root":
        make(home)
    with serving(words, home) as url:
        bob = arkml(*("bob" if word == "alice" else word for word in new)).out.strip()
        eventually(lambda: name_of(url, bob) == "bob")
        names = [name_of(url, alice), name_of(url, "the operator's token")]
        kept = [
            arkml(*(archive if word == "hive.tar" else word for word in line))
            for line in (backup, restore)
        ]
    with serving(restored, home) as url:
        names += [name_of(url, alice), name_of(url, bob)]

    assert names == ["alice", "operator", "alice", "bob"]
    assert [one.status for one in kept] == [0, 0]


def test_a_directory_of_root_is_refused_by_the_service_with_the_way_out(home):
    data = home / "hive"
    arkml("hive", "token", "new", "--data", str(data), "--name", "alice")
    ended = subprocess.run(
        **as_service(["hive", "serve", "--data", str(data), "--port", "0"]), check=False
    )

    assert ended.returncode == 2
    assert f"{data} belongs to root, and this process runs as nobody" in ended.stderr
    assert f"chown -R nobody {data}" in ended.stderr
