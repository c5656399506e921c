"""Handlers that poll, take and drop futures, in all versions of the ML API."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from arkml.abi.guest_buffers import OutBuffer
from arkml.abi.ml_v1 import METRIC_V1
from arkml.abi.ml_v3 import METRIC_V3
from arkml.errors import AbiError
from arkml.sessions import results
from arkml.sessions.futures import Readiness, ResultType
from arkml.sessions.session import TrainingSession
from arkml.sessions.state import Family

Poll = Mapping[str, Any]


class _Polls(Family):
    """Polling, common to the futures of every version."""

    __slots__ = ()

    def _poll(self, handle: int, result: ResultType[Any]) -> Readiness:
        readiness = self._guest.futures.poll(handle, result)
        if not readiness.ready:
            self._guest.pending_polls += 1
        return readiness

    def _poll_simple(self, handle: int, result: ResultType[Any]) -> Poll:
        return {"ready": self._poll(handle, result).ready}

    def _poll_vec(self, handle: int, result: ResultType[Any]) -> Poll:
        readiness = self._poll(handle, result)
        return {"ready": readiness.ready, "len": readiness.length}


class FuturesV1(_Polls):
    """Handlers that poll, take and drop the futures of `ark-ml-v1`."""

    __slots__ = ()

    def poll_future_bool(self, handle: int) -> Poll:
        return self._poll_simple(handle, results.BOOL)

    def take_future_bool(self, handle: int, data: OutBuffer) -> None:
        data.write(bytes([self._guest.futures.take(handle, results.BOOL)]))

    def poll_future_vec_u8(self, handle: int) -> Poll:
        return self._poll_vec(handle, results.BYTES)

    def take_future_vec_u8(self, handle: int, data: OutBuffer) -> None:
        data.write(self._guest.futures.take(handle, results.BYTES))

    def poll_future_vec_metric(self, handle: int) -> Poll:
        return self._poll_vec(handle, results.METRICS_V1)

    def take_future_vec_metric(self, handle: int, data: OutBuffer) -> None:
        metrics = self._guest.futures.take(handle, results.METRICS_V1)
        data.write(results.metric_bytes(METRIC_V1, metrics))

    def poll_future_training_handle(self, handle: int) -> Poll:
        return self._poll_simple(handle, results.TRAINING)

    def take_future_training_handle(self, handle: int, data: OutBuffer) -> None:
        sessions = self._guest.sessions
        session = sessions.open_training(self._guest.futures.take(handle, results.TRAINING))
        try:
            data.write(session.to_bytes(8, "little"))
        except AbiError:
            sessions.close(session, TrainingSession)  # the guest never receives its handle
            raise

    def poll_future_vec_experiment_info(self, handle: int) -> Poll:
        return self._poll_vec(handle, results.EXPERIMENTS)

    def take_future_vec_experiment_info(self, handle: int, data: OutBuffer) -> None:
        experiments = self._guest.futures.take(handle, results.EXPERIMENTS)
        data.write(results.experiment_bytes(experiments))

    def drop_future(self, handle: int) -> None:
        self._guest.futures.drop(handle)


class FuturesV2(_Polls):
    """Handlers that poll, take and drop the futures that `ark-ml-v2` adds."""

    __slots__ = ()

    def poll_future_ark_experiment_config(self, handle: int) -> Poll:
        return self._poll_simple(handle, results.SHAPE)

    def take_future_ark_experiment_config(self, handle: int, data: OutBuffer) -> None:
        data.write(results.shape_bytes(self._guest.futures.take(handle, results.SHAPE)))


class FuturesV3(_Polls):
    """Handlers that poll, take and drop the futures that `ark-ml-v3` adds."""

    __slots__ = ()

    def poll_future_vec_metric(self, handle: int) -> Poll:
        return self._poll_vec(handle, results.METRICS_V3)

    def take_future_vec_metric(self, handle: int, data: OutBuffer) -> None:
        metrics = self._guest.futures.take(handle, results.METRICS_V3)
        data.write(results.metric_bytes(METRIC_V3, metrics))


class FuturesV4(_Polls):
    """Handlers that poll, take and drop the futures that `ark-ml-v4` adds."""

    __slots__ = ()

    def poll_future_string(self, handle: int) -> Poll:
        return self._poll_simple(handle, results.TEXT)

    def take_future_string(self, handle: int) -> str:
        return self._guest.futures.take(handle, results.TEXT)
