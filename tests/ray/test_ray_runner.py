"""Actors on a Ray cluster behave as those in threads and processes."""

import pytest
from tests.integration.test_async_trainer_runners import *  # noqa: F403  the suite of all runners

pytestmark = [pytest.mark.ray, pytest.mark.usefixtures("own_cluster")]


@pytest.fixture
def runner_name():
    return "ray"
