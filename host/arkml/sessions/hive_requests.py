"""Requests to a hive on behalf of a guest, whose results become futures."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from concurrent.futures import CancelledError
from dataclasses import replace
from typing import Any, TypeVar

from arkml.errors import AbiError, Unavailable
from arkml.loggers import SafeLogger
from arkml.sessions import results
from arkml.sessions.futures import ResultType
from arkml.sessions.gateway import RunGateway
from arkml.sessions.run import GuestRun, Pending, mapped
from arkml.sessions.run_request import HiveAddress, TrainingRequest
from arkml.sessions.session import TrainingSession
from arkml.sessions.state import Family

T = TypeVar("T")

logger = SafeLogger(__name__)


class HiveRequests(Family):
    """The requests common to all versions of the ML API."""

    __slots__ = ()

    def _hives(self, purpose: str) -> RunGateway:
        hives = self._guest.hives
        if hives is None:
            raise Unavailable(f"guest {self._guest.name} wants to {purpose}: no hive is configured")
        return hives

    def _start_training(self, request: TrainingRequest) -> int:
        hives = self._hives(f"start experiment {request.experiment!r} on {request.hive}")
        self._guest.sessions.require_room()
        if request.workers:
            guest = self._guest
            request = replace(request, worker_module=guest.worker_module, input=guest.input)
        return self._bring(results.TRAINING, lambda: hives.start(request))

    def _own(self, context: int, purpose: str) -> GuestRun:
        run = self._guest.sessions.get(context, TrainingSession).run
        if run is None:
            raise Unavailable(
                f"guest {self._guest.name} wants to {purpose}: the session has no run"
            )
        return run

    def _other(self, hive_url: str, hive_port: int, run_id: str, purpose: str) -> GuestRun:
        address = HiveAddress(hive_url, hive_port)
        return self._hives(f"{purpose} of {run_id!r} on {address}").find(address, run_id)

    def _bring(self, result: ResultType[T], ask: Callable[[], Pending[T]]) -> int:
        """Send a request and return the handle of the future of its result."""
        guest = self._guest
        handle, future = guest.futures.open(result)
        try:
            pending = ask()
        except BaseException as error:
            self._guest.futures.drop(handle)
            if isinstance(error, AbiError):
                self._guest.log.say(logging.WARNING, str(error))
            raise

        def settle(done: Pending[T]) -> None:
            try:
                value = done.result()
            except CancelledError:
                future.fail(Unavailable(f"the host was closed before the {result.name} arrived"))
            except AbiError as error:
                guest.log.say(logging.WARNING, str(error))
                future.fail(error)
            except Exception as error:
                if guest.log.admits():
                    logger.exception(
                        "%s: a bug of the host: a request failed (%s)", guest.name, result.name
                    )
                future.fail(error)
            else:
                future.resolve(value)

        pending.add_done_callback(settle)
        return handle

    def _configurations(self, run: GuestRun) -> Mapping[str, Any]:
        shape = self._bring(results.SHAPE, lambda: run.shape)
        try:
            return {"ark_config": shape, "module_config": self._text(run, results.BYTES)}
        except BaseException:
            self._guest.futures.drop(shape)
            raise

    def _text(self, run: GuestRun, result: ResultType[Any]) -> int:
        if result is results.BYTES:
            return self._bring(results.BYTES, lambda: mapped(run.configuration(), str.encode))
        return self._bring(results.TEXT, run.configuration)
