"""A guest and its policy as a folder that any static host serves."""

from __future__ import annotations

import base64
import hashlib
import json
import os
import tempfile
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from msgspec import to_builtins

from arkml.base.short_reprs import cut_repr, short_repr
from arkml.errors import InvalidArguments, LinkError, ModelRejected, NotFound, UsageError
from arkml.hive.protocol.replay_messages import ReplayDocument, ShownBehavior
from arkml.host import Host, Source, read_source
from arkml.limits import Limits, real_number, require_seed, require_whole
from arkml.page_scripts.bundle import bundled_script
from arkml.policies.kernel import render
from arkml.policies.policy_files import output_names, read_policy_file
from arkml.policies.signature import Wanted
from arkml.publishing.card import Card, card_files
from arkml.publishing.folder import MARK, require_own, write_folder
from arkml.publishing.guest_plan import GuestPlan, plan_of
from arkml.publishing.page import SCRIPT, page_of
from arkml.replays.documents import document_of
from arkml.runtime.compiled_module import CompiledModule
from arkml.runtime.wasi.linking import WasiGrant
from arkml.sessions.branches import DeclaredBranches
from arkml.training.evaluation import evaluate
from arkml.training.results import EvaluationResult

POLICY = "policy.wasm"
PACKED = "files.js"
"""The guest and the policy as text, for pages that are opened from a disk."""

FRAMES = 600
"""Frames that are played to learn what the guest observes, and for the picture."""

EPISODES = 20
"""Episodes of the evaluation."""

_DIGEST_BYTES = 32
_MOST_FPS = 1_000


@dataclass(frozen=True, slots=True)
class PublishedSite:
    """
    A folder that was published.

    Attributes:
        folder: The folder.
        files: Sizes of its files in bytes, by name.
        digest: SHA-256 of the guest's module.
        features: Number of features that the policy takes.
        actions: Number of actions that it gives.
        scores: The evaluation, None for a guest that starts no training or ends no episode.
        trains: Whether the policy answers the trainings that the guest starts, since the guest acts
            in no other way; else they are Unavailable in the page.
        is_changed: Whether the module in the folder is not the guest's own, but the form in which
            hosts run it, because a page could not.

    """

    __repr__ = short_repr

    folder: Path
    files: Mapping[str, int]
    digest: str
    features: int
    actions: int
    scores: EvaluationResult | None
    trains: bool
    is_changed: bool


def publish(
    module: Source,
    policy: str | os.PathLike[str] | bytes,
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
    limits: Limits | None = None,
) -> PublishedSite:
    """
    Write a folder in which a browser plays a guest with a policy, without a server.

    People watch it, take an agent over and hand it back. The guest and the policy do there what
    they do here, for the same seed. The folder also has a card, `README.md`, with an evaluation.

    Args:
        module: The path or the bytes of a guest with frames, an applet.
        policy: The path or the bytes of an ONNX or Cervo file.
        folder: The folder, which is new, empty, or was published before.
        outputs: The names of the outputs of the policy that hold its actions, as for `Host`.
        behavior: Name of the run whose agents the policy plays, for a guest that starts several.
        configure: Whole numbers for the export `configure`, such as (16, 7).
        seed: Seed of the guest, its clock and random numbers, and of the policy's noise.
        deterministic: True leaves out the noise of the policy.
        fps: Frames of the guest in a second.
        title: Heading of the page, by default the name of the module.
        license: Identifier of a license for the card, such as "MIT".
        trained: A sentence for the card on how the policy was trained.
        episodes: Number of episodes of the evaluation; 0 makes none.
        limits: Limits of the guest; None takes the defaults of `Limits`.

    Returns:
        What was written.

    Raises:
        ModuleError: The module cannot be loaded, or has no frame.
        ModelRejected: The policy has operators that cannot be compiled, which the message names.
        InvalidArguments: The policy does not fit the guest.
        UsageError: An argument has a wrong value, or the folder has other things in it.
        GuestError: The guest failed.

    Example:
        arkml.publish("walker.wasm", "training/walker/walker.onnx", "site", license="MIT")

    """
    made = _Maker(module, policy, Path(folder), limits or Limits(), output_names(outputs), behavior)
    real = real_number(fps)
    if real is None or not 0 < real <= _MOST_FPS:
        raise UsageError(f"fps is {cut_repr(fps)}: a number of frames a second up to {_MOST_FPS}")
    return made.publish(
        _numbers(configure),
        require_seed(seed),
        real,
        0 if episodes == 0 else require_whole("episodes", episodes),
        Card(title or "", license, trained),
        deterministic=deterministic,
    )


