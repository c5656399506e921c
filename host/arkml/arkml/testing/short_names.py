"""Fixtures with names that other plugins may have too."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from arkml.testing.threaded import ThreadedHost


@pytest.fixture(scope="session")
def host(arkml_host: ThreadedHost) -> ThreadedHost:
    """Return `arkml_host`, where no other plugin has a `host`."""
    return arkml_host
