"""The process that plays the evaluations of a training: `python -m arkml.training.evaluations`."""

from __future__ import annotations

import json
import os
import struct
import sys
from base64 import b64encode
from collections.abc import Callable, Collection, Mapping
from dataclasses import asdict
from pathlib import Path
from queue import SimpleQueue
from threading import Thread
from types import MappingProxyType
from typing import IO, Any, NamedTuple, TypeVar

from arkml.base.processors import come_after_parent
from arkml.base.short_reprs import cut_repr
from arkml.errors import ArkmlError, InvalidSpec, TraceRefused, UsageError
from arkml.guests.guest import SEED_EXPORT, Guest
from arkml.guests.trace_recorder import PartRecorders
from arkml.host import Host, loader_of
from arkml.limits import Budget, Limits
from arkml.policies.library import PolicyLibrary
from arkml.policies.step_limit import StepLimit
from arkml.replays.documents import document_of
from arkml.runs.evaluation_guests import PolicyEvaluation, Show, play_episodes
from arkml.runtime.compiled_module import CompiledModule
from arkml.runtime.wasi.linking import QUIET_GRANT
from arkml.sessions.branches import DeclaredBranches
from arkml.training.evaluation_traces import TRACE_BYTES
from arkml.training.task_runner import (
    FleetRunner,
    GuestRunner,
    Renewal,
    TaskRunner,
    require_frames,
)
from arkml.training.tasks import Task, compile_module, copies_fault, find_task

T = TypeVar("T")

_STEPS = 10  # of niceness: a frame of the training comes before one of an evaluation
_LENGTHS = struct.Struct("<QQ")


class EvaluatorMessage(NamedTuple):
    """A message to the evaluating process: JSON values, and bytes of a module or an ONNX file."""

    values: Mapping[str, Any]
    data: bytes


