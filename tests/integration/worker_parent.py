"""A process that starts a worker, prints the process ids and waits: to be killed."""

import sys
import time

from arkml.workers.local import LocalPlacement

placement = LocalPlacement()
worker = placement.start("tests.integration.worker_program", {"do": sys.argv[1]}, "worker 0")
events = []
while len(events) < 1 + (sys.argv[1] == "spawn"):
    events += worker.events()
    time.sleep(0.01)
print(*(event["pid"] for event in events), flush=True)
time.sleep(1000)
