"""The commands of docs/operations.md and the pages that it names, typed as they are written."""

import configparser
import json
import re
import shlex
import signal
from pathlib import Path

import httpx
import pytest
from tests.integration.command_line import ROOT, arkml, start

DATA = "/var/lib/arkml/hive"
"""The data directory of a service, the same on every page."""

PAGES = [
    *sorted((ROOT / "docs").glob("*.md")),
    *sorted((ROOT / "docs/operations").glob("*.md")),
    ROOT / "docs/operations/arkml-hive.service",
    ROOT / "docs/operations/Containerfile",
]
PATH = re.compile(r"/var/lib/arkml[\w/-]*")
AROUND = {
    "/var/lib/arkml",  # the home of the user, and what a volume is mounted at
    "/var/lib/arkml/cache",
    "/var/lib/arkml/restored",
}


def commands(page, beginning):
    """The lines of a page that begin a command, without their comments."""
    lines = (ROOT / "docs" / page).read_text().splitlines()
    return [
        shlex.split(line, comments=True) for line in lines if line.startswith(f"    {beginning}")
    ]


@pytest.mark.parametrize("page", PAGES, ids=lambda path: path.name)
def test_there_is_one_data_directory(page):
    assert set(PATH.findall(page.read_text())) - AROUND <= {DATA}


def test_tokens_the_service_and_its_backup_are_used_as_the_pages_say(tmp_path):
    home = tmp_path / "lib" / "arkml"

    def here(words):
        return [word.replace("/var/lib/arkml", str(home)) for word in words]

    new, listed, renew, revoke = commands("operations/access.md", "arkml hive token")
    backup, restore = (
        commands("operations.md", f"arkml hive {name}")[0] for name in ("backup", "restore")
    )
    made = arkml(*here(new)[1:])
    told = arkml(*here(listed)[1:])
    renewed = arkml(*here(renew)[1:])
    unit = configparser.ConfigParser(strict=False, interpolation=None)
    unit.optionxform = str
    unit.read(ROOT / "docs/operations/arkml-hive.service")
    program, *words = shlex.split(unit["Service"]["ExecStart"])
    hive = start(*here(words), "--port", "0", ARKML_HIVE_TOKEN="the operator's token")
    try:
        url = ""
        while not url:
            line = hive.stderr.readline()
            assert line, "the service has ended"
            url = re.search(r"https?://[\w.:]+|$", line)[0]
        whoami = {
            token: httpx.get(
                f"{url}/v1/whoami", headers={"authorization": f"Bearer {token}"}, trust_env=False
            ).json()["name"]
            for token in (renewed.out.strip(), "the operator's token")
        }
        saved = arkml(*[str(tmp_path / "hive.tar") if one == "hive.tar" else one
                        for one in here(backup)[1:]])  # fmt: skip
    finally:
        hive.send_signal(signal.SIGTERM)
        hive.communicate()
    restored = arkml(*[str(tmp_path / "hive.tar") if one == "hive.tar" else one
                       for one in here(restore)[1:]])  # fmt: skip
    revoked = arkml(*here(revoke)[1:])
    left = arkml(*here(listed)[1:], "--json")

    assert program == "/opt/arkml/bin/arkml"
    assert [one.status for one in (made, told, renewed, saved, restored, revoked)] == [0] * 6
    assert list(whoami.values()) == ["alice", "operator"]
    assert (Path(home) / "hive").stat().st_mode & 0o777 == 0o700
    assert "alice" in restored.err
    assert json.loads(left.out)["tokens"] == []
