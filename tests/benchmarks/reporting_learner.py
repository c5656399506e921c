"""
A learner that learns nothing: `RUN_DIR` or `--spare`.

It reports 40 curves once a second and 10 histograms every 5 seconds, which a learner does in 60.
"""

import math
import os
import select
import socket
import sys
import time

from arkml.hive.protocol.wire import Unpacker, pack

CURVES, HISTOGRAMS = 40, 10


def main():
    link = socket.socket(fileno=3)
    unpacker = Unpacker()
    begun, due, histograms_due = time.monotonic(), 0.0, 0.0
    cursor, is_open = [0, 0], sys.argv[-1] != "--spare"

    def send(kind, **fields):
        link.sendall(pack(kind, **fields))

    def hello():
        send("hello", pid=os.getpid(), device="cpu", n_opts=0, cursor=[0, 0], restored_from=None)

    if is_open:
        hello()
    while True:
        ready, _, _ = select.select([link], [], [], 0.1)
        if ready:
            data = link.recv(1 << 16)
            if not data:
                return
            for message in unpacker.feed(data):
                match message["kind"]:
                    case "adopt":
                        is_open = True
                        hello()
                    case "rows":
                        cursor = [message["segment"], message["offset"]]
                    case "stop":
                        return
        now = time.monotonic()
        if is_open and now >= due:
            due = now + 1.0
            step = int((now - begun) * 1_000)
            points = [(f"curve/{n}", step, math.sin(step / 1e4 + n)) for n in range(CURVES)]
            send("metrics", points=points)
            if now >= histograms_due:
                histograms_due = now + 5.0
                bins = [-4, -16, [32] * 32]
                names = [f"feature/{n}" for n in range(HISTOGRAMS)]
                send("histograms", rows=step, histograms=[(n, bins, -1.0, 1.0, 0.0) for n in names])
            send("progress", n_opts=0, cursor=cursor, admits=1 << 50, hold=False, turn_seconds=0.0)


main()
