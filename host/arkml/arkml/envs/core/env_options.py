"""The options that every environment of a guest takes."""

from __future__ import annotations

import os
from collections.abc import Collection
from typing import TypedDict

from arkml.envs.core.script import Configuration
from arkml.guests.trace_recorder import Trace
from arkml.host import Host
from arkml.limits import Limits, Threads
from arkml.runtime.game_functions import Imports
from arkml.runtime.memory import BytesLike
from arkml.runtime.wasi.linking import WasiGrant
from arkml.sessions.declarations import SpecLike


class GuestEnvOptions(TypedDict, total=False):
    """Keyword arguments of `GuestEnv`, which all other environments of guests pass on."""

    entry: str | None
    """The export that is called; by default the frame of an applet, or a cmdlet."""

    args: str
    """Arguments of a cmdlet, separated by single spaces; "{seed}" stands for the seed."""

    configure: Configuration
    """Text or numbers for the guest's export `configure`; "{seed}" stands for the seed."""

    snapshot: BytesLike | None
    """The ONNX file that the guest downloads; None is a policy that gives zeros."""

    inference: bool | None
    """
    True if submits of inference sessions are steps; None if only for guests without an experiment.
    """

    behaviors: Collection[str] | None
    """Names of the behaviors that are stepped; the agents of others get zeros. None is all."""

    spec: SpecLike
    """The declaration of behaviors: an object, or the path of a JSON file."""

    idle_calls: int
    """Calls without a submit after which the guest has stalled; 1,000 by default."""

    max_episode_steps: int | None
    """
    Steps after which an episode is cut: the agent is truncated, with its last observation.

    All other agents of its guest are truncated in that step, too, and the next episodes begin in a
    new instance. None sets no limit.
    """

    seconds: float | None
    """Seconds of one step after which the guest has stalled, or None."""

    frame_seconds: float
    """Seconds of a frame on the guest's clock; 1/60 by default."""

    wasi: WasiGrant | None
    """The WASI grant of the environment's own host."""

    limits: Limits | None
    """The limits of the environment's own host."""

    host: Host | None
    """The host that loads the guest, instead of the environment's own."""

    threads: Threads | None
    """The most threads of the environment's own host; None is "auto", as in `Host`."""

    imports: Imports | None
    """The functions of the game that the guest imports, for the environment's own host."""

    trace: Trace | str | os.PathLike[str] | None
    """The file that the environment's own host records its guests in, as in `Host`, or None."""

    digest: str | None
    """The digest that the module must have (`CompiledModule.digest`), recorded in pickles."""
