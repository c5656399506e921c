"""A process that plays a policy version for everyone who watches it; its lines become events."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import sys
from asyncio.subprocess import DEVNULL, PIPE, Process
from collections.abc import AsyncGenerator, Callable, Sequence
from typing import get_args

from arkml.hive.protocol.watch_messages import MOST_LINE, PlayerJob, WatchEnd, WatchLineKind
from arkml.server.serve_options import WatchOptions
from arkml.workers.process_environment import worker_environment

COMMENT_EVERY = 15.0
"""Seconds after which a stream without events has a comment, so that proxies keep it."""

_KINDS = {kind.encode() for kind in get_args(WatchLineKind)}
_LOOK_EVERY = 1.0  # seconds between two looks if the version is still kept


class PlayerEnded(Exception):
    """The end of a player's process, with the reason in one sentence."""


class PlayerProcess:
    """
    A process that plays one policy version; it is killed with all processes that it has started.

    Each of its lines is a kind, a space and JSON. The process runs a guest, so it is not trusted:
    lines are bounded and must be of a known kind, and browsers check the JSON.
    """

    def __init__(self, process: Process, options: WatchOptions) -> None:
        self._process = process
        self._options = options
        self._has_spoken = False

    @classmethod
    async def start(
        cls, options: WatchOptions, job: PlayerJob, files: Sequence[bytes]
    ) -> PlayerProcess:
        """
        Start a player's process, and send it a job and its files. Raises PlayerEnded.

        Args:
            options: The time limits and the program of a player.
            job: The job.
            files: Bytes of the guest's module, the policy, and those of other agents, as ONNX.

        """
        try:
            process = await asyncio.create_subprocess_exec(
                sys.executable, "-m", options.program,
                stdin=PIPE, stdout=PIPE, stderr=DEVNULL, limit=MOST_LINE,
                env=worker_environment(),
                start_new_session=True,  # uvloop has no process_group
            )  # fmt: skip
        except OSError as error:
            raise PlayerEnded(f"no player can be started: {error}") from error
        assert process.stdin is not None
        player = cls(process, options)
        try:
            for part in (job.as_bytes(), b"\n", *files):
                process.stdin.write(part)
            await process.stdin.drain()
        except OSError:  # its end says more
            pass
        except BaseException:
            await player.end()
            raise
        return player

    async def read(self) -> tuple[bytes, bytes]:
        """
        Wait for the next line, and return its kind and its JSON.

        Raises PlayerEnded, with the reason, when the process ends, hangs or sends an invalid line.
        """
        assert self._process.stdout is not None
        seconds = self._options.hang if self._has_spoken else self._options.start
        try:
            async with asyncio.timeout(seconds):
                line = await self._process.stdout.readline()
                status = None if line.endswith(b"\n") else await self._process.wait()
        except TimeoutError:
            raise PlayerEnded(
                f"the guest has not come to the end of a frame for {seconds:g} s, and was ended"
            ) from None
        except ValueError:
            raise PlayerEnded(f"the player said more than {MOST_LINE:,} bytes at once") from None
        if status is not None:
            raise PlayerEnded(_ending(status))
        kind, _, content = line.rstrip(b"\n").partition(b" ")
        if kind not in _KINDS or b"\r" in content:
            raise PlayerEnded("the player said what is no line of a player, and was ended")
        self._has_spoken = True
        return kind, content

    async def end(self) -> None:
        """Kill the process, and wait until it has ended. Safe to call twice."""
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)
        await self._process.communicate()  # reads what is left, so that its pipes are closed


