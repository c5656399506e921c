"""What fails beside others and passes alone is listed, and fails a run from the third time on."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
UNSTEADY = 'import os\ndef test_it(): assert "PYTEST_XDIST_WORKER" not in os.environ\n'
FAILS = "def test_it(): assert False\n"


@pytest.mark.parametrize(
    ("text", "times_before", "status", "times"),
    [
        pytest.param(UNSTEADY, 1, 0, 2, id="unsteady"),
        pytest.param(UNSTEADY, 2, 1, 3, id="unsteady for the third time"),
        pytest.param(FAILS, 0, 1, 0, id="fails alone too"),
    ],
)
def test_a_run_fails_by_what_fails_alone_or_is_unsteady_for_the_third_time(
    tmp_path, text, times_before, status, times
):
    (tmp_path / "test_one.py").write_text(text)
    file = tmp_path / "cache" / "arkml-tests" / "unsteady.json"
    file.parent.mkdir(parents=True)
    file.write_text(json.dumps([["test_one.py::test_it"]] * times_before))
    environment = {
        key: value for key, value in os.environ.items() if not key.startswith("PYTEST_")
    } | {"XDG_CACHE_HOME": f"{tmp_path}/cache", "PYTHONPATH": str(ROOT)}
    ended = subprocess.run(
        [sys.executable, "-m", "tests.unsteady", "-q", "-n", "1", "--rootdir", tmp_path],
        cwd=tmp_path, env=environment, capture_output=True, text=True, check=False,
    )  # fmt: skip

    assert ended.returncode == status, ended.stdout + ended.stderr
    assert ("unsteady: test_one.py::test_it" in ended.stdout) is (times > 0)
    assert sum(map(len, json.loads(file.read_text()))) == times
