"""The examples in the documents run as they stand; some of them do so in a notebook."""

import os
import re
from pathlib import Path

import nbformat
import pytest
from nbclient import NotebookClient
from tests import prefork
from tests.integration.command_line import ENVIRONMENT
from tests.integration.guest_text import GUESTS

ROOT = Path(__file__).parents[2]
IN_A_NOTEBOOK = [ROOT / "README.md", ROOT / "docs" / "training.md", ROOT / "docs" / "scale.md"]
PAGES = sorted((ROOT / "docs").glob("*.md"))


def examples(page):
    codes = re.findall(r"```python\n(.*?)```", page.read_text(), re.DOTALL)
    return [code for code in codes if "def test_" not in code]


EXAMPLES = [
    pytest.param(code, id=f"{page.name}-{number}")
    for page in PAGES
    if page not in IN_A_NOTEBOOK
    for number, code in enumerate(examples(page))
]


@pytest.mark.parametrize("code", EXAMPLES)
def test_an_example_runs(code):
    run = prefork.run("-c", code, env=ENVIRONMENT)

    assert run.returncode == 0, run.stderr
    assert "Traceback" not in run.stderr
    assert "Warning" not in run.stderr


@pytest.fixture
def run_cells(tmp_path, monkeypatch):
    """Run cells one after another in a kernel of Jupyter and return what each one printed."""
    for name in ("IPYTHONDIR", "JUPYTER_CONFIG_DIR", "JUPYTER_DATA_DIR", "JUPYTER_RUNTIME_DIR"):
        monkeypatch.setenv(name, str(tmp_path / name.lower()))

    def run(codes):
        notebook = nbformat.v4.new_notebook(cells=list(map(nbformat.v4.new_code_cell, codes)))
        client = NotebookClient(
            notebook,
            kernel_name="python3",
            resources={"metadata": {"path": str(ROOT)}},
            timeout=None,
            startup_timeout=600,
            iopub_timeout=600,
        )
        client.execute(env=os.environ | {"PYTHONWARNINGS": "error:::__main__"})
        return [
            "".join(output["text"] for output in cell.outputs if output["output_type"] == "stream")
            for cell in notebook.cells
        ]

    return run


def test_the_examples_of_the_first_pages_run_in_a_notebook(run_cells):
    codes = [code for page in IN_A_NOTEBOOK for code in examples(page)]
    printing = f"""
        with arkml.Host(wasi=arkml.WasiGrant(arguments=("command", "5"))) as host:
            host.load({str(GUESTS / "wasi_command.wasm")!r}).run_command()
    """
    printed = run_cells([*codes, "".join(line[8:] + "\n" for line in printing.splitlines())])

    assert len(codes) >= 5
    assert "4800 observations answered" in printed[0]
    assert "Warning" not in "".join(printed)
    assert "Traceback" not in "".join(printed)
    assert printed[-1] == "hello from a WASI command\nargument 5\ngoodbye\n"