class WatchedVersion:
    """
    A policy version that people watch: one player, and the event streams of its watchers.

    A slow stream misses frames, but no other event. The player ends by itself, or `linger` seconds
    after its last stream.

    Args:
        options: The time limits and the program of a player.
        job: The player's job.
        files: The files of the job.
        is_kept: Returns whether the run still keeps the version.
        ended: Called with this object once the player has ended.

    """

    def __init__(
        self,
        options: WatchOptions,
        job: PlayerJob,
        files: Sequence[bytes],
        *,
        is_kept: Callable[[], bool],
        ended: Callable[[WatchedVersion], None],
    ) -> None:
        self._options = options
        self._job = job
        self._files = files
        self._is_kept = is_kept
        self._ended = ended
        self._said: list[bytes] = []
        self._frame, self._frames = b"", 0
        self._has_lost = False
        self._is_over = False
        self._streams = 0
        self._was_watched = False
        self._changed = asyncio.Event()
        self._looked = 0.0
        self._leaving: asyncio.TimerHandle | None = None
        self._reason = "nobody watches any more"
        self._playing = asyncio.create_task(self._play())

    @property
    def is_left(self) -> bool:
        """True once there were streams, and all of them have ended."""
        return self._was_watched and not self._streams

    def expect(self) -> None:
        """Continue to play for `linger` seconds without a stream, because one is about to begin."""
        if self._leaving is not None:
            self._leaving.cancel()
        loop = asyncio.get_running_loop()
        self._leaving = loop.call_later(self._options.linger, self._end_unless_watched)

    async def stream(self) -> AsyncGenerator[bytes, None]:
        """Yield all events from the first one on; of frames, only the newest each time."""
        self._streams += 1
        self._was_watched = True
        said = frames = 0
        try:
            while True:
                changed = self._changed
                new, said = self._said[said:], len(self._said)
                if frames != self._frames:
                    new.append(self._frame)
                    frames = self._frames
                if new:
                    yield b"".join(new)
                    continue
                if self._is_over:
                    return
                try:
                    async with asyncio.timeout(COMMENT_EVERY):
                        await changed.wait()
                except TimeoutError:
                    yield b": nothing new\n\n"
        finally:
            self._streams -= 1
            self.expect()

    async def end(self, reason: str) -> None:
        """End the player, and all streams with a reason. Safe to call twice."""
        self._reason = reason
        self._playing.cancel()
        await asyncio.wait([self._playing])
        self._finish()  # a task that has not begun does not

    def _end_unless_watched(self) -> None:
        if not self._streams:
            self._playing.cancel()

    async def _play(self) -> None:
        try:
            player = await PlayerProcess.start(self._options, self._job, self._files)
            self._files = ()
            try:
                while await self._take(*await player.read()):
                    pass
            finally:
                await asyncio.shield(player.end())
        except PlayerEnded as error:
            self._reason = str(error)
        finally:
            self._finish()

    async def _take(self, kind: bytes, content: bytes) -> bool:
        """Pass a line on; return False for the last one."""
        event = b"event: %s\ndata: %s\n\n" % (kind, content)
        if kind == b"frame":
            self._frame = event
            self._frames += 1
        elif kind != b"beat":
            self._said.append(event)
        if kind == b"ended":
            self._is_over = True
        now = asyncio.get_running_loop().time()
        if not self._has_lost and now - self._looked >= _LOOK_EVERY:
            self._looked = now
            if not await asyncio.to_thread(self._is_kept):
                self._has_lost = True
                self._said.append(b"event: kept\ndata: false\n\n")
        self._notify()
        return not self._is_over

    def _finish(self) -> None:
        """Tell all streams why the player has ended, unless it has said so itself."""
        if not self._is_over:
            self._is_over = True
            end = WatchEnd(self._reason).as_bytes()
            self._said.append(b"event: ended\ndata: %s\n\n" % end)
        if self._leaving is not None:
            self._leaving.cancel()
        self._notify()
        self._ended(self)

    def _notify(self) -> None:
        self._changed.set()
        self._changed = asyncio.Event()


def _ending(status: int) -> str:
    """Return a sentence about a process that ended without saying why."""
    if status == -signal.SIGXCPU:
        return "the module of the guest takes too long to compile"
    if status in (-signal.SIGABRT, -signal.SIGKILL):
        return f"the player was ended by signal {-status}, as by a want of memory"
    if status < 0:
        return f"the player was ended by signal {-status}"
    return f"the player ended with status {status}"
