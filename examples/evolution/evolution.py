"""
The cross-entropy method as a learner of arkml: policies are drawn, played, and the best ones kept.

A policy is linear: `actions = tanh(features @ weights + bias)`. Each is published as a version of
the run and plays `EPISODES` episodes; after `POPULATION` of them the next ones are drawn around the
mean of the best. Install this directory, on the machine of the hive, and train with
`arkml train GUEST --algorithm evolution`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from arkml.abi.codes import EpisodeState
from arkml.hive.protocol.rows import RowColumns, RowKind
from arkml.hive.protocol.runs import MOST_AHEAD
from arkml.hive.protocol.settings import Settings
from arkml.learning.algorithm import Added, HeldRows, PolicyModel, State
from arkml.learning.normalizer import CLIP, Normalizer
from arkml.learning.trajectories import TrajectoryIndex

POPULATION = 16
BEST = 4
EPISODES = 32
LEAST_DEVIATION = 0.05


class Returns:
    """The returns of episodes that the newest version played; rows themselves are not kept."""

    def __init__(self, gamma: float) -> None:
        self.rows = 0
        self.version = 0
        self.finished: list[float] = []
        self._gamma = gamma
        self._chains: dict[tuple[int, int], TrajectoryIndex] = {}
        self._totals: dict[tuple[int, int], tuple[int, float]] = {}

    def add(self, session: int, kind: int, columns: RowColumns) -> Added:
        chains = self._chains.setdefault((session, kind), TrajectoryIndex(self._gamma))
        extension = chains.extend(columns, self.rows)
        self.rows += len(columns)
        if kind == RowKind.TRAINING:
            self._count(session, columns)
        follows = extension.previous >= 0
        return Added(extension.discounted[follows], extension.episodes)

    def _count(self, session: int, columns: RowColumns) -> None:
        """Add up the rewards of each agent from its first row on, if one version plays all."""
        rows = zip(columns.agent, columns.state, columns.version, columns.reward, strict=True)
        for agent, state, version, reward in rows:
            key = (session, int(agent))
            if state == EpisodeState.INITIAL:
                self._totals[key] = (int(version), 0.0)
                continue
            if key not in self._totals:
                continue
            first, total = self._totals.pop(key)
            total += float(reward)
            if state == EpisodeState.RUNNING:
                self._totals[key] = (first, total)
            elif first == self.version:
                self.finished.append(total)

    def cut(self, session: int) -> None:
        for (owner, _), chains in self._chains.items():
            if owner == session:
                chains.clear()
        self._totals = {key: value for key, value in self._totals.items() if key[0] != session}

    def audit(self) -> HeldRows:
        return HeldRows(0, 0, {})


class WholeVersions:
    """An update for each version that has played its episodes; hosts wait for the next one."""

    def __init__(self, returns: Returns) -> None:
        self.update_seconds = 0.0
        self.is_published = True
        self._returns = returns

    @property
    def holds(self) -> bool:
        return not self.is_published or len(self._returns.finished) >= EPISODES

    def begin(self, rows: int, updates: int) -> None:
        del rows, updates

    def admitted(self, updates: int) -> int:
        del updates
        return self._returns.rows + MOST_AHEAD

    def due(self, rows: int, updates: int) -> int:
        del rows, updates
        return int(self.is_published and len(self._returns.finished) >= EPISODES)

    def turn(self, due: int) -> int:
        return due

    def record(self, updates: int, seconds: float) -> None:
        self.update_seconds = seconds / updates


class Evolution:
    """The algorithm of a run, as `arkml.learning.algorithm.Algorithm` describes it."""

    is_on_policy = True
    device = "cpu"

    def __init__(self, settings: Settings, normalizer: Normalizer) -> None:
        self.buffer = Returns(settings.gamma)
        self.pace = WholeVersions(self.buffer)
        self.n_opts = 0
        self._normalizer = normalizer
        self._shape = (settings.features + 1, settings.actions)
        self._random = np.random.default_rng(settings.seed)
        self._mean = np.zeros(self._shape)
        self._deviation = np.ones(self._shape)
        self._tried: list[tuple[float, np.ndarray]] = []
        self._candidate = self._mean

    @property
    def is_ready(self) -> bool:
        return bool(self.pace.due(0, 0))

    def prepare(self) -> None:
        """Do nothing: no update takes long."""

    def train(self, updates: int) -> dict[str, float]:
        """Rate the policy that has played, and draw the next one."""
        self._tried.append((float(np.mean(self.buffer.finished)), self._candidate))
        self.buffer.finished.clear()
        self.n_opts += updates
        if len(self._tried) == POPULATION:
            best = sorted(self._tried, key=lambda tried: tried[0])[-BEST:]
            kept = np.stack([weights for _, weights in best])
            self._mean = kept.mean(0)
            self._deviation = np.maximum(kept.std(0), LEAST_DEVIATION)
            self._tried.clear()
            self._candidate = self._mean  # the first of a generation, so it can be the best one
        else:
            drawn = self._random.standard_normal(self._shape)
            self._candidate = self._mean + self._deviation * drawn
        self.pace.is_published = False
        return {"train/n_updates": float(self.n_opts), "train/std": float(self._deviation.mean())}

    def policy(self) -> PolicyModel:
        scaling = self._normalizer.current
        weights = [
            numpy_helper.from_array(np.asarray(value, np.float32), name)
            for name, value in {
                "mean": scaling.mean,
                "inverse": scaling.inverse,
                "low": -CLIP,
                "high": CLIP,
                "weights": self._candidate[:-1],
                "bias": self._candidate[-1],
                "zeros": np.zeros((self._shape[0] - 1, 1)),
            }.items()
        ]
        nodes = [
            helper.make_node("Sub", ["observations", "mean"], ["shifted"]),
            helper.make_node("Mul", ["shifted", "inverse"], ["scaled"]),
            helper.make_node("Clip", ["scaled", "low", "high"], ["inputs"]),
            helper.make_node("Gemm", ["inputs", "weights", "bias"], ["raw"]),
            helper.make_node("Tanh", ["raw"], ["actions"]),
            helper.make_node("MatMul", ["inputs", "zeros"], ["values"]),
        ]
        ports = [
            helper.make_tensor_value_info(name, TensorProto.FLOAT, ["N", width])
            for name, width in (
                ("observations", self._shape[0] - 1),
                ("actions", self._shape[1]),
                ("values", 1),
            )
        ]
        graph = helper.make_graph(nodes, "policy", ports[:1], ports[1:], weights)
        opset = helper.make_opsetid("", 17)
        model = helper.make_model(graph, opset_imports=[opset], ir_version=8)
        onnx.checker.check_model(model)
        return PolicyModel(model.SerializeToString(), self.n_opts)

    def published(self, version: int) -> None:
        """Count the episodes of this version from now on."""
        self.buffer.version = version
        self.buffer.finished.clear()
        self.pace.is_published = True

    def name_metrics(self, names: Sequence[str]) -> None:
        """Do nothing: the guest's metrics are not learned from."""

    def metrics(self) -> Mapping[str, float]:
        return {}

    def state(self) -> State:
        tensors = {"mean": self._mean.copy(), "deviation": self._deviation.copy()}
        plain = {"n_opts": self.n_opts, "random": self._random.bit_generator.state}
        return State(tensors, plain)

    def restore(self, state: State) -> None:
        """Continue with the generation that was played last, from its beginning."""
        self._mean = np.array(state.tensors["mean"])
        self._deviation = np.array(state.tensors["deviation"])
        self._candidate = self._mean
        self.n_opts = int(state.plain["n_opts"])
        self._random.bit_generator.state = state.plain["random"]
