"""Requests to a hive on behalf of a guest, whose results become futures."""

from __future__ import annotations

import logging
import sys
from collections.abc import Callable, Mapping
from concurrent.futures import CancelledError
from dataclasses import replace
from functools import partial
from typing import Any, TypeVar

from arkml.base.handler_errors import is_of_handler, when_done
from arkml.base.loggers import SafeLogger
from arkml.errors import AbiError, GuestMemoryFull, Unavailable
from arkml.sessions import results
from arkml.sessions.futures import ResultType
from arkml.sessions.gateway import RunGateway
from arkml.sessions.guest_run import GuestRun, Pending
from arkml.sessions.pending_requests import REQUEST_BYTES
from arkml.sessions.run_request import HiveAddress, TrainingRequest, require_name
from arkml.sessions.session import TrainingSession
from arkml.sessions.state import Family

S = TypeVar("S")
T = TypeVar("T")

logger = SafeLogger(__name__)


def _same(value: Any) -> Any:
    return value


class HiveRequests(Family):
    """Handlers of requests to a hive that all versions of the ML API have in common."""

    __slots__ = ()

    def _hives(self, purpose: str) -> RunGateway:
        hives = self._guest.hives
        if hives is None:
            raise Unavailable(f"guest {self._guest.name} wants to {purpose}: no hive is configured")
        return hives

    def _start_training(self, request: TrainingRequest) -> int:
        self._guest.declare(request)
        hives = self._hives(f"start experiment {request.experiment!r} on {request.hive}")
        self._guest.sessions.require_room()
        if request.workers:
            guest = self._guest
            request = replace(request, worker_module=guest.worker_module, input=guest.input)
        return self._bring(results.TRAINING, lambda: hives.start(request), size=request.size)

    def _own(self, context: int, purpose: str) -> GuestRun:
        run = self._guest.sessions.get(context, TrainingSession).run
        if run is None:
            raise Unavailable(
                f"guest {self._guest.name} wants to {purpose}: the session has no run"
            )
        return run

    def _other(self, hive_url: str, hive_port: int, run_id: str, purpose: str) -> GuestRun:
        address = HiveAddress(hive_url, hive_port)
        require_name("the id of a run", run_id)
        return self._hives(f"{purpose} of {run_id!r} on {address}").find(address, run_id)

    def _bring(
        self,
        result: ResultType[T],
        ask: Callable[[], Pending[S]],
        *held: str,
        size: int = 0,
        change: Callable[[S], T] = _same,
    ) -> int:
        """
        Send a request and return the handle of a future of its result, which `change` converts.

        The request holds the texts `held`, such as the id of a run, and `size` more bytes until it
        is done. It is withdrawn if the guest drops the future before it begins, unless it has an
        effect. Raises TooManyRequests, GuestMemoryFull, TooManyFutures, TooManyHandles and the
        errors of `ask`.
        """
        guest, requests = self._guest, self._guest.requests
        size += REQUEST_BYTES + sum(map(sys.getsizeof, held))
        guest.account.require_bytes(size)
        requests.begin(size)
        try:
            handle, future = guest.futures.open(result)
        except BaseException:
            requests.end(size)
            raise
        try:
            pending = ask()
        except BaseException as error:
            requests.end(size)
            guest.futures.drop(handle)
            if isinstance(error, AbiError):
                guest.log.say(logging.WARNING, str(error))
            raise

        def settle(done: Pending[S]) -> None:
            requests.end(size)
            try:
                value = change(done.result())
                kept = result.size(value)
            except CancelledError:
                future.fail(Unavailable(f"the host was closed before the {result.name} arrived"))
            except AbiError as error:
                guest.log.say(logging.WARNING, str(error))
                future.fail(error)
            except Exception as error:
                if is_of_handler(error):
                    raise
                if guest.log.admits():
                    logger.exception(
                        "%s: a bug of the host: a request failed (%s)", guest.name, result.name
                    )
                future.fail(error)
            else:
                if requests.keep(kept):
                    future.resolve(value, partial(requests.release, kept))
                    return
                if result.discard is not None:
                    result.discard(value)
                future.fail(
                    GuestMemoryFull(f"a {result.name} of {kept} bytes is over Limits.guest_bytes")
                )

        if not result.has_effect:
            future.withdraw_by(pending.cancel)
        when_done(pending, settle)
        return handle

    def _configurations(self, run: GuestRun, *held: str) -> Mapping[str, Any]:
        shape = self._bring(results.SHAPE, lambda: run.shape, *held)
        try:
            return {"ark_config": shape, "module_config": self._text(run, results.BYTES, *held)}
        except BaseException:
            self._guest.futures.drop(shape)
            raise

    def _text(self, run: GuestRun, result: ResultType[Any], *held: str) -> int:
        change = str.encode if result is results.BYTES else _same
        return self._bring(result, run.configuration, *held, change=change)