class _Maker:
    """Publishes one guest with one policy."""

    def __init__(
        self,
        module: Source,
        policy: str | os.PathLike[str] | bytes,
        folder: Path,
        limits: Limits,
        outputs: tuple[str, ...],
        behavior: str | None,
    ) -> None:
        require_own(folder)
        self._folder, self._limits = folder, limits
        self._outputs, self._behavior = outputs, behavior
        self._data, self._name = read_source(module)
        self._policy = policy if isinstance(policy, bytes) else read_policy_file(policy, limits)
        self._policy_title = "policy" if isinstance(policy, bytes) else Path(policy).stem

    def publish(
        self,
        numbers: Sequence[int],
        seed: int,
        fps: float,
        episodes: int,
        card: Card,
        *,
        deterministic: bool,
    ) -> PublishedSite:
        grant = WasiGrant(stdout=_drop, stderr=_drop)
        with Host(limits=self._limits, wasi=grant) as host:
            compiled = host.compile(self._data, name=self._name)
            plan = plan_of(compiled, fps)
        shown = self._played(plan, numbers, seed, deterministic=deterministic)
        declared = DeclaredBranches(compiled.info.spec)
        kernel, notes, branches = self._kernel(shown.behaviors, declared, deterministic)
        scores = self._scores(seed, episodes, deterministic=deterministic) if episodes else None
        stem = Path(self._name).stem or "guest"
        card = card._replace(title=card.title or stem)
        guest_file = f"{stem}.wasm"
        loaded = {guest_file: plan.wasm, POLICY: kernel}
        site = {
            "plan": plan.document,
            "guest": _file(guest_file, plan.wasm),
            "policy": {**_file(POLICY, kernel), "title": self._policy_title},
            "behaviors": [to_builtins(one) for one in shown.behaviors],
            "behavior": self._behavior,
            "branches": branches,
            "seed": str(seed),
            "deterministic": deterministic,
            "calls": [["configure", [str(number) for number in numbers]]] if numbers else [],
            "imports": None,
        }
        contents = {
            "index.html": page_of(site, card.title),
            SCRIPT: bundled_script("published_page.js").encode(),
            **loaded,
            PACKED: _packed(loaded),
            **card_files(card, compiled, shown, scores, seed, deterministic=deterministic),
        }
        contents[MARK] = _mark(compiled, contents)
        write_folder(self._folder, contents)
        return PublishedSite(
            self._folder,
            {name: len(data) for name, data in contents.items()},
            compiled.digest,
            notes["features"],
            notes["actions"],
            scores,
            plan.trains,
            plan.is_changed,
        )

    def _played(
        self, plan: GuestPlan, numbers: Sequence[int], seed: int, *, deterministic: bool
    ) -> ReplayDocument:
        """Return the frames of a play in this process. Raises InvalidArguments if none acted."""
        with tempfile.TemporaryDirectory() as scratch:
            trace = Path(scratch, "play.trace")
            refusals = self._play(plan, trace, numbers, seed, deterministic=deterministic)
            shown = document_of(trace.read_bytes(), self._data)
        if not any(submit.rows for frame in shown.frames for submit in frame.submits):
            reason = f": {refusals[0]}" if refusals else ""
            raise InvalidArguments(
                f"the agents of {self._name} did not act in {FRAMES} frames{reason}; see by `arkml"
                " run --policy` what the guest does with this policy"
            )
        return shown

    def _play(
        self,
        plan: GuestPlan,
        trace: Path,
        numbers: Sequence[int],
        seed: int,
        *,
        deterministic: bool,
    ) -> list[str]:
        """Play and record frames; return sentences on calls that were refused."""
        if plan.trains:
            with suppress(NotFound):  # no episode has ended: the frames are recorded all the same
                self._evaluated(seed, 1, deterministic=deterministic, frames=FRAMES, trace=trace)
            return []
        grant = WasiGrant(stdout=_drop, stderr=_drop)
        with Host(
            policy=self._policy,
            outputs=self._outputs,
            seed=seed,
            deterministic=deterministic,
            limits=self._limits,
            wasi=grant,
            trace=trace,
        ) as host:
            guest = host.load(self._data, name=self._name)
            guest.initialize()
            if numbers:
                guest.call("configure", *numbers)
            for _ in range(FRAMES):
                guest.update()
            return list(guest.statistics.refusals)

    def _kernel(
        self, behaviors: Sequence[ShownBehavior], declared: DeclaredBranches, deterministic: bool
    ) -> tuple[bytes, dict[str, Any], list[int]]:
        """Return the policy as a module, what it says of itself, and the branches of its agents."""
        faults: list[str] = []
        for features, actions in dict.fromkeys(map(_widths, behaviors)):
            branches = declared.of_rows(features, actions, None)
            parts = declared.parts_of(features, actions)
            wanted = Wanted(
                features, actions, branches, self._outputs, deterministic=deterministic, parts=parts
            )
            try:
                kernel = render(self._policy, wanted, limits=self._limits)
            except ModelRejected:
                raise
            except InvalidArguments as error:
                faults.append(str(error))
                continue
            return kernel, {"features": features, "actions": actions}, list(branches)
        raise InvalidArguments(f"the policy does not fit {self._name}: {'; '.join(faults)}")

    def _scores(self, seed: int, episodes: int, *, deterministic: bool) -> EvaluationResult | None:
        with suppress(NotFound, LinkError):  # no training, no end of an episode, or WASI
            return self._evaluated(seed, episodes, deterministic=deterministic)
        return None

    def _evaluated(
        self,
        seed: int,
        episodes: int,
        *,
        deterministic: bool,
        frames: int | None = None,
        trace: Path | None = None,
    ) -> EvaluationResult:
        return evaluate(
            self._data,
            self._policy,
            outputs=self._outputs,
            behavior=self._behavior,
            episodes=episodes,
            frames=frames,
            deterministic=deterministic,
            seed=seed,
            limits=self._limits,
            trace=trace,
        )


