"""A wire between hosts and a hive, which can be cut, slow, silent, or torn in mid-body."""

import asyncio
import contextlib
import random
import threading

_CHUNK = 1 << 14
_AHEAD = 64  # chunks on their way in one direction


class Wire:
    """
    Passes TCP connections on to a port of this machine; `port` is its own.

    `delay`: seconds that bytes travel. `rate`: bytes a second of each direction of a connection,
    0 for any. `tears`: how likely each chunk of at most 16 KiB is only half passed on and its
    connection cut.
    """

    def __init__(self, upstream, *, delay=0.0, rate=0, tears=0.0):
        self.port = 0
        self.delay, self.rate, self.tears = delay, rate, tears
        self.torn = 0
        self._upstream = upstream
        self._random = random.Random(7)
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._run)
        self._pairs = set()

    def __enter__(self):
        self._thread.start()
        self._do(self._listen())
        self._do(self._pass_on())
        return self

    def __exit__(self, *_):
        self._do(self._cut())
        self._do(self._end())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()

    def cut(self):
        """End all connections and take no more."""
        self._do(self._cut())

    def mend(self):
        """Take connections again."""
        self._do(self._listen())

    def fall_silent(self):
        """Let no byte pass; connections stay, and more are taken."""
        self._loop.call_soon_threadsafe(self._passing.clear)

    def speak(self):
        """Let bytes pass again."""
        self._do(self._pass_on())

    def _run(self):
        asyncio.set_event_loop(self._loop)
        self._passing = asyncio.Event()
        self._loop.run_forever()
        self._loop.close()

    def _do(self, work):
        return asyncio.run_coroutine_threadsafe(work, self._loop).result(10)

    async def _pass_on(self):
        self._passing.set()

    async def _listen(self):
        self._server = await asyncio.start_server(self._connect, "127.0.0.1", self.port)
        self.port = self._server.sockets[0].getsockname()[1]

    async def _cut(self):
        self._server.close()
        for task in self._pairs:
            task.cancel()
        await asyncio.gather(*self._pairs, return_exceptions=True)

    async def _end(self):
        others = asyncio.all_tasks() - {asyncio.current_task()}
        for task in others:
            task.cancel()
        await asyncio.gather(*others, return_exceptions=True)

    async def _connect(self, reader, writer):
        task = asyncio.current_task()
        self._pairs.add(task)
        writers = [writer]
        try:
            there = await asyncio.open_connection("127.0.0.1", self._upstream)
            writers.append(there[1])
            both = [
                asyncio.ensure_future(self._carry(reader, there[1])),
                asyncio.ensure_future(self._carry(there[0], writer)),
            ]
            try:
                await asyncio.wait(both, return_when=asyncio.FIRST_COMPLETED)
            finally:
                for direction in both:
                    direction.cancel()
                await asyncio.gather(*both, return_exceptions=True)
        except (OSError, asyncio.CancelledError):
            return  # cancelled is cut, and a hive that is not there refuses
        finally:
            self._pairs.discard(task)
            for end in writers:
                end.transport.abort()

    async def _carry(self, reader, writer):
        """Pass one direction on until it ends or is torn."""
        way = asyncio.Queue(_AHEAD)
        arriving = asyncio.ensure_future(self._arrive(way, writer))
        try:
            while data := await reader.read(_CHUNK):
                if self.tears and self._random.random() < self.tears:
                    self.torn += 1
                    await way.put((self._loop.time() + self.delay, data[: len(data) // 2]))
                    break
                await way.put((self._loop.time() + self.delay, data))
            await way.put(None)
            await arriving
        except OSError:
            return
        finally:
            arriving.cancel()
            with contextlib.suppress(asyncio.CancelledError, OSError):
                await arriving

    async def _arrive(self, way, writer):
        while (item := await way.get()) is not None:
            due, data = item
            await asyncio.sleep(max(0.0, due - self._loop.time()))
            await self._passing.wait()
            if self.rate:
                await asyncio.sleep(len(data) / self.rate)
            writer.write(data)
            await writer.drain()
