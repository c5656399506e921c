"""`arkml publish`: writes a folder that plays a guest in any browser, without a server."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from arkml.cli import options
from arkml.cli.exits import GOOD, print_json
from arkml.cli.launch import read_policy
from arkml.cli.user_files import read_module
from arkml.cli.values import read_configuration, read_limits, read_others, whole_number

if TYPE_CHECKING:
    from arkml.publishing.publication import PublishedSite

_EPILOG = options.epilog(
    "arkml publish game.wasm --policy walk.onnx -o site/ --license MIT",
    "arkml publish game.wasm --policy walk.onnx -o site/ --imports my.js",
    "arkml publish game.wasm --policy odd.onnx -o site/ --runtime node_modules/onnxruntime-web",
    "arkml publish hunt.wasm --policy hunter.onnx --other prey=prey.onnx -o site/",
    "arkml publish game.wasm --replay episode.trace -o site/",
    notes="""
DIR is new, empty, or was published before. Any static host serves it, and a browser opens its
`index.html` from a disk, too. `README.md` is its card, for people and model hubs. The exit code is
1 if the guest failed, and 2 if the policy does not fit the guest or cannot be compiled.
""",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class PublishOptions:
    """The options of `arkml publish`."""

    guest: options.GuestFile
    folder: Annotated[
        Path,
        typer.Option(
            "-o", "--output", metavar="DIR", help="The folder to write.", show_default=False
        ),
    ]
    policy: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="The ONNX or Cervo file that plays.", show_default=False),
    ] = None
    policy_output: options.PolicyOutputs = None
    behavior: options.Behavior = None
    other: options.OtherPolicies = None
    configure_numbers: options.ConfigureNumbers = None
    replay: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE", help="A trace of the guest, to scroll through.", show_default=False
        ),
    ] = None
    imports: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="A JavaScript module with the functions of a game that the guest imports.",
            show_default=False,
        ),
    ] = None
    runtime: Annotated[
        Path | None,
        typer.Option(
            metavar="DIR",
            help="The npm package onnxruntime-web (14 MB), for operators that are not compiled.",
            show_default=False,
        ),
    ] = None
    declaration: options.Declaration = None
    seed: options.Seed = 0
    deterministic: options.Deterministic = False
    fps: Annotated[float, typer.Option(metavar="N", help="Frames of the guest in a second.")] = 60.0
    title: Annotated[
        str | None, typer.Option(metavar="TEXT", help="Heading of the page.", show_default=False)
    ] = None
    license: Annotated[
        str,
        typer.Option(metavar="ID", help="License, for the card, as MIT.", show_default=False),
    ] = ""
    trained: Annotated[
        str,
        typer.Option(
            metavar="TEXT",
            help="How the policy was trained, for the card, in place of what its run says.",
            show_default=False,
        ),
    ] = ""
    episodes: Annotated[
        int,
        typer.Option(
            metavar="N",
            parser=whole_number("--episodes", 0),
            help="Episodes of the evaluation, for the card; 0 for none.",
        ),
    ] = 20
    limit: options.LimitValues = None
    output: options.OutputOptions


def register(app: typer.Typer) -> None:
    """Add the command `arkml publish` to the application."""
    options.add_command(app, "publish", PublishOptions, publish_guest, epilog=_EPILOG)


def publish_guest(options: PublishOptions) -> int:
    """Write a folder that plays a guest with its policy in any browser, without a server."""
    from arkml.publishing.publication import publish

    options.output.start_logs("warning")
    limits, outputs = read_limits(options.limit or ()), tuple(options.policy_output or ())
    read_module(options.guest)
    if options.policy is not None:
        read_policy(options.policy, limits, outputs)
    others = read_others(options.other or ())
    for path in others.values():
        read_policy(path, limits)
    numbers = read_configuration(None, options.configure_numbers)
    site = publish(
        options.guest,
        options.policy,
        options.folder,
        outputs=outputs,
        behavior=options.behavior,
        others=others,
        configure=None if numbers is None else [_number(one, options.seed) for one in numbers],
        seed=options.seed,
        deterministic=options.deterministic,
        fps=options.fps,
        title=options.title,
        license=options.license,
        trained=options.trained,
        episodes=options.episodes,
        imports=options.imports,
        replay=options.replay,
        runtime=options.runtime,
        spec=options.declaration,
        limits=limits,
    )
    if options.policy is not None and not options.license:
        sys.stderr.write("the card names no license: give one with --license, as MIT\n")
    document = _document(site)
    if options.output.as_json:
        print_json(document)
    else:
        _show(document)
    return GOOD


def _number(given: int | str, seed: int) -> int:
    """Return a number of --configure-numbers, of which `{seed}` stands for the seed."""
    return given if isinstance(given, int) else seed


def _document(site: PublishedSite) -> dict[str, Any]:
    """Return the result as the object of `--json`."""
    scores = site.scores
    return {
        "folder": str(site.folder),
        "files": dict(site.files),
        "bytes": sum(site.files.values()),
        "sha256": site.digest,
        "mean_return": None if scores is None else scores.mean_return,
        "episodes": 0 if scores is None else len(scores.returns),
        "trains": site.trains,
        "changed": site.is_changed,
        "runtime": site.runtime_bytes,
    }


def _show(document: dict[str, Any]) -> None:
    from arkml.cli.tables import facts, grid, show
    from arkml.cli.units import size

    rows = [("folder", document["folder"]), ("guest", f"SHA-256 {document['sha256']}")]
    if document["episodes"]:
        mean = f"{document['mean_return']:.2f}, {document['episodes']} episodes"
        rows.append(("mean return", mean))
    if document["trains"]:
        rows.append(("trainings", "answered by the policy: the guest acts in no other way"))
    if document["runtime"]:
        rows.append(("policy", f"run by onnxruntime-web, {size(document['runtime'])} more to load"))
    if document["changed"]:
        rows.append(("module", "as a host runs it: a page cannot start the guest's own"))
    show("Published", facts(rows))
    files = [(name, size(count)) for name, count in document["files"].items()]
    show("Files", grid(("file", "size"), files))
