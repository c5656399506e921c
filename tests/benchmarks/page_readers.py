"""Pages that are open in a process of its own: each reads a stream and asks for histograms."""

import asyncio
import sys

HISTOGRAM_EVERY = 30.0
"""Seconds, as on the page, which shows the histogram of one feature and of one action."""


async def read(place, path, counts, *lines):
    host, port, token = place
    reader, writer = await asyncio.open_connection(host, port)
    lines = (
        f"GET {path} HTTP/1.1", f"host: {host}:{port}", f"authorization: Bearer {token}", *lines,
    )  # fmt: skip
    writer.write("\r\n".join((*lines, "", "")).encode())
    while data := await reader.read(1 << 16):
        counts["bytes"] += len(data)
        counts["metrics"] += data.count(b"event: metrics")
        counts["histograms"] += data.count(b"HTTP/1.1 200") if lines[-1].endswith("close") else 0
    writer.close()


async def look(place, run, counts, first):
    await asyncio.sleep(first)
    while True:
        for name in ("feature/0", "feature/1"):
            path = f"/v1/runs/{run}/histograms?name={name}"
            await read(place, path, counts, "connection: close")
        await asyncio.sleep(HISTOGRAM_EVERY)


async def main():
    host, port, token, run, number = sys.argv[1:]
    place, pages = (host, port, token), int(number)
    counts = {"bytes": 0, "metrics": 0, "histograms": 0}
    tasks = []
    for page in range(pages):
        first = HISTOGRAM_EVERY * page / pages
        tasks.append(asyncio.create_task(read(place, f"/v1/events?runs={run}", counts)))
        tasks.append(asyncio.create_task(look(place, run, counts, first)))
    await asyncio.sleep(0.5)
    print("open", flush=True)
    await asyncio.to_thread(sys.stdin.read)
    print(counts["metrics"], counts["histograms"], flush=True)
    for task in tasks:
        task.cancel()


asyncio.run(main())
