"""A Ray cluster that cannot be used is refused in a sentence, soon."""

import os
import socket
import subprocess
import sys

import pytest
from tests.waiting import eventually

from arkml.errors import Unavailable, UsageError
from arkml.workers.local import LocalPlacement
from arkml.workers.ray_cluster import RayCluster

pytestmark = pytest.mark.ray
TOKEN = "0123456789abcdef" * 2
AUTHENTICATION = {
    "RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN": TOKEN, "RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER": "0",
}  # fmt: skip


def test_an_address_where_nothing_listens_is_refused():
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]

    with pytest.raises(
        Unavailable, match=rf"there is no Ray cluster at 127\.0\.0\.1:{port}: .*ref"
    ):
        RayCluster.open(f"127.0.0.1:{port}")


def test_an_address_that_answers_nothing_is_refused():
    with socket.create_server(("127.0.0.1", 0)) as server:
        address = f"127.0.0.1:{server.getsockname()[1]}"
        with pytest.raises(Unavailable, match=f"the Ray cluster at {address}"):
            RayCluster.open(address)


@pytest.mark.parametrize("address", ["auto", "ray://host:1", "host", "host:port", "", "10.0.0.1:"])
def test_what_is_not_an_address_is_refused(address):
    with pytest.raises(UsageError, match="expected HOST:PORT"):
        RayCluster.open(address)


@pytest.fixture(scope="module")
def other_cluster():
    """The address of a cluster that another process has started."""
    with LocalPlacement() as placement:
        head = placement.start("arkml.workers.ray_head", {"token": TOKEN}, "another cluster")
        (event,) = eventually(head.events, 120.0)
        yield event["address"]


@pytest.fixture
def authenticated(monkeypatch):
    for name, value in AUTHENTICATION.items():
        monkeypatch.setenv(name, value)


@pytest.mark.usefixtures("authenticated")
def test_a_cluster_without_free_processors_is_refused(other_cluster):
    with pytest.raises(Unavailable, match=r"has \d+ of \d+ CPUs free, and 1000 are needed"):
        RayCluster.open(other_cluster, cpus=1000)


TAMPERED = """
import sys, json, ray
from ray._common.usage import usage_constants
from ray.experimental import internal_kv as kv
ray.init(sys.argv[1], log_to_driver=False)
key = usage_constants.CLUSTER_METADATA_KEY
data = json.loads(kv._internal_kv_get(key, namespace="cluster"))
data["ray_version" if sys.argv[2] == "Ray" else "python_version"] = "1.2.3"
kv._internal_kv_put(key, json.dumps(data).encode(), overwrite=True, namespace="cluster")
"""


@pytest.mark.usefixtures("authenticated")
@pytest.mark.parametrize("what", ["Ray", "Python"])
def test_a_cluster_of_another_version_is_refused_and_both_are_named(what):
    with LocalPlacement() as placement:
        head = placement.start("arkml.workers.ray_head", {"token": TOKEN}, "another cluster")
        (event,) = eventually(head.events, 120.0)
        subprocess.run(
            [sys.executable, "-c", TAMPERED, event["address"], what], check=True, timeout=120,
            env={**os.environ, "PYTHONWARNINGS": ""},
        )  # fmt: skip

        with pytest.raises(Unavailable, match=rf"runs .*{what} 1\.2\.3.*use the same versions"):
            RayCluster.open(event["address"])
