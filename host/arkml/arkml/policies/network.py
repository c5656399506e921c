"""Models with named inputs and outputs, for guests of `ark-ml-inference-v0`."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import numpy.typing as npt

from arkml.batches import Floats
from arkml.errors import InvalidArguments
from arkml.policies.agents import AgentTable
from arkml.policies.model import Model
from arkml.policies.model_runner import ModelRunner
from arkml.policies.ports import Port
from arkml.policies.roles import Roles
from arkml.policies.workspace import PolicyWorkspace


class Network:
    """
    A model and the recurrent states of its agents. Used by one thread at a time.

    inputs: the ports that the guest fills; the host fills epsilon and recurrent states. outputs:
    all ports with a row for each agent, except recurrent states. Networks with different `key` draw
    different noise. `snapshot` is the digest of the snapshot that a guest brought.
    """

    def __init__(
        self,
        model: Model,
        roles: Roles,
        *,
        workspace: PolicyWorkspace,
        key: int = 0,
        seed: int = 0,
        deterministic: bool = False,
        snapshot: bytes | None = None,
    ) -> None:
        hosts = {source for source, _ in roles.recurrent} | {roles.epsilon}
        self.inputs: tuple[Port, ...] = tuple(p for p in model.inputs if p not in hosts)
        self.outputs: tuple[Port, ...] = roles.outputs
        if not self.outputs:
            raise InvalidArguments("the model has no output besides its recurrent state")
        self._key = np.array(key, np.uint64)
        self._model = model
        self._runner = ModelRunner(
            model,
            roles,
            seed=seed,
            deterministic=deterministic,
            workspace=workspace,
            snapshot=snapshot,
        )

    @property
    def is_of_guest(self) -> bool:
        """True if a guest brought the model, False if the embedder did."""
        return self._runner.limit.is_of_guest

    @property
    def session_bytes(self) -> int:
        """Bytes charged to the guest for the model: 0 if the embedder brought it."""
        return self._model.session_bytes if self.is_of_guest else 0

    @property
    def agents(self) -> AgentTable:
        """The agents whose steps and recurrent states the network keeps."""
        return self._runner.agents

    def take_from(self, other: Network) -> bool:
        """Take over the agents of a network with the same key; see `ModelRunner.take_from`."""
        return self._runner.take_from(other._runner, [int(other._key)])

    def run(
        self, agents: npt.NDArray[np.uint64], inputs: Mapping[str, Floats]
    ) -> dict[str, Floats]:
        """
        Run the model, and return every output, float32, [n, *shape], by port name.

        agents: uint64, [n], ids; an agent that is named twice takes two steps. inputs: float32, [n,
        *shape] or [n, width], by port name. Raises InvalidArguments if they do not match
        `self.inputs`, and Unavailable if the model fails.
        """
        count = len(agents)
        feeds = {port.name: _fitting(port, inputs, count) for port in self.inputs}
        outputs = {port.name: np.zeros((count, *port.shape), np.float32) for port in self.outputs}
        if count:
            bound = self._runner.bind(count, self._key, feeds, outputs)
            self._runner.run(bound, self._key, agents, None)
        return outputs


def _fitting(port: Port, inputs: Mapping[str, Floats], count: int) -> Floats:
    array = inputs.get(port.name)
    if array is None or array.size != count * port.width:
        size = "nothing" if array is None else f"{array.size} floats"
        raise InvalidArguments(
            f"input {port.label} takes {port.width} floats for each of {count} agents, got {size}"
        )
    return np.ascontiguousarray(array, np.float32).reshape(count, *port.shape)