class EvaluationTask(NamedTuple):
    """
    The first message to the evaluating process: the guest that plays, and for how long.

    `arguments` are for a cmdlet, None for the entry point that the exports suggest. With
    `budgets_every_call` the time limit holds for all kinds of calls. An evaluation of `episodes`
    ends when these have ended, or after `frames`, such as 5,000; with more episodes the limit of
    frames grows in proportion. An episode is cut off after `max_episode_steps`. `imports` names the
    functions of a game, such as "mygame:functions". Evaluations may be recorded if `is_traced`.
    `wasi` grants the guest WASI without files.
    """

    name: str
    arguments: str | None
    limits: Limits
    budgets_every_call: bool
    episodes: int
    frames: int
    max_episode_steps: int | None = None
    imports: str | None = None
    is_traced: bool = False
    wasi: bool = False

    def message(self, module: bytes) -> EvaluatorMessage:
        """Return the first message to the process, with the bytes of the module."""
        return EvaluatorMessage(self._asdict() | {"limits": asdict(self.limits)}, module)

    @classmethod
    def of(cls, values: Mapping[str, Any]) -> EvaluationTask:
        """Return the task that the values of a message describe."""
        return cls(**{**values, "limits": Limits(**values["limits"])})

    def frames_for(self, episodes: int) -> int:
        """Return the frames after which an evaluation of this number of episodes is ended."""
        return -(-self.frames * max(episodes, self.episodes) // self.episodes)


class EpisodePlayer:
    """A guest that plays episodes with one policy version after another, in this process."""

    def __init__(self, host: Host, task: EvaluationTask, module: bytes) -> None:
        """Compile the module and make the guest. Raises ModuleError."""
        compiled = compile_module(host, module, task.name)
        entry = find_task(compiled, task.arguments)
        budget = entry.budget(is_set=task.budgets_every_call)
        self._traces: PartRecorders | None = None
        if task.is_traced:
            self._traces = loader_of(host).recorders = PartRecorders(TRACE_BYTES, host.wasi)
        self._runner, self._gateway = make_evaluating(
            host,
            compiled,
            entry,
            budget,
            max_episode_steps=task.max_episode_steps,
            episodes=task.episodes,
        )
        self._task, self._module = task, module
        self._is_initialized = False

    def play(
        self,
        behavior: str,
        version: int,
        episodes: int,
        policy: bytes,
        trace: str | None = None,
        others: Mapping[str, bytes] = MappingProxyType({}),
    ) -> dict[str, Any]:
        """
        Play episodes of a behavior's agents with a policy version.

        Args:
            behavior: The name of the run whose agents are rated.
            version: The number of the version that plays them.
            episodes: Number of episodes.
            policy: The version, an ONNX file.
            trace: A file in which the episodes are recorded, or None.
            others: Versions that play the agents of other runs, by the names of these.

        Returns:
            The episodes as JSON values, and as "idle" the names of runs whose agents got zeros. If
            the episodes were recorded, "replay" is a document for the page of the run, packed and
            in base64, or "unshown" says why there is none.

        Raises:
            ArkmlError: The guest or a policy failed.

        """
        for name, data in others.items():
            self._gateway.offer_other(name, data)
        if trace is None or self._traces is None:
            return self._play(behavior, version, episodes, policy)
        self._traces.begin(Path(trace))
        try:
            played = self._play(behavior, version, episodes, policy)
        finally:
            self._traces.end()
        try:
            document = document_of(Path(trace).read_bytes(), self._module)  # it is named later
        except (OSError, TraceRefused) as error:  # of a full disk, say: it fails no evaluation
            return played | {"unshown": str(error)}
        return played | {"replay": b64encode(document.pack()).decode()}

    def _play(self, behavior: str, version: int, episodes: int, policy: bytes) -> dict[str, Any]:
        self._gateway.behavior = behavior
        self._gateway.offer(version, policy)
        begin = None if self._is_initialized else self._runner.initialize
        self._is_initialized = True
        gateway, step, frames = self._gateway, self._runner.step, self._task.frames_for(episodes)
        played = play_episodes(gateway, step, episodes, frames, begin=begin)
        if gateway.failure is not None and not played.returns:
            raise gateway.failure
        return played._asdict() | {"refused": self._runner.refused, "idle": gateway.idle}


def make_evaluating(
    host: Host,
    module: CompiledModule,
    task: Task,
    budget: Budget,
    *,
    behavior: str | None = None,
    others: Collection[str] = (),
    max_episode_steps: int | None = None,
    seed: int = 0,
    episodes: int | None = None,
    show: Show | None = None,
) -> tuple[TaskRunner, PolicyEvaluation]:
    """
    Make a guest for evaluations, in which a policy answers as its run; run no instruction yet.

    Args:
        host: The host of the guest.
        module: The module of the guest.
        task: The task that is done step by step.
        budget: The time budget of a step.
        behavior: Name of the run whose agents the policy plays, by default the guest's first that
            is not of the `others`.
        others: Names of runs for whose agents the host has policies (`Host(policies=...)`).
        max_episode_steps: Steps after which episodes are cut off.
        seed: The new guests after an episode that was cut off get seeds drawn from this one.
        episodes: Number of episodes that count: a guest that declares `copies` of its game plays no
            more of them. None lets it play all.
        show: Gets each batch that the policy has answered.

    Raises:
        UsageError: Episodes of this task cannot be cut off, or the module declares behaviors, and
            none of one of these names.
        InvalidSpec: The guest declares copies, and cannot be told their number.

    """
    limit, copies = None, _copies(module, episodes, is_renewed=max_episode_steps is not None)
    if max_episode_steps is not None:
        require_frames(module, task)
        limit = StepLimit(max_episode_steps)
    loader, name = loader_of(host), f"{module.name} (evaluation)"
    library: PolicyLibrary = loader.library()
    require_declared(module, others)
    gateway = PolicyEvaluation(
        library, behavior=behavior, others=others, spec=module.info.spec, limit=limit, show=show
    )
    shared = loader.shared(gateway=gateway, library=library)
    if limit is None:
        guest = Guest(loader.load(module, name, shared))
        return GuestRunner(guest, task, budget, copies), gateway
    if SEED_EXPORT not in module.functions and copies is None:
        gateway.unseeded = (
            f"{module.name} takes no seed, for it exports no {SEED_EXPORT}: the guest after each"
            " episode that is cut off repeats the episodes of the one before"
        )
    renewal = Renewal(limit, seed, lambda: gateway.episodes.cut_off(), copies)
    return FleetRunner(loader.fleet(module, name, 1, shared), task, budget, renewal), gateway


def policies_of_others(others: Mapping[str, T] | None, behavior: str | None) -> Mapping[str, T]:
    """
    Return the policies for agents that are not rated, by the names of their behaviors.

    Raises UsageError for other keys, and for `behavior`, the one that is rated.
    """
    if others is None:
        return {}
    if not isinstance(others, Mapping):
        raise UsageError(
            f"others is {cut_repr(others)}: it takes a dict, as {{'goblin': 'goblin.onnx'}}"
        )
    for name in others:
        if not isinstance(name, str):
            raise UsageError(f"others has the key {cut_repr(name)}: it takes names of behaviors")
        if name == behavior:
            raise UsageError(
                f"others (--other) has {name!r}, whose agents the policy itself plays (`behavior`,"
                " --behavior)"
            )
    return others


def require_declared(module: CompiledModule, names: Collection[str]) -> None:
    """Raise UsageError if the module declares behaviors, and none of one of these names."""
    declared = list(DeclaredBranches(module.info.spec).behaviors)
    for name in names:
        if declared and name not in declared:
            raise UsageError(
                f"others (--other) has {name!r}, and {module.name} declares {', '.join(declared)}"
            )


def _copies(module: CompiledModule, episodes: int | None, *, is_renewed: bool) -> int | None:
    """
    Return the copies of a guest's game that play `episodes`, None for as many as it plays unasked.

    With `is_renewed`, for guests that follow each other, it is never None: each gets a seed by it.
    Raises InvalidSpec if copies are declared, and the guest cannot be told their number.
    """
    behaviors = DeclaredBranches(module.info.spec).behaviors.values()
    declared = [one.copies for one in behaviors if one.copies is not None]
    if episodes is None or not declared:
        return None
    if fault := copies_fault(module.info):
        raise InvalidSpec(f"{module.name}: {fault}")
    return min(episodes, *declared) if is_renewed or episodes < min(declared) else None


def write_message(file: IO[bytes], message: EvaluatorMessage) -> None:
    """Write a message for the evaluating process to a file. Raises OSError."""
    values = json.dumps(message.values).encode()
    file.write(_LENGTHS.pack(len(values), len(message.data)) + values + message.data)
    file.flush()


def read_message(file: IO[bytes]) -> EvaluatorMessage:
    """Read a message for the evaluating process. Raises EOFError at the end of the file."""
    values, data = _LENGTHS.unpack(_exactly(file, _LENGTHS.size))
    return EvaluatorMessage(json.loads(_exactly(file, values)), _exactly(file, data))


def main() -> int:
    """
    Answer each message with a line of JSON on stdout: episodes, or an `error` and its `type`.

    A message with the name of an `other` run has no answer: its policy plays the agents of that run
    from then on. The process ends at the end of its standard input.
    """
    come_after_parent(_STEPS)  # frames of the training go first (decision 9)
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # nothing else writes between the answers
    messages: SimpleQueue[EvaluatorMessage] = SimpleQueue()
    Thread(target=_read, args=(messages.put,), daemon=True).start()
    first = messages.get()
    player: EpisodePlayer | None = None
    others: dict[str, bytes] = {}
    task = EvaluationTask.of(first.values)
    wasi = QUIET_GRANT if task.wasi else None
    with Host(limits=task.limits, imports=task.imports, wasi=wasi) as host:
        while True:
            values, policy = messages.get()
            if "other" in values:
                others[values["other"]] = policy
                continue
            try:
                player = player or EpisodePlayer(host, task, first.data)
                answer = player.play(
                    values["behavior"],
                    int(values["version"]),
                    int(values["episodes"]),
                    policy,
                    values.get("trace"),
                    others,
                )
            except ArkmlError as error:
                answer = {"error": str(error), "type": type(error).__name__}
            answers.write(json.dumps(answer) + "\n")
            answers.flush()


def _read(put: Callable[[EvaluatorMessage], None]) -> None:
    """Read messages; end the process at the end of the file, even during an evaluation."""
    while True:
        try:
            put(read_message(sys.stdin.buffer))
        except EOFError:
            os._exit(0)


def _exactly(file: IO[bytes], count: int) -> bytes:
    data = file.read(count)
    if len(data) < count:
        raise EOFError
    return data


if __name__ == "__main__":
    sys.exit(main())
