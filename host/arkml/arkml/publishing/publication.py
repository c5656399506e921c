"""Publication of a guest and its policy as a folder that any static web host can serve."""

from __future__ import annotations

import base64
import hashlib
import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from arkml.base.files import read_file
from arkml.base.output_files import path_of
from arkml.base.short_reprs import cut_repr, short_repr
from arkml.errors import UsageError
from arkml.host import Host, Source, read_source
from arkml.limits import Limits, real_number, require_seed, require_whole
from arkml.policies.policy_files import output_names, read_policy_file
from arkml.publishing.acting import ActingPolicy, declared_widths, noted, widths_of
from arkml.publishing.card import Card, card_files
from arkml.publishing.folder import MARK, require_own, write_folder
from arkml.publishing.guest_plan import GuestPlan, plan_of
from arkml.publishing.page import PAGE, page_files
from arkml.publishing.picture import picture_of
from arkml.publishing.rehearsal import Cast, rehearsed, scored
from arkml.publishing.training_facts import training_facts
from arkml.publishing.web_runtime import MODEL, RUNTIME_FILES, runtime_files
from arkml.replays.documents import document_of, shown_behaviors
from arkml.replays.page import page_of as replay_page
from arkml.runtime.compiled_module import CompiledModule, to_binary
from arkml.runtime.module.description import describe
from arkml.runtime.module.imports import may_be_of_a_game
from arkml.runtime.module.parsing import parse
from arkml.runtime.wasi.linking import WasiGrant
from arkml.sessions.branches import DeclaredBranches
from arkml.sessions.declarations import SpecLike, behaviors_in
from arkml.training.results import EvaluationResult
from arkml.training.tasks import starts_trainings

POLICY = "policy.wasm"
IMPORTS = "imports.js"
PACKED = "files.js"
"""The guest and the policy as text, for pages that are opened from a disk."""

EPISODES = 20
"""Episodes of the evaluation."""

_MOST_FPS = 1_000


@dataclass(frozen=True, slots=True)
class PublishedSite:
    """
    A folder that was published.

    Attributes:
        folder: The folder.
        files: Sizes of the files in bytes, by name.
        digest: SHA-256 of the guest's module.
        scores: The evaluation, None for a guest that starts no training, ends no episode or is
            configured.
        trains: Whether the policy answers the training sessions of the guest, because it acts in no
            other way; else trainings are Unavailable in the page.
        runtime_bytes: The bytes of onnxruntime-web in the folder, 0 if the policy is compiled.
        is_changed: Whether the module in the folder is not the guest's own, but the form in which
            hosts run it, because a page could not.

    """

    __repr__ = short_repr

    folder: Path
    files: Mapping[str, int]
    digest: str
    scores: EvaluationResult | None
    trains: bool
    runtime_bytes: int
    is_changed: bool


