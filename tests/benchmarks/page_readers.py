"""Pages that are open: streams of events of a hive, read by a process of its own."""

import asyncio
import sys


async def read(host, port, token, path, counts):
    reader, writer = await asyncio.open_connection(host, port)
    lines = (f"GET {path} HTTP/1.1", f"host: {host}:{port}", f"authorization: Bearer {token}")
    writer.write("\r\n".join((*lines, "", "")).encode())
    while data := await reader.read(1 << 16):
        counts["bytes"] += len(data)
        counts["metrics"] += data.count(b"event: metrics")


async def main():
    host, port, token, path, number = sys.argv[1:]
    counts = {"bytes": 0, "metrics": 0}
    tasks = [
        asyncio.create_task(read(host, int(port), token, path, counts)) for _ in range(int(number))
    ]
    await asyncio.sleep(0.5)
    print("open", flush=True)
    await asyncio.to_thread(sys.stdin.read)
    print(counts["bytes"], counts["metrics"], flush=True)
    for task in tasks:
        task.cancel()


asyncio.run(main())
