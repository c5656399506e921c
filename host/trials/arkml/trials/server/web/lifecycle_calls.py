"""
The methods of the service TrialLifecycleSP, which starts, ends and watches trials, for browsers.
"""

from __future__ import annotations

import contextlib
from collections.abc import AsyncGenerator, Mapping
from typing import Any

from google.protobuf.message import Message

from arkml.trials.server.web.access import Access
from arkml.trials.server.web.calls import WebCall, WebMethod, running
from arkml.trials.server.web.entry_queue import EntryQueue, EntryRoom
from arkml.trials.server.web.web_options import WebLimits
from arkml.trials.service import TrialService, version_info
from arkml.trials.wire.common_pb2 import TrialState, VersionRequest
from arkml.trials.wire.lifecycle_pb2 import (
    TerminateTrialReply,
    TerminateTrialRequest,
    TrialInfoRequest,
    TrialListRequest,
    TrialStartRequest,
)


class LifecycleMethods:
    """The methods of TrialLifecycleSP, each within the rights of the calling client."""

    def __init__(self, trials: TrialService, limits: WebLimits, access: Access) -> None:
        self._trials = trials
        self._limits = limits
        self._access = access
        self._room = EntryRoom()

    @property
    def by_name(self) -> Mapping[str, WebMethod]:
        """The methods of TrialLifecycleSP by name."""
        return {
            "StartTrial": WebMethod(TrialStartRequest, self._start),
            "TerminateTrial": WebMethod(TerminateTrialRequest, self._terminate),
            "GetTrialInfo": WebMethod(TrialInfoRequest, self._info),
            "Version": WebMethod(VersionRequest, self._version),
            "WatchTrials": WebMethod(
                TrialListRequest, self._watch, lambda grant, _: grant.watched(())
            ),
        }

    async def _start(self, call: WebCall) -> Message:
        call.grant.require_all(call.method)
        if call.request.WhichOneof("start_data") == "params":
            self._access.check_params(call.request.params)
        return await self._trials.start(call.request)

    async def _terminate(self, call: WebCall) -> Message:
        call.grant.require_all(call.method)
        await self._trials.terminate(call.trial_ids, is_hard=call.request.hard_termination)
        return TerminateTrialReply()

    async def _info(self, call: WebCall) -> Message:
        return await self._trials.info(call.grant.watched(call.trial_ids), call.request)

    async def _version(self, _: WebCall) -> Message:
        return version_info(await self._trials.versions())

    async def _watch(self, call: WebCall) -> AsyncGenerator[Message, None]:
        """Yield states; a token for one trial sees only it, and only until it ends."""
        queue = EntryQueue(self._limits.queued_entries, self._limits.queued_bytes, self._room)
        try:
            async with running(self._feed(call, queue)) as (feeding,):
                while (entry := await queue.next()) is not None:
                    yield entry
                await feeding
        finally:
            queue.drop()

    async def _feed(self, call: WebCall, queue: EntryQueue) -> None:
        entries: Any = self._trials.watch(call.request)
        own = call.grant.trial_id
        try:
            async with contextlib.aclosing(entries):
                async for entry in entries:
                    if call.grant.covers(entry.trial_id):
                        queue.put(entry)
                        await queue.room()
                        if own and entry.state == TrialState.ENDED:
                            return
        finally:
            queue.end()
