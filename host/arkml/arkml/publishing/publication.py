"""Publication of a guest and its policy as a folder that any static web host can serve."""

from __future__ import annotations

import base64
import hashlib
import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from arkml.base.files import read_file
from arkml.base.output_files import path_of
from arkml.base.short_reprs import cut_repr, short_repr
from arkml.errors import UsageError
from arkml.host import Host, Source, read_source
from arkml.limits import Limits, real_number, require_seed, require_whole
from arkml.policies.policy_files import output_names, read_policy_file
from arkml.publishing.acting import (
    Acting,
    ActingPolicy,
    declared_actions,
    declared_widths,
    noted,
    widths_of,
)
from arkml.publishing.card import Card, card_files
from arkml.publishing.folder import MARK, require_own, write_folder
from arkml.publishing.guest_plan import GuestPlan, plan_of
from arkml.publishing.page import PAGE, page_files
from arkml.publishing.picture import picture_of
from arkml.publishing.rehearsal import Cast, rehearsed, scored
from arkml.publishing.training_facts import Facts, training_facts
from arkml.publishing.web_runtime import MODEL, RUNTIME_FILES, runtime_files
from arkml.replays.documents import document_of, shown_behaviors
from arkml.replays.page import page_of as replay_page
from arkml.runtime.compiled_module import CompiledModule, to_binary
from arkml.runtime.module.description import describe
from arkml.runtime.module.imports import may_be_of_a_game
from arkml.runtime.module.parsing import parse
from arkml.runtime.wasi.linking import WasiGrant
from arkml.sessions.branches import DeclaredBranches
from arkml.sessions.declarations import SpecLike
from arkml.training.evaluations import policies_of_others, require_declared
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
    others: Mapping[str, str | os.PathLike[str] | bytes] | None = None,
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
        others: Policies of the agents of other behaviors that the guest declares, by the names of
            these, such as `{"prey": "prey.onnx"}`.
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
    beside = policies_of_others(others, behavior)
    if beside and policy is None:
        raise UsageError("others (--other) has policies beside another one: name it as `policy`")
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
        _read_policy(policy, limits),
        output_names(outputs),
        behavior,
        {name: _read_policy(each, limits) for name, each in beside.items()},
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
    require_declared(compiled, cast.others)
    has_runtime = bool(run_by)
    actor = ActingPolicy(cast, cast.policy, cast.outputs, choices, has_runtime=has_runtime)
    own = [each for name, each in widths.items() if name not in cast.others]
    if widths and not own:
        raise UsageError("others (--other) has a policy for each behavior: leave one to `policy`")
    if own:  # a policy that does not fit is refused before anything is played
        acting = actor.of_one(own)
    acting_others = []
    for kind, other in cast.others.items():
        if kind not in widths:
            raise UsageError(
                f"others (--other) has {kind!r}, and {compiled.name} does not declare how many"
                " numbers its agents observe: say so in its custom section arkml.spec"
            )
        one = ActingPolicy(cast, other, (), choices, has_runtime=has_runtime)
        acting_others.append(one.of_one([widths[kind]]))
    if code is None:
        may_train = starts_trainings(compiled.info)
        shown, trains = rehearsed(cast, trains=plan.trains, may_train=may_train)
        declared = shown.behaviors
        acting = actor.of_one(widths_of(one) for one in declared if one.name not in cast.others)
    elif own:
        shown, trains = None, plan.trains
        counts = [
            (one, len(acting.branches) if two is None else two) for one, two in widths.values()
        ]
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
    files = [
        _PolicyFiles(acting, behavior, policy, cast.policy),
        *(
            _PolicyFiles(each, name, beside[name], cast.others[name], number)
            for number, (name, each) in enumerate(zip(cast.others, acting_others, strict=True), 1)
        ),
    ]
    first = behavior or next((one.name for one in declared if one.name not in cast.others), stem)
    card = Card(
        title or (named or [stem])[0],
        license,
        trained,
        [one.facts(compiled.digest) for one in files],
        [first, *cast.others] if cast.others else (),
        unrated,
    )
    loaded = {f"{stem}.wasm": plan.wasm, **{one.kernel: one.acting.kernel for one in files}}
    models = {one.model: one.acting.model for one in files if one.acting.model is not None}
    site = {
        "plan": {**plan.document, "trains": trains},
        "guest": noted(f"{stem}.wasm", plan.wasm),
        "policies": [one.document for one in files],
        "behaviors": [one.as_json() for one in declared],
        "declared": declared_actions(compiled),
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
        **({**models, **run_by} if models else {PACKED: _packed(loaded)}),
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


class _PolicyFiles(NamedTuple):
    """
    A policy of a published guest, with its files in the folder.

    Attributes:
        acting: How it acts.
        behavior: The behavior whose agents it plays, None for that of the first run.
        source: The file that the user named, or its bytes.
        data: The bytes of that file.
        number: 0 for the policy itself, from 1 on for those of other behaviors.

    """

    acting: Acting
    behavior: str | None
    source: str | os.PathLike[str] | bytes
    data: bytes
    number: int = 0

    @property
    def kernel(self) -> str:
        """The name of the file with the compiled policy."""
        return f"policy-{self.number}.wasm" if self.number else POLICY

    @property
    def model(self) -> str:
        """The name of the file with the model that a runtime runs, if one does."""
        return f"policy-{self.number}.onnx" if self.number else MODEL

    @property
    def document(self) -> dict[str, Any]:
        """What a page must know of the policy, as JSON values."""
        unnamed = "policy" if self.behavior is None else self.behavior
        return {
            **noted(self.kernel, self.acting.kernel),
            "title": unnamed if isinstance(self.source, bytes) else Path(self.source).stem,
            "behavior": self.behavior,
            "branches": self.acting.branches,
            "runtime": self.acting.runtime(self.model),
        }

    def facts(self, guest: str) -> Facts:
        """Return what is known of the training of the policy, which plays the guest."""
        if isinstance(self.source, bytes):
            return []
        return training_facts(Path(self.source), self.data, guest)


def _read_policy(policy: str | os.PathLike[str] | bytes, limits: Limits) -> bytes:
    return policy if isinstance(policy, bytes) else read_policy_file(policy, limits)


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
