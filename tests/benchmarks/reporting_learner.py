"""A learner that learns nothing and reports 40 curves once a second: `RUN_DIR` or `--spare`."""

import math
import os
import select
import socket
import sys
import time

from arkml.hive.protocol.messages import Unpacker, pack

CURVES = 40


def main():
    link = socket.socket(fileno=3)
    unpacker = Unpacker()
    begun, due, cursor, is_open = time.monotonic(), 0.0, [0, 0], sys.argv[-1] != "--spare"

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
            send("progress", n_opts=0, cursor=cursor, admits=1 << 50, hold=False, turn_seconds=0.0)


main()