def _widths(behavior: ShownBehavior) -> tuple[int, int]:
    """Return the numbers of features and actions of a behavior."""
    sizes = [_product(part.shape) for part in behavior.observations]
    return sum(sizes), len(behavior.low) + len(behavior.branches)


def _product(shape: Sequence[int]) -> int:
    product = 1
    for side in shape:
        product *= side
    return product


def _numbers(configure: Sequence[int] | None) -> tuple[int, ...]:
    if configure is None:
        return ()
    if isinstance(configure, str) or not all(isinstance(one, int) for one in configure):
        raise UsageError(f"configure is {cut_repr(configure)}: it takes whole numbers, as (16, 7)")
    return tuple(configure)


def _file(name: str, data: bytes) -> dict[str, str]:
    """Return what a page knows of a file: its name, and the SHAKE128 of its bytes."""
    return {"name": name, "digest": hashlib.shake_128(data).hexdigest(_DIGEST_BYTES)}


def _packed(files: Mapping[str, bytes]) -> bytes:
    texts = {name: base64.b64encode(data).decode() for name, data in files.items()}
    return f"globalThis.arkmlFiles = {json.dumps(texts)};\n".encode()


def _mark(module: CompiledModule, contents: Mapping[str, bytes]) -> bytes:
    """Return the file that says what was published, with the SHA-256 of each other file."""
    hashes = {name: hashlib.sha256(data).hexdigest() for name, data in sorted(contents.items())}
    return json.dumps({"version": 1, "guest": module.digest, "files": hashes}, indent=1).encode()


def _drop(data: bytes) -> None:
    """Drop the output of a guest: to publish it says nothing."""
    del data
