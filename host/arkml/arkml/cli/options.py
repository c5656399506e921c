"""Options that several commands share, and the making of commands whose options are a dataclass."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator, Mapping
from dataclasses import MISSING, dataclass, fields, is_dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TypeVar, get_type_hints

import typer

from arkml.cli.exits import Job
from arkml.cli.logs import LogOptions
from arkml.cli.values import (
    check_words,
    read_configuration,
    read_limits,
    read_others,
    thread_count,
    whole_number,
)
from arkml.limits import Backend

if TYPE_CHECKING:
    from arkml.envs.core.env_options import GuestEnvOptions
    from arkml.host import Host

_HOST, _OUTPUT, _GUEST = "Host", "Output", "Guest"


def epilog(*examples: str, notes: str = "") -> str:
    """Return the end of a help text: examples, one a line, and notes."""
    lines = "  \n".join(examples)  # two spaces keep the line's end in Markdown
    return f"Examples:\n\n{lines}\n\n{notes.strip()}"


def _limits(examples: str) -> Any:
    return typer.Option(
        "--limit",
        metavar="NAME=VALUE",
        help=f"Change a limit: {examples}, ... (any number of times).",
        rich_help_panel=_HOST,
        show_default=False,
    )


def _seed(text: str) -> Any:
    parser = whole_number("--seed")
    return typer.Option(metavar="N", parser=parser, help=text, rich_help_panel=_HOST)


GuestFile = Annotated[
    Path, typer.Argument(metavar="GUEST", help="A WebAssembly module.", show_default=False)
]
Entry = Annotated[
    str | None,
    typer.Option(
        metavar="NAME",
        help="The export to call, instead of an applet's frame or a cmdlet.",
        show_default=False,
        rich_help_panel=_GUEST,
    ),
]
CmdletArguments = Annotated[
    str,
    typer.Option(
        "--args",
        metavar='"ARGS"',
        help="Arguments of a cmdlet; {seed} stands for the seed.",
        show_default=False,
        rich_help_panel=_GUEST,
    ),
]
Configure = Annotated[
    str | None,
    typer.Option(
        metavar="TEXT",
        help="Text for its export `configure`.",
        show_default=False,
        rich_help_panel=_GUEST,
    ),
]
ConfigureNumbers = Annotated[
    str | None,
    typer.Option(
        metavar="N,N,...",
        help="Whole numbers for its export `configure`, {seed} among them.",
        show_default=False,
        rich_help_panel=_GUEST,
    ),
]
Declaration = Annotated[
    Path | None,
    typer.Option(
        "--spec",
        metavar="FILE",
        help="A JSON file with the meaning of observations and actions.",
        show_default=False,
        rich_help_panel=_GUEST,
    ),
]
Policies = Annotated[
    list[str] | None,
    typer.Option(
        "--policy",
        metavar="[NAME=]FILE",
        help="Act with this ONNX or Cervo file instead of the models that the guest loads: for"
        " behavior NAME, sessions of a shape such as 8,3, or all others (any number of times).",
        rich_help_panel=_HOST,
        show_default=False,
    ),
]
PolicyOutputs = Annotated[
    list[str] | None,
    typer.Option(
        "--policy-output",
        metavar="NAME",
        help="The output of --policy FILE that acts, where names and shapes do not tell; of several"
        " (any number of times) the columns one after another.",
        rich_help_panel=_HOST,
        show_default=False,
    ),
]
Seed = Annotated[int, _seed("Seed of stochastic policies.")]
Deterministic = Annotated[
    bool, typer.Option("--deterministic", help="Act without noise.", rich_help_panel=_HOST)
]
ModelBackend = Annotated[
    Backend,
    typer.Option(
        "--backend",
        help="What runs ONNX models: onnxruntime, or wasm, whose answers are equal on every machine"
        " and come sooner for one agent.",
        rich_help_panel=_HOST,
    ),
]
LimitValues = Annotated[list[str] | None, _limits("memory_bytes=64MiB, run_seconds=none")]
ModuleLimits = Annotated[list[str] | None, _limits("memory_bytes=64MiB, module_bytes=128MiB")]
ModelLimits = Annotated[list[str] | None, _limits("snapshot_bytes=128MiB")]
Wasi = Annotated[
    bool, typer.Option("--wasi", help="Grant WASI, without files.", rich_help_panel=_HOST)
]
QuietWasi = Annotated[
    bool,
    typer.Option(
        "--wasi",
        help="Grant WASI, without files; what guests print is dropped.",
        rich_help_panel=_HOST,
    ),
]
Directories = Annotated[
    list[str] | None,
    typer.Option(
        "--dir",
        metavar="HOST[:GUEST][:ro]",
        help="Grant WASI with this directory (any number of times).",
        rich_help_panel=_HOST,
        show_default=False,
    ),
]
StubMissing = Annotated[
    bool,
    typer.Option(
        "--stub-missing",
        help="Link unknown ark-* imports to stubs that answer ApiNotAvailable.",
        rich_help_panel=_HOST,
    ),
]
GameImports = Annotated[
    str | None,
    typer.Option(
        "--imports",
        metavar="MODULE:NAME",
        help="Functions of the game that the guest imports: a mapping in a Python module, as in"
        " mygame:functions.",
        rich_help_panel=_HOST,
        show_default=False,
    ),
]
Notify = Annotated[
    list[str] | None,
    typer.Option(
        "--notify",
        metavar="URL",
        help="Post notices there, as JSON: a run diverges, has collapsed, is stuck or too slow, its"
        " learner was restarted, its goal reached (any number of times).",
        show_default=False,
    ),
]
NotifyCommand = Annotated[
    str | None,
    typer.Option(
        "--notify-command",
        metavar="COMMAND",
        help="Run a program for each of these notices, which it gets on standard input.",
        show_default=False,
    ),
]
TraceFile = Annotated[
    Path | None,
    typer.Option(
        "--trace",
        metavar="FILE",
        help="Record all that enters the guest, for `arkml replay`.",
        show_default=False,
    ),
]
ThreadCount = Annotated[
    str,
    typer.Option(
        metavar="N|auto",
        parser=thread_count,
        help="The most threads that run a fleet; auto takes the processors that may be used.",
        rich_help_panel=_HOST,
    ),
]
_HIVE = "Training"
AllowHive = Annotated[
    list[str] | None,
    typer.Option(
        "--allow-hive",
        metavar="HOST:PORT|URL",
        help="Let the guest use this hive too (any number of times).",
        rich_help_panel=_HIVE,
        show_default=False,
    ),
]
HiveData = Annotated[
    Path | None,
    typer.Option(
        "--data",
        metavar="DIR",
        help="Directory of an embedded hive's runs; without it they are deleted at the end.",
        rich_help_panel=_HIVE,
        show_default=False,
    ),
]
HiveAt = Annotated[
    str,
    typer.Option(
        "--hive",
        metavar="HOST:PORT|URL",
        help="The hive; its token is in the environment variable ARKML_HIVE_TOKEN.",
        rich_help_panel=_HIVE,
    ),
]


def hive(default: str, words: str) -> Any:
    """Return the declaration of the option that names the hive of a guest."""
    return typer.Option(
        "--hive",
        metavar="|".join((*words.split(), "HOST:PORT", "URL")),
        help=f"The hive that the guest may train on, {default} by default;"
        " the token of HOST:PORT is in the environment variable ARKML_HIVE_TOKEN.",
        rich_help_panel=_HIVE,
    )


Cmdlet = Annotated[
    str | None,
    typer.Option(
        metavar='"ARGS"',
        help="Run the cmdlet, or the WASI command, with these arguments.",
        show_default=False,
    ),
]
Invoke = Annotated[
    str | None,
    typer.Option(
        metavar="NAME",
        help="Call this export, with the numbers ARG… or the bytes of --input.",
        show_default=False,
    ),
]
Arguments = Annotated[
    list[str] | None,
    typer.Argument(metavar="ARG", help="Numbers for --invoke.", show_default=False),
]
Input = Annotated[
    Path | None,
    typer.Option(
        metavar="FILE", help="Bytes for --invoke or a servlet; - is stdin.", show_default=False
    ),
]
Instances = Annotated[
    int,
    typer.Option(
        metavar="N",
        parser=whole_number("--instances", 1),
        help="Step a fleet of N guests.",
    ),
]
Behavior = Annotated[
    str | None,
    typer.Option(
        metavar="NAME",
        help="Play the agents of the run of that name, of a guest that starts several.",
        show_default=False,
    ),
]
OtherPolicies = Annotated[
    list[str] | None,
    typer.Option(
        "--other",
        metavar="NAME=FILE",
        help="The policy of the agents of another behavior, which get zeros without one (any number"
        " of times).",
        show_default=False,
    ),
]
MaxEpisodeSteps = Annotated[
    int | None,
    typer.Option(
        metavar="N",
        parser=whole_number("--max-episode-steps", 1),
        help="Cut episodes off after N steps: their agents are truncated, and a new guest begins.",
        show_default=False,
    ),
]
Json = Annotated[
    bool,
    typer.Option(
        "--json", help="Print one JSON object on stdout, nothing else.", rich_help_panel=_OUTPUT
    ),
]
Debug = Annotated[
    bool,
    typer.Option("--debug", help="Show tracebacks and all log lines.", rich_help_panel=_OUTPUT),
]
Verbose = Annotated[
    int,
    typer.Option(
        "-v", "--verbose", count=True, help="Log debug lines, -vv traces too.",
        rich_help_panel=_OUTPUT, show_default=False,
    ),
]  # fmt: skip
LogLevel = Annotated[
    str | None,
    typer.Option(
        metavar="LEVEL",
        help="Lowest level to log: trace, debug, info (the default), warning, error, off.",
        rich_help_panel=_OUTPUT,
        show_default=False,
    ),
]


@dataclass(frozen=True, slots=True, kw_only=True)
class OutputOptions:
    """The options of a command that are about its output."""

    as_json: Json = False
    debug: Debug = False
    verbose: Verbose = 0
    log_level: LogLevel = None

    def start_logs(self, level: str | None = None, file: Path | None = None) -> None:
        """Begin to log to stderr or a file, from `level` on unless an option sets another level."""
        shown = self.log_level or (None if self.verbose or self.debug else level)
        LogOptions(shown, self.verbose, self.debug, file).start()


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskOptions:
    """The options of a command that name a task, as the user gave them."""

    arguments: Arguments = None
    cmdlet: Cmdlet = None
    invoke: Invoke = None
    input: Input = None


@dataclass(frozen=True, slots=True, kw_only=True)
class PolicyPlayOptions:
    """The options of a command in which a policy answers the trainings that a guest starts."""

    policy_output: PolicyOutputs = None
    behavior: Behavior = None
    other: OtherPolicies = None
    max_episode_steps: MaxEpisodeSteps = None
    noise: Annotated[
        bool, typer.Option("--noise", help="Act with the noise of a stochastic policy.")
    ] = False
    cmdlet: Cmdlet = None
    seed: Annotated[
        int, _seed("Seed of stochastic policies and, unless it is 0, of a guest that takes one.")
    ] = 0
    limit: LimitValues = None
    imports: GameImports = None
    wasi: QuietWasi = False

    def keywords(self) -> dict[str, Any]:
        """
        Return the options as keyword arguments of `arkml.evaluate` and `record`. Raises UsageError.
        """
        return {
            "outputs": tuple(self.policy_output or ()),
            "behavior": self.behavior,
            "others": read_others(self.other or ()),
            "max_episode_steps": self.max_episode_steps,
            "deterministic": not self.noise,
            "cmdlet": self.cmdlet,
            "seed": self.seed,
            "limits": read_limits(self.limit or ()),
            "imports": self.imports,
            "wasi": self.wasi,
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class EnvironmentOptions:
    """The options of a command about a guest that is stepped as an environment."""

    entry: Entry = None
    args: CmdletArguments = ""
    configure: Configure = None
    configure_numbers: ConfigureNumbers = None
    spec: Declaration = None

    def keywords(self, host: Host | None = None) -> GuestEnvOptions:
        """
        Return the options as keyword arguments of `GuestEnv`, with its host. Raises UsageError.
        """
        return {
            "entry": self.entry,
            "args": self.args,
            "configure": read_configuration(self.configure, self.configure_numbers),
            "spec": self.spec,
            "host": host,
        }


_Options = TypeVar("_Options")


def add_command(
    app: typer.Typer,
    name: str,
    options: type[_Options],
    perform: Callable[[_Options], int],
    *,
    epilog: str,
    takes_numbers: bool = False,
    settings: Mapping[str, Any] | None = None,
) -> None:
    """
    Add a command whose options are the fields of a dataclass.

    Typer reads options from the parameters of a function. This makes a function whose parameters
    are the fields of the dataclass, so that each option is written once. A field that is itself a
    dataclass stands for its fields.

    Args:
        app: The application that gets the command.
        name: The word that calls the command.
        options: The dataclass, with options as the annotations of its fields.
        perform: Function that does the job and returns the exit code; its docstring is the help.
        epilog: Examples and notes below the help text.
        takes_numbers: True for `arguments` that may be negative numbers. Typer then takes unknown
            options for arguments, and the command refuses them.
        settings: Further settings of Click's context.

    Example:
        add_command(app, "bench", BenchOptions, bench, epilog=epilog("arkml bench npc.wasm"))

    """

    def command(context: typer.Context, **values: Any) -> Job:
        if takes_numbers:
            known = [name for option in context.command.params for name in option.opts]
            check_words((str(values["guest"]), *(values["arguments"] or ())), known)
        return partial(perform, _filled(options, values))

    kind = inspect.Parameter.KEYWORD_ONLY
    context = inspect.Parameter("context", kind, annotation=typer.Context)
    command.__signature__ = inspect.Signature(  # type: ignore[attr-defined]
        [context, *_parameters(options)]
    )
    whole = {**(settings or {}), "ignore_unknown_options": takes_numbers}
    described = inspect.getdoc(perform)
    app.command(name, help=described, epilog=epilog, context_settings=whole)(command)


def add_group(app: typer.Typer, name: str, summary: str, *, epilog: str) -> typer.Typer:
    """
    Add a group of commands, such as `arkml state`, and return it to add its commands to.

    Args:
        app: The application that gets the group.
        name: The word that calls the group.
        summary: Help text of the group.
        epilog: Examples below the help text.

    Example:
        state = add_group(app, "state", "Save guests.", epilog=epilog("arkml state show a.state"))

    """
    group = typer.Typer(
        name=name,
        help=summary,
        rich_markup_mode="markdown",
        no_args_is_help=True,
        epilog=epilog,
    )
    app.add_typer(group)
    return group


def _parameters(options: Any) -> Iterator[inspect.Parameter]:
    """Yield a parameter for each field of a dataclass, and of the dataclasses among its fields."""
    hints = get_type_hints(options, include_extras=True)
    for field in fields(options):
        if is_dataclass(hints[field.name]):
            yield from _parameters(hints[field.name])
        else:
            yield inspect.Parameter(
                field.name,
                inspect.Parameter.KEYWORD_ONLY,
                default=inspect.Parameter.empty if field.default is MISSING else field.default,
                annotation=hints[field.name],
            )


def _filled(options: Any, values: Mapping[str, Any]) -> Any:
    """Return the dataclass, and the dataclasses among its fields, filled with these values."""
    hints = get_type_hints(options)
    return options(
        **{
            field.name: _filled(hints[field.name], values)
            if is_dataclass(hints[field.name])
            else values[field.name]
            for field in fields(options)
        }
    )