def publish(
    module: Source,
    policy: str | os.PathLike[str] | bytes | None,
    folder: str | os.PathLike[str],
    *,
    outputs: str | Sequence[str] = (),
    behavior: str | None = None,
    configure: Sequence[int] | None = None,
    seed: int = 0,
    deterministic: bool = False,
    fps: float = 60,
    title: str | None = None,
    license: str = "",
    trained: str = "",
    episodes: int = EPISODES,
    imports: str | os.PathLike[str] | None = None,
    replay: str | os.PathLike[str] | None = None,
    runtime: str | os.PathLike[str] | None = None,
    spec: SpecLike = None,
    limits: Limits | None = None,
) -> PublishedSite:
    """
    Write a folder in which a browser plays a guest with a policy, without a server.

    People can watch it, take over an agent and hand it back. For the same seed, guest and policy
    behave in the browser as in a host. The folder also has a card, `README.md`, with an evaluation.
    A trace becomes a page to scroll through: `replay.html`, or `index.html` without a policy.

    Args:
        module: The path or the bytes of a guest with frames, an applet.
        policy: The path or the bytes of an ONNX or Cervo file, None for a replay alone.
        folder: The folder, which must be new, empty, or published before.
        outputs: The names of the outputs of the policy that hold its actions, as for `Host`.
        behavior: Name of the run whose agents the policy plays, for a guest that starts several.
        configure: Whole numbers for the export `configure`, such as (16, 7).
        seed: Seed of the guest, its clock and random numbers, and of the policy's noise.
        deterministic: True leaves out the noise of the policy.
        fps: Frames of the guest in a second.
        title: Heading of the page, by default the title that the module declares, or its name.
        license: Identifier of a license for the card, such as "MIT".
        trained: A sentence for the card on how the policy was trained; by default made from the
            run's files beside the policy, as `arkml train` leaves them.
        episodes: Number of episodes of the evaluation; 0 makes none.
        imports: The path of a JavaScript module with the functions of a game that the guest
            imports. Its default export takes the guest's memory, with `read(pointer, size)` and
            `write(pointer, bytes)`, and returns them, as `(memory) => ({env: {raycast}})`. The
            guest is then not run in this process, and its section `arkml.spec` must say what it
            observes.
        replay: The path of a trace of the guest, as `Host(trace=...)` writes it.
        runtime: The folder of the npm package onnxruntime-web, which runs a policy with operators
            that cannot be compiled. It adds 14 MB, and needs a web server, because pages opened
            from a disk cannot load it. Other policies are always compiled.
        spec: The meaning of the rows that people see, as in `GuestEnv`; None takes the module's
            declaration, which gives the branches and masks of the policy in any case.
        limits: Limits of the guest; None takes the defaults of `Limits`.

    Returns:
        A description of the published folder.

    Raises:
        ModuleError: The module cannot be loaded, or has no frame.
        ModelRejected: The policy has operators that cannot be compiled, which the message names,
            and there is no `runtime`.
        InvalidArguments: The policy does not fit the guest.
        UsageError: An argument has a wrong value, or the folder contains other files.
        GuestError: The guest failed.

    Example:
        arkml.publish("walker.wasm", "training/walker/walker.onnx", "site", license="MIT")

    """
    real = real_number(fps)
    if real is None or not 0 < real <= _MOST_FPS:
        raise UsageError(f"fps is {cut_repr(fps)}: a number of frames a second up to {_MOST_FPS}")
    if policy is None and replay is None:
        raise UsageError("there is nothing to publish: name a policy, a replay, or both")
    numbers = _numbers(configure)
    episodes = 0 if episodes == 0 else require_whole("episodes", episodes)
    target, limits = path_of(folder, "folder"), limits or Limits()
    require_own(target)
    data, name = read_source(module)
    contents: dict[str, bytes] = {}
    if replay is not None:
        place = PAGE if policy is None else "replay.html"
        contents[place] = replay_page(document_of(replay, data, spec=spec))
    if policy is None:
        return _written(target, contents, hashlib.sha256(data).hexdigest())
    cast = Cast(
        data,
        name,
        policy if isinstance(policy, bytes) else read_policy_file(policy, limits),
        output_names(outputs),
        behavior,
        numbers,
        require_seed(seed),
        deterministic,
        limits,
        spec,
    )
    code = None if imports is None else _contents(path_of(imports, "imports"))
    run_by = {} if runtime is None else runtime_files(path_of(runtime, "runtime"))
    compiled, plan = _compiled(cast, real, has_game=code is not None)
    widths, choices = declared_widths(compiled), DeclaredBranches(compiled.info.spec)
    actor = ActingPolicy(cast, choices, has_runtime=bool(run_by))
    if widths:  # a policy that does not fit is refused before anything is played
        acting = actor.of_one(widths)
    if code is None:
        may_train = starts_trainings(compiled.info)
        shown, trains = rehearsed(cast, trains=plan.trains, may_train=may_train)
        declared = shown.behaviors
        acting = actor.of_one(map(widths_of, declared))
    elif widths:
        shown, trains = None, plan.trains
        counts = [(one, len(acting.branches) if two is None else two) for one, two in widths]
        declared = shown_behaviors(compiled.info.spec, counts)
    else:
        raise UsageError(
            f"{compiled.name} imports functions of a game, and declares no observations: nothing of"
            " it runs here, so its custom section arkml.spec has to say what it observes"
        )
    # An evaluation calls no `configure`: its scores would be of another game.
    scores: EvaluationResult | None = None
    unrated = "none was asked for"
    if shown is None:
        unrated = "the functions of the game are those of a page"
    elif numbers:
        unrated = "the guest is configured, and an evaluation configures none"
    elif episodes:
        found = scored(cast, episodes)
        scores, unrated = (None, found) if isinstance(found, str) else (found, "")
    stem = Path(name).stem or "guest"
    games = [one.game for one in declared if one.game is not None]
    named = [game.title for game in games if game.title]
    known = (
        []
        if isinstance(policy, bytes)
        else training_facts(Path(policy), cast.policy, compiled.digest)
    )
    card = Card(title or (named or [stem])[0], license, trained, known, unrated)
    loaded = {f"{stem}.wasm": plan.wasm, POLICY: acting.kernel}
    site = {
        "plan": {**plan.document, "trains": trains},
        "guest": noted(f"{stem}.wasm", plan.wasm),
        "policy": {
            **noted(POLICY, acting.kernel),
            "title": "policy" if isinstance(policy, bytes) else Path(policy).stem,
        },
        "behaviors": [one.as_json() for one in declared],
        "behavior": behavior,
        "runtime": acting.runtime,
        "branches": acting.branches,
        "others": [
            [name, list(one.actions.discrete)]
            for name, one in behaviors_in(compiled.info.spec).items()
        ],
        "seed": str(cast.seed),
        "deterministic": deterministic,
        "calls": [["configure", [str(number) for number in numbers]]] if numbers else [],
        "imports": None if code is None else IMPORTS,
        "evaluated": ""
        if scores is None or any(game.score.observed for game in games)
        else f"{scores.mean_return:.4g} ± {scores.standard_deviation:.2g} of {len(scores.returns)}",
    }
    picture = None if shown is None else picture_of(shown)
    contents |= {
        **page_files(site, card.title),
        **loaded,
        **({PACKED: _packed(loaded)} if acting.model is None else {MODEL: acting.model, **run_by}),
        **({} if code is None else {IMPORTS: code}),
        **card_files(
            card, compiled, declared, picture, scores, cast.seed, deterministic=deterministic
        ),
    }
    return _written(
        target,
        contents,
        compiled.digest,
        scores=scores,
        trains=trains,
        is_changed=plan.is_changed,
    )


