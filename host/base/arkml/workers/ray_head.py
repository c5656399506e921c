"""The program that runs a private Ray cluster: `python -m arkml.workers.ray_head`."""

from __future__ import annotations

import contextlib
import ctypes
import os
import shutil
import signal
import sys
import tempfile
import threading
from pathlib import Path
from typing import Any

from arkml.workers.program import Program, run_program

OBJECT_STORE_BYTES = 128 << 20
SMALL_OBJECT_STORE_BYTES = 76 << 20
"""Size of the object store if /dev/shm has little room; Ray needs at least 75 MiB."""

_SHARED_MEMORY = "/dev/shm"
_SUBREAPER = 36  # PR_SET_CHILD_SUBREAPER
_LONGEST_PATH = 38  # Ray adds 65 characters for its sockets, which may have 107

_ENVIRONMENT = {
    "RAY_USAGE_STATS_ENABLED": "0",
    "RAY_AUTH_MODE": "token",
    # Named after the systems where it is the default; nodes of 127.0.0.1 listen nowhere else.
    "RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER": "0",
    "RAY_prestart_worker_first_driver": "0",
    "RAY_OBJECT_STORE_ALLOW_SLOW_STORAGE": "1",
}


class RayHead:
    """
    The processes of a Ray cluster and their directory, which end with this process.

    `private` is a directory of this user alone, with Ray's directory in it.
    """

    def __init__(self) -> None:
        parent = tempfile.gettempdir()
        self.private = Path(
            tempfile.mkdtemp(
                prefix="arkml-ray-", dir=parent if len(parent) <= _LONGEST_PATH else "/tmp"
            )
        )
        # Ray opens its own directory to all users; nobody else gets through the one above.
        self.directory = self.private / "r"
        self.directory.mkdir(0o700)
        self._ending = threading.Lock()
        _adopt_orphans()

    def start(self, token: str) -> str:
        """Start a node and return the cluster's address. Raises Ray's errors."""
        os.environ.update(_ENVIRONMENT, RAY_AUTH_TOKEN=token)
        os.environ.pop("RAY_ADDRESS", None)
        from ray._private.node import Node
        from ray._private.parameter import RayParams

        class HeadNode(Node):  # type: ignore[misc]
            def start_api_server(self, **_: Any) -> None:
                """Skip the dashboard's server, which takes seconds to start."""

        # Like ray.init, without the dashboard, the autoscaler and the log monitor.
        node = HeadNode(
            RayParams(
                node_ip_address="127.0.0.1",
                num_cpus=max(2, os.cpu_count() or 1),
                num_gpus=0,
                include_dashboard=False,
                include_log_monitor=False,
                no_monitor=True,
                temp_dir=str(self.directory),
                **_object_store(str(self.directory)),
            ),
            head=True,
            shutdown_at_exit=False,
            ray_init_cluster=True,
        )
        return str(node.gcs_address)

    def end(self) -> None:
        """Kill all processes of the cluster, remove its directory, and end this process."""
        with self._ending:
            for _ in range(1_000):
                if not _kill_children():
                    break
            shutil.rmtree(self.private, ignore_errors=True)
            os._exit(0)


def _object_store(directory: str) -> dict[str, Any]:
    """Return the size of the object store, and its directory if /dev/shm has no room for it."""
    try:
        free = shutil.disk_usage(_SHARED_MEMORY).free
    except OSError:
        free = 0
    if free > 2 * OBJECT_STORE_BYTES:
        return {"object_store_memory": OBJECT_STORE_BYTES}
    return {"object_store_memory": SMALL_OBJECT_STORE_BYTES, "plasma_directory": directory}


def _adopt_orphans() -> None:
    """Become the parent of orphaned processes below this one, on Linux."""
    with contextlib.suppress(OSError, AttributeError):
        ctypes.CDLL(None).prctl(_SUBREAPER, 1, 0, 0, 0)


def _kill_children() -> bool:
    """Kill and reap the children of this process. Returns False if there are none."""
    for children in Path("/proc/self/task").glob("*/children"):
        for child in children.read_text().split():
            with contextlib.suppress(ProcessLookupError):
                os.kill(int(child), signal.SIGKILL)
    try:
        os.waitpid(-1, 0)
    except ChildProcessError:
        return False
    return True


def _main(program: Program) -> int:
    try:
        address = head.start(program.job["token"])
    except Exception as error:  # noqa: BLE001  Ray raises many kinds
        text = " ".join(str(error).split())
        program.report({"event": "ended", "reason": f"Ray does not start: {text}"})
        return 1
    program.report({"event": "ready", "address": address})
    program.is_stopping.wait()
    threading.Event().wait()  # `end` ends the process
    return 0


if __name__ == "__main__":
    head = RayHead()
    status = run_program(_main, head.end)
    shutil.rmtree(head.private, ignore_errors=True)
    sys.exit(status)
