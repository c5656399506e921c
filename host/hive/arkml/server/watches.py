"""The policy versions that people watch on a hive: bounded players, shared by their watchers."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial

from arkml.base.loggers import SafeLogger
from arkml.errors import HiveRefused, ProtocolError
from arkml.hive.protocol.replay_messages import ReplayReport
from arkml.hive.protocol.watch_messages import GuestReport, OtherVersion, PlayerJob, WatchEnd
from arkml.server.serve_options import WatchOptions
from arkml.server.watch_player import PlayerEnded, PlayerProcess, WatchedVersion

_log = SafeLogger(__name__)

_ENDS = "the hive ends"


@dataclass(frozen=True, slots=True)
class PlayedVersion:
    """
    A policy version of a run, with everything that a player needs to play it.

    Attributes:
        run_id: The id of the run.
        number: The number of the version.
        policy: Bytes of the policy's ONNX file.
        guest: The guest that plays.
        module: Bytes of the guest's module.
        is_kept: Returns whether the run still keeps the version.
        others: The versions of other runs that play the agents of these, by the names of the runs:
            a number, and the bytes of an ONNX file.

    """

    run_id: str
    number: int
    policy: bytes
    guest: GuestReport
    module: bytes
    is_kept: Callable[[], bool]
    others: Mapping[str, tuple[int, bytes]] = field(default_factory=dict)

    @property
    def files(self) -> tuple[bytes, ...]:
        """The bytes that a player gets after its job."""
        return self.module, self.policy, *(data for _, data in self.others.values())

    def job(self, seed: int = 0, *, records: bool = False) -> PlayerJob:
        """
        Return the job of a player that plays this version.

        With `records` it records one episode. `seed` is the seed of the guest, 0 for none.
        """
        return PlayerJob(
            guest=self.guest,
            version=self.number,
            seed=seed,
            module_bytes=len(self.module),
            policy_bytes=len(self.policy),
            records=records,
            others={
                name: OtherVersion(number, len(data))
                for name, (number, data) in self.others.items()
            },
        )


class Watches:
    """The players of a hive, at most `options.total`. Its methods belong to one event loop."""

    def __init__(self, options: WatchOptions) -> None:
        self.options = options
        self._watches: dict[tuple[str, int, int], WatchedVersion] = {}
        self._recordings: dict[tuple[str, int], asyncio.Task[ReplayReport]] = {}

    @property
    def players(self) -> int:
        """The number of players at this moment."""
        recording = sum(not task.done() for task in self._recordings.values())
        return len(self._watches) + recording

    def require_allowed(self) -> None:
        """Raise HiveRefused if this hive starts no players at all."""
        if not self.options.total:
            raise HiveRefused(OFF, 503)

    def running(self, run_id: str, number: int, seed: int) -> WatchedVersion | None:
        """
        Return the watched version that plays from this seed, None if no player plays it.

        Args:
            run_id: The id of the run.
            number: The number of the version.
            seed: The seed of the guest.

        """
        watch = self._watches.get((run_id, number, seed))
        if watch is not None:
            watch.expect()
        return watch

    async def watch(self, version: PlayedVersion, seed: int) -> WatchedVersion:
        """
        Return the watched version for a seed of the guest; start a player if there is none.

        Raises HiveRefused.
        """
        if self.running(version.run_id, version.number, seed) is None:
            await self._make_room()
        if (watch := self.running(version.run_id, version.number, seed)) is not None:
            return watch
        key = version.run_id, version.number, seed
        text = "version %d of run %s is watched, from seed %d"
        _log.info(text, version.number, version.run_id, seed)
        watch = self._watches[key] = WatchedVersion(
            self.options,
            version.job(seed),
            version.files,
            is_kept=version.is_kept,
            ended=partial(self._forget, key),
        )
        watch.expect()
        return watch

    async def record(self, version: PlayedVersion, seconds: float) -> ReplayReport | None:
        """
        Record an episode of a version; return None if that takes longer than `seconds`.

        The next call for the same version then waits for the same recording. Raises HiveRefused if
        there is no free player, or the player fails.
        """
        key = version.run_id, version.number
        if key not in self._recordings:
            await self._make_room()
            self._forget_recordings()
        task = self._recordings.get(key)
        if task is None:
            task = self._recordings[key] = asyncio.create_task(self._record(version))
        done, _ = await asyncio.wait([task], timeout=seconds)
        if not done:
            return None
        self._recordings.pop(key, None)
        return task.result()

    async def end_run(self, run_id: str) -> None:
        """End all players of a run, which is removed."""
        watches = [one for key, one in self._watches.items() if key[0] == run_id]
        tasks = [task for key, task in self._recordings.items() if key[0] == run_id]
        await self._end(watches, tasks, f"run {run_id} was removed")
        self._recordings = {k: task for k, task in self._recordings.items() if k[0] != run_id}

    async def close(self) -> None:
        """End all players."""
        await self._end(list(self._watches.values()), list(self._recordings.values()), _ENDS)

    async def _end(
        self, watches: list[WatchedVersion], tasks: list[asyncio.Task[ReplayReport]], reason: str
    ) -> None:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await asyncio.gather(*(watch.end(reason) for watch in watches))

    async def _make_room(self) -> None:
        """End players that linger where there would be too many. Raises HiveRefused."""
        total = self.options.total
        while self.players >= total:
            left = next((one for one in self._watches.values() if one.is_left), None)
            if left is None:
                raise HiveRefused(
                    f"{total} versions are watched or recorded on this hive, as many as it plays at"
                    " one time (--watches): stop watching one, or try again later",
                    429,
                )
            await left.end("another version is watched")

    def _forget_recordings(self) -> None:
        """Forget the oldest recordings that nobody has asked for since they ended."""
        ended = [key for key, task in self._recordings.items() if task.done()]
        for key in ended[: max(0, len(ended) - self.options.total)]:
            task = self._recordings.pop(key)
            if not task.cancelled():
                task.exception()  # asyncio logs one that nobody has looked at

    def _forget(self, key: tuple[str, int, int], watch: WatchedVersion) -> None:
        if self._watches.get(key) is watch:
            del self._watches[key]
            _log.info("version %d of run %s is not watched any more", key[1], key[0])

    async def _record(self, version: PlayedVersion) -> ReplayReport:
        """Play one episode; return its replay. Raises HiveRefused."""
        seconds = self.options.record
        try:
            job = version.job(records=True)
            player = await PlayerProcess.start(self.options, job, version.files)
            try:
                async with asyncio.timeout(seconds):
                    while True:
                        kind, content = await player.read()
                        if kind == b"recorded":
                            return ReplayReport.from_bytes(content)
                        if kind == b"ended":
                            raise PlayerEnded(WatchEnd.from_bytes(content).reason)
            finally:
                await asyncio.shield(player.end())
        except TimeoutError:
            raise HiveRefused(f"no episode ended within {seconds:g} s", 503) from None
        except (PlayerEnded, ProtocolError) as error:
            raise HiveRefused(f"version {version.number} is not recorded: {error}", 503) from error


OFF = "this hive plays no versions: arkml hive serve --watches N, with N above 0, allows it"
"""Why nothing is watched on a hive without players."""
