"""The published onnxruntime-web, in the folder that `make test-onnxruntime-web` made for it."""

import os
from pathlib import Path

import pytest


@pytest.fixture(scope="session")
def modules():
    """The folder whose node_modules has the packages."""
    found = os.environ.get("ARKML_ONNXRUNTIME_WEB")
    if found is None:
        pytest.fail("ARKML_ONNXRUNTIME_WEB names no folder: run `make test-onnxruntime-web`")
    return Path(found)
