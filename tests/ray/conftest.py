"""What is here needs an environment of its own: see `make test-ray`."""

from importlib.util import find_spec

import pytest

collect_ignore_glob = [] if find_spec("ray") else ["test_*.py"]


@pytest.fixture(scope="module")
def own_cluster():
    """The cluster of this process, which the runners of all tests share: it starts for seconds."""
    from arkml.workers.ray_cluster import RayCluster

    cluster = RayCluster.open()
    yield cluster
    cluster.close()
