"""Handlers of the import module `ark-ml-inference-v0`."""

from __future__ import annotations

import logging
import math
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

from arkml.abi.codes import SnapshotFormat
from arkml.base.handler_errors import is_of_handler
from arkml.batches import Floats
from arkml.errors import AbiError, InvalidArguments, NotFound, Unavailable
from arkml.policies.demands import BrainDemand
from arkml.policies.network import Network
from arkml.policies.ports import Port
from arkml.sessions import brains, runtimes
from arkml.sessions.brains import Brain
from arkml.sessions.futures import Future
from arkml.sessions.leases import Lease
from arkml.sessions.runtimes import Load, Runtime
from arkml.sessions.snapshots import Packing, log_refusals, note_container
from arkml.sessions.state import GuestState

_NONE = 0  # never a valid handle


class MlInferenceV0(Packing):
    """All of `ark-ml-inference-v0`: models with named inputs, for many agents at once."""

    __slots__ = ("_memory", "_table")

    def __init__(self, guest: GuestState) -> None:
        super().__init__(guest)
        self._table = guest.brains
        self._memory = guest.brain_memory

    def create_runtime(self) -> int:
        try:
            return self._table.insert(Runtime())
        except AbiError as error:  # the function has no error code
            self._guest.log.say(logging.WARNING, f"a runtime was not created: {error}")
            return _NONE

    def destroy_runtime(self, handle: int) -> None:
        runtimes.destroy(self._table, handle)

    def load_inference_async(self, handle: int, format: SnapshotFormat, data: bytes) -> int:
        runtime = self._table.get(handle, Runtime)
        self._table.upcoming()  # raises the error of `insert`
        with log_refusals(self._guest):
            lease = self._guest.snapshots.take(data)
        future = Future(runtimes.NETWORK, self._guest.changes)
        item = Load(handle, future, lease)
        load = self._table.insert(item)
        runtime.loads.add(load)
        self._guest.background(partial(self._load, item, format, data, self._guest.keys.next()))
        return load

    def poll_load_inference_async(self, handle: int) -> int:
        load = self._table.get(handle, Load)
        if not load.future.is_ready:
            self._guest.pending_polls += 1
            raise Unavailable(f"brain {handle:#x} is still loading")
        try:
            network = load.network or load.future.result()
        except AbiError as error:
            load.lease.release()
            if not load.is_logged:
                load.is_logged = True
                self._guest.log.say(logging.WARNING, f"a brain was refused: {error}")
            raise
        return self._loaded(handle, load, network)

    def unload_inference(self, runtime_handle: int, handle: int) -> None:
        brain = self._brain(runtime_handle, handle)
        if brain.queued:
            raise InvalidArguments(f"{brain.queued} agents are queued for brain {handle:#x}")
        self._table.remove(handle, Brain).close()
        del self._table.get(runtime_handle, Runtime).brains[handle]

    def get_brain_input_names(self, runtime_handle: int, inference_handle: int) -> bytes:
        return brains.names_bytes(self._brain(runtime_handle, inference_handle).network.inputs)

    def get_brain_input_shape(
        self, runtime_handle: int, inference_handle: int, slot: int
    ) -> Mapping[str, Any]:
        return _shape(self._brain(runtime_handle, inference_handle).network.inputs, slot)

    def get_brain_output_names(self, runtime_handle: int, inference_handle: int) -> bytes:
        return brains.names_bytes(self._brain(runtime_handle, inference_handle).network.outputs)

    def get_brain_output_shape(
        self, runtime_handle: int, inference_handle: int, slot: int
    ) -> Mapping[str, Any]:
        return _shape(self._brain(runtime_handle, inference_handle).network.outputs, slot)

    def begin_infer_submission(
        self, runtime_handle: int, inference_handle: int, agent: int
    ) -> None:
        self._brain(runtime_handle, inference_handle).begin(agent)

    def submit_inference_item(
        self, runtime_handle: int, inference_handle: int, name: str, data: Floats
    ) -> None:
        """Add one input of the submission: float32, [width]."""
        self._brain(runtime_handle, inference_handle).add(name, data)

    def end_infer_submission(self, runtime_handle: int, inference_handle: int) -> None:
        self._brain(runtime_handle, inference_handle).end()

    def execute_inference(self, handle: int) -> bytes:
        runtime = self._table.get(handle, Runtime)
        return self._execute(runtime, math.inf)

    def execute_inference_for(self, handle: int, time_limit_s: float) -> bytes:
        runtime = self._table.get(handle, Runtime)
        seconds = 0.0 if math.isnan(time_limit_s) else max(0.0, time_limit_s)
        return self._execute(runtime, seconds)

    def poll_result(self, handle: int, inference_handle: int, agent: int) -> bool:
        return self._brain(handle, inference_handle).has_result(agent)

    def result_get_brain_agents(self, runtime_handle: int, inference_handle: int) -> bytes:
        return brains.agents_bytes(self._brain(runtime_handle, inference_handle).agents)

    def result_get_brain_output_names(self, runtime_handle: int, inference_handle: int) -> bytes:
        return self.get_brain_output_names(runtime_handle, inference_handle)

    def result_get_brain_agent_output(
        self, runtime_handle: int, inference_handle: int, agent: int, slot: int
    ) -> bytes:
        brain = self._brain(runtime_handle, inference_handle)
        return brains.floats_bytes(brain.output(agent, slot))

    def _execute(self, runtime: Runtime, seconds: float) -> bytes:
        guest = self._guest
        is_of_guest = guest.library.of_session((), None, None).takes_snapshots
        if is_of_guest:
            seconds = min(seconds, guest.account.seconds_left)
            guest.library.limit_runs(guest.account.seconds_left)
        with guest.account.running(is_of_guest=is_of_guest):
            return brains.agents_bytes(runtime.execute(seconds, guest.stopwatch))

    def _brain(self, runtime: int, handle: int) -> Brain:
        self._table.get(runtime, Runtime)
        brain = self._table.get(handle, Brain)
        if brain.runtime != runtime:
            raise NotFound(f"brain {handle:#x} does not belong to runtime {runtime:#x}")
        return brain

    def _load(self, load: Load, format: SnapshotFormat, data: bytes, key: int) -> None:
        try:
            network, load.demand = load_brain(self._guest, load.lease, format, data, key)
        except Exception as error:  # the guest that polls gets it
            if is_of_handler(error):
                raise
            load.future.fail(error)
        else:
            load.future.resolve(network)

    def _loaded(self, handle: int, load: Load, network: Network) -> int:
        runtime = self._table.get(load.runtime, Runtime)
        self._table.remove(handle, Load)
        runtime.loads.remove(handle)
        assert load.demand is not None  # it has one once it is loaded
        rows = self._guest.limits.rows
        brain = Brain(load.runtime, network, self._memory, load.lease, load.demand, rows=rows)
        brain_handle = self._table.insert(brain)
        runtime.brains[brain_handle] = brain
        return brain_handle


def load_brain(
    guest: GuestState, lease: Lease, format: SnapshotFormat, data: bytes, key: int
) -> tuple[Network, BrainDemand]:
    """Load a guest's model file, and return its network and its demand. Raises AbiError."""
    library = guest.library.of_session((), None, None)  # brains have a guest's name
    library.prepare()
    note_container(guest, library, data, format)
    with guest.account.vetting(is_of_guest=library.takes_snapshots):
        network = library.load_network(data, format, key=key)
    lease.count(network.session_bytes)
    brains.require_countable(network)
    guest.account.require_bytes(0)  # the model is among the leases
    demand = BrainDemand(library.keep(data, lease.digest), format, key, network)
    return network, library.demands.open_brain(demand)


def _shape(ports: Sequence[Port], slot: int) -> Mapping[str, Any]:
    shape = brains.port_at(ports, slot).shape
    return {"ndim": len(shape), "dims": [*shape, *[0] * (brains.MAX_DIMENSIONS - len(shape))]}
