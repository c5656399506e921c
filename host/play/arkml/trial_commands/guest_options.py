"""Options of commands whose trials a guest plays: the guest, and policies for missing players."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, fields
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from arkml.cli import options
from arkml.cli.launch import HostOptions, read_policy
from arkml.cli.user_files import keep_apart, read_module
from arkml.cli.values import one_of, rate, read_limits, whole_number
from arkml.errors import UsageError
from arkml.trial_commands.learning_options import (
    Learn,
    LearnRewards,
    TrialsHive,
    TrialsRuns,
    learning_options,
)

if TYPE_CHECKING:
    from arkml.guest_trials.guest_hosting import GuestHosting
    from arkml.guest_trials.guest_trials_options import GuestTrialsOptions
    from arkml.guest_trials.learning.run_options import LearningOptions
    from arkml.guest_trials.learning.trial_learning import TrialLearning
    from arkml.guest_trials.stand_ins import StandIns
    from arkml.host import Host
    from arkml.trials.wire.common_pb2 import TrialParams

PANEL = "Guest"
AWAY = 10.0
_MOST_RATE = 1_000.0  # as in arkml.trials.core.hosting, which is imported late
LIMIT = "--guest-limit"


_LOCAL, _CLIENT = "local://", "cogment://client"
_CLASS = re.compile(r"([A-Za-z_][A-Za-z0-9_]*)=(.+)", re.DOTALL)


def _option(*names: str, **settings: Any) -> Any:
    return typer.Option(*names, show_default=False, rich_help_panel=PANEL, **settings)


Guest = Annotated[
    Path | None,
    _option(
        "--guest",
        metavar="GUEST",
        help="Play trials in instances of this module: with local:// and the implementation guest"
        " it is their environment.",
    ),
]
GuestLimits = Annotated[
    list[str] | None,
    _option(
        LIMIT,
        metavar="NAME=VALUE",
        help="Change a limit of the guest: memory_bytes=64MiB, ... (any number of times).",
    ),
]
Wasi = Annotated[bool, _option("--wasi", help="Grant the guest WASI, without files.")]
GameImports = Annotated[
    str | None,
    _option(
        "--imports",
        metavar="MODULE:NAME",
        help="Functions of the game that the guest imports: a mapping in a Python module, as in"
        " mygame:functions.",
    ),
]
TraceFile = Annotated[
    Path | None,
    _option(
        "--trace",
        metavar="FILE",
        help="Record all that enters the guests, for `arkml replay`: the first trial in FILE, the"
        " next ones beside it.",
    ),
]
Policies = Annotated[
    list[str] | None,
    _option(
        "--policy",
        metavar="[CLASS=]FILE",
        help="Have an ONNX or Cervo file act for the actors of a class, or of all others"
        " (any number of times).",
    ),
]
PolicyOutputs = Annotated[
    list[str] | None,
    _option(
        "--policy-output",
        metavar="[CLASS=]NAME",
        help="The output of a file that acts, where names and shapes do not tell; of several (any"
        " number of times) the columns one after another.",
    ),
]
Deterministic = Annotated[
    bool, _option("--deterministic", help="Let these policies act without noise.")
]
TickRate = Annotated[
    float | None,
    _option(
        "--tick-rate",
        metavar="R",
        parser=rate("--tick-rate", 0.0, _MOST_RATE),
        help="Ticks a second; 0: each waits for all players. By default the guest's own clock"
        " where people may play, else 0.",
    ),
]
Away = Annotated[
    float | None,
    _option(
        "--away",
        metavar="S",
        parser=rate("--away", 0.0),
        help=f"Seconds without an action after which a stand-in acts for a player, {AWAY:g} by"
        " default.",
    ),
]
EndOn = Annotated[
    Literal["first", "all"] | None,
    _option(
        "--end-on",
        metavar="first|all",
        parser=one_of("--end-on", ("first", "all")),
        help="End a trial with the episode of the first, or of all of its agents.",
    ),
]
Seed = Annotated[
    int | None,
    _option(
        "--seed",
        metavar="N",
        parser=whole_number("--seed", 0),
        help="Seed from which those of the trials, and the noise of policies, are drawn.",
    ),
]


@dataclass(frozen=True, slots=True, kw_only=True)
class PlayedGuest:
    """The options of a command about a guest that plays trials."""

    policy: Policies = None
    policy_output: PolicyOutputs = None
    deterministic: Deterministic = False
    tick_rate: TickRate = None
    away: Away = None
    end_on: EndOn = None
    seed: Seed = None
    hive: TrialsHive = None
    run: TrialsRuns = None
    learn: Learn = None
    learn_rewards: LearnRewards = None
    environment: options.EnvironmentOptions
    guest_limit: GuestLimits = None
    wasi: Wasi = False
    imports: GameImports = None
    trace: TraceFile = None

    @property
    def learning(self) -> LearningOptions | None:
        """The options of learning from the trials in runs of a hive, or None. Raises UsageError."""
        return learning_options(self.hive, self.run, self.learn, self.learn_rewards)

    def require_none(self) -> None:
        """Raise UsageError if options about a guest are given; called if --guest is not."""
        none = PlayedGuest(environment=options.EnvironmentOptions())
        for mine, default in ((self.environment, none.environment), (self, none)):
            for field in fields(mine):
                value = getattr(mine, field.name)
                is_given = value not in (getattr(default, field.name), [])  # typer's for no list
                if field.name != "environment" and is_given:
                    name = field.name.replace("_", "-")
                    raise UsageError(f"--{name} is about a guest: it takes --guest")

    @contextmanager
    def open_hosting(self, guest: Path, *, people: bool) -> Iterator[GuestHosting]:
        """
        Load the guest of a server with its policies for a `with` block, and free it at the end.

        Raises UsageError, ModuleError, GuestError and ModelRejected for options that do not fit.
        """
        from arkml.guest_trials.guest_hosting import GuestHosting
        from arkml.guest_trials.prompt import prompt_ticks

        keep_apart(self.trace, *(Path(_class_and_rest(text)[1]) for text in self.policy or ()))
        with (
            prompt_ticks(),
            open_guest_host(
                guest,
                self.guest_limit,
                LIMIT,
                wasi=self.wasi,
                imports=self.imports,
                trace=self.trace,
            ) as host,
            GuestHosting(self._options(guest, host, people=people)) as hosting,
        ):
            yield hosting

    def _options(self, guest: Path, host: Host, *, people: bool) -> GuestTrialsOptions:
        """Return the options of the trials, played in `host`."""
        from arkml.guest_trials.guest_trials_options import GuestTrialsOptions

        return GuestTrialsOptions(
            module=guest,
            environment=self.environment.keywords(host),
            tick_rate=self.tick_rate,
            away=AWAY if self.away is None else self.away,
            people=people,
            end_on=self.end_on,
            seed=self.seed,
            stand_ins=self._stand_ins(host),
            learning="" if self.learning is None else self.learning.sentence,
        )

    def _stand_ins(self, host: Host) -> StandIns | None:
        """Return the policies that stand in, None without any."""
        from arkml.guest_trials.stand_ins import StandInFile, StandIns

        files = []
        by_class: dict[str | None, list[str]] = {}
        for text in self.policy_output or ():
            actor_class, name = _class_and_rest(text)
            by_class.setdefault(actor_class, []).append(name)
        for text in self.policy or ():
            # A path may have a `=`, as that of a folder of a sweep has.
            is_path = Path(text).is_file()
            actor_class, file = (None, text) if is_path else _class_and_rest(text)
            outputs = tuple(by_class.pop(actor_class, ()))
            data = read_policy(path := Path(file), host.limits, outputs)
            files.append(StandInFile(path.name, data, actor_class, outputs))
        if by_class:
            unused = ", ".join(name for names in by_class.values() for name in names)
            raise UsageError(
                f"--policy-output {unused} needs a policy of the same class: give it by --policy"
            )
        followed = () if self.learning is None else tuple(self.learning.runs)
        if not (files or followed):
            return None
        return StandIns(
            files,
            run_classes=followed,
            seed=self.seed or 0,
            deterministic=self.deterministic,
            limits=host.limits,
        )


def open_guest_host(
    guest: Path,
    limits: Sequence[str] | None,
    option: str,
    *,
    wasi: bool,
    imports: str | None = None,
    trace: Path | None = None,
) -> Host:
    """
    Make the host of a guest whose output goes to stderr.

    `option` is the name of the option that gave the limits, `imports` the name of the game's
    functions, such as "mygame:functions", `trace` the file in which guests are recorded. Raises
    UsageError, and ModuleError for a file that is clearly not a module.
    """
    keep_apart(trace, guest)
    if trace is not None:  # else each trial would fail as it opens its file
        _check_place(trace)
    read_module(guest)
    read_limits(limits or (), option)
    host = HostOptions(limit=list(limits or ()), wasi=wasi, imports=imports)
    return host.open_host(name=guest.name, keep_stdout=True, trace=trace)


def _check_place(trace: Path) -> None:
    """Raise UsageError if no file can be written at a path."""
    if trace.is_dir():
        raise UsageError(f"the trace {trace} cannot be written: it is a directory, name a file")
    if not os.access(trace.parent, os.W_OK | os.X_OK):
        raise UsageError(
            f"the trace {trace} cannot be written: there is no directory {trace.parent}, or it"
            " cannot be written"
        )


@contextmanager
def open_learning(played: PlayedGuest, hosting: GuestHosting) -> Iterator[TrialLearning | None]:
    """
    Take part in runs of the hive that an option names, within a `with` block.

    Raises UsageError, NotTrainable for a run in which the guest cannot take part, and HiveError.
    """
    learning = played.learning
    if learning is None:
        yield None
        return
    from arkml.guest_trials.learning.trial_learning import TrialLearning
    from arkml.guest_trials.stand_ins import StandIns

    stand_ins = hosting.options.stand_ins
    assert isinstance(stand_ins, StandIns)
    game, classes = hosting.describe().guest, hosting.classes
    with TrialLearning(learning, game, classes, stand_ins.offer) as joined:
        yield joined


def hosted_params(hosting: GuestHosting, given: TrialParams | None = None) -> TrialParams:
    """
    Return the default parameters of a guest's trials, or the parameters of a file if `given`.

    By default every slot of the guest has an actor: a policy acts where the class has one or
    follows a run, and elsewhere an actor must join. Raises TrialError for actors that the guest
    cannot have, and UsageError for parameters of another environment.
    """
    from arkml.trials.core.hosting import HOSTED, STAND_IN
    from arkml.trials.core.parameters import DEFAULT_INACTIVITY
    from arkml.trials.wire.common_pb2 import TrialParams

    if given is not None:
        environment = given.environment
        if (environment.endpoint, environment.implementation) != (_LOCAL, HOSTED):
            raise UsageError(
                f"the environment of --params is {environment.implementation!r} at"
                f" {environment.endpoint}: with --guest it is {HOSTED!r} at {_LOCAL}"
            )
        hosting.completed(given)
        return given
    params = TrialParams(max_inactivity=DEFAULT_INACTIVITY)
    params.environment.endpoint, params.environment.implementation = _LOCAL, HOSTED
    stand_ins = hosting.options.stand_ins
    policies = {} if stand_ins is None else stand_ins.names
    for one in hosting.classes:
        is_stand_in = one.name in policies
        for slot in range(one.slots):
            params.actors.add(
                name=one.actor(slot),
                actor_class=one.name,
                endpoint=_LOCAL if is_stand_in else _CLIENT,
                implementation=STAND_IN if is_stand_in else "",
            )
    return params


def _class_and_rest(text: str) -> tuple[str | None, str]:
    """Return the class and the rest of `[CLASS=]FILE`."""
    match = _CLASS.fullmatch(text)
    return (None, text) if match is None else (match[1], match[2])
