"""Connections that send a byte a second: `python -m tests.faults.slow_clients PORT COUNT`."""

import asyncio
import contextlib
import itertools
import sys

REQUEST = (
    b"POST /v1/runs HTTP/1.1\r\nhost: 127.0.0.1\r\nauthorization: Bearer wrong\r\n"
    b"content-type: application/json\r\ncontent-length: 100000\r\nx-filler: "
)


async def crawl(port, counts, number):
    """Open a connection, send a header slowly, and open another one once it is refused."""
    await asyncio.sleep(number % 100 / 100)  # bytes of different connections come apart
    while True:
        with contextlib.suppress(OSError):
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            counts["open"] += 1
            if counts["open"] == counts["wanted"]:
                print("all are open", flush=True)
            ended = asyncio.ensure_future(reader.read())
            try:
                for at in itertools.count():
                    writer.write(REQUEST[at : at + 1] or b"x")
                    await writer.drain()
                    done, _ = await asyncio.wait([ended], timeout=1.0)
                    if done:
                        break
            finally:
                ended.cancel()
                writer.close()


async def main(port, count):
    counts = {"open": 0, "wanted": int(count)}
    await asyncio.gather(*(crawl(int(port), counts, number) for number in range(int(count))))


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
