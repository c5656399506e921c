"""Fixtures with names that other plugins may also use."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from arkml.testing.threaded import ThreadedHost


@pytest.fixture(scope="session")
def host(arkml_host: ThreadedHost) -> ThreadedHost:
    """Return `arkml_host`, unless another plugin has a `host`."""
    return arkml_host