def _written(
    folder: Path,
    contents: dict[str, bytes],
    digest: str,
    *,
    scores: EvaluationResult | None = None,
    trains: bool = False,
    is_changed: bool = False,
) -> PublishedSite:
    """Write the folder, with the file that lists what was published."""
    hashes = {name: hashlib.sha256(data).hexdigest() for name, data in sorted(contents.items())}
    mark = {"version": 1, "guest": digest, "files": hashes}
    contents[MARK] = json.dumps(mark, indent=1).encode()
    write_folder(folder, contents)
    sizes = {name: len(data) for name, data in contents.items()}
    runtime_bytes = sum(sizes.get(name, 0) for name in RUNTIME_FILES)
    return PublishedSite(folder, sizes, digest, scores, trains, runtime_bytes, is_changed)


def _compiled(cast: Cast, fps: float, *, has_game: bool) -> tuple[CompiledModule, GuestPlan]:
    """Return the module and its plan; with `has_game` a page has the imports that no table has."""
    every = describe(parse(to_binary(cast.data, cast.name))).imports if has_game else ()
    wanted = [one for one in every if may_be_of_a_game(one)]
    game = {(one.module, one.name): _of_a_page for one in wanted}
    with Host(limits=cast.limits, wasi=WasiGrant(), imports=game or None) as host:
        compiled = host.compile(cast.data, name=cast.name)
        return compiled, plan_of(compiled, fps)


def _of_a_page(*numbers: float) -> float:
    """Stand for a function of a game, which a page alone has: no guest is run with it."""
    raise UsageError(f"a function of the page is called here, with {numbers}")


def _numbers(configure: Sequence[int] | None) -> tuple[int, ...]:
    if configure is None:
        return ()
    if isinstance(configure, str) or not all(isinstance(one, int) for one in configure):
        raise UsageError(f"configure is {cut_repr(configure)}: it takes whole numbers, as (16, 7)")
    return tuple(configure)


def _packed(files: Mapping[str, bytes]) -> bytes:
    texts = {name: base64.b64encode(data).decode() for name, data in files.items()}
    return f"globalThis.arkmlFiles = {json.dumps(texts)};\n".encode()


def _contents(path: Path) -> bytes:
    """Return the bytes of a file that the user names. Raises UsageError."""
    try:
        return read_file(path)
    except OSError as error:
        raise UsageError(f"{path} cannot be read: {error.strerror}") from None
