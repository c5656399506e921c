"""The program that probes a Ray cluster before joining: `python -m arkml.workers.ray_probe`."""

from __future__ import annotations

import re
import sys

from arkml.workers.program import Program, run_program


def _main(program: Program) -> int:
    """
    Report the free processors of the cluster at the job's address, or the reason against it.

    Ray waits long for an address that does not answer, and for some addresses it exits the process:
    therefore the probe has a process of its own.
    """
    import ray

    address = program.job["address"]
    try:
        ray.init(address=address, configure_logging=False, log_to_driver=False)
    except Exception as error:  # noqa: BLE001  Ray raises many kinds
        program.report({"event": "ended", "reason": refusal(str(error), address)})
        return 1
    free = ray.available_resources().get("CPU", 0.0)
    total = ray.cluster_resources().get("CPU", 0.0)
    program.report({"event": "ready", "free": free, "total": total})
    return 0


def refusal(text: str, address: str) -> str:
    """Return a sentence for an error of Ray, which may have many lines."""
    versions = re.findall(r"Ray: (\S+)\s+Python: (\S+)", text)
    if text.startswith("Version mismatch") and len(versions) == 2:
        (ray, python), (our_ray, our_python) = versions
        return (
            f"the Ray cluster at {address} runs Ray {ray} and Python {python}, and this process"
            f" Ray {our_ray} and Python {our_python}: use the same versions"
        )
    words = " ".join(text.split())
    return f"the Ray cluster at {address} cannot be joined: {words[:400]}"


if __name__ == "__main__":
    sys.exit(run_program(_main))
