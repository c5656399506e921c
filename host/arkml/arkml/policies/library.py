"""The library of policies and networks that one guest, or one fleet, has loaded."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Collection, Sequence
from contextlib import AbstractContextManager
from functools import partial
from threading import Lock, RLock
from typing import assert_never
from weakref import WeakValueDictionary

from arkml.abi.codes import SnapshotFormat
from arkml.base.native_imports import import_onnx
from arkml.errors import InvalidArguments, ModelRejected, SnapshotTooLarge, Unavailable
from arkml.limits import Limits
from arkml.policies import ort
from arkml.policies.cervo import AssetKind, is_cervo, unpack
from arkml.policies.choice_masks import ChoiceMasks, MaskedPolicy
from arkml.policies.choices import PolicyChoices
from arkml.policies.demands import BranchesOf, Demands, PartsOf, Snapshot
from arkml.policies.given import FunctionPolicy, ObjectPolicy, PolicyFunction
from arkml.policies.model_cache import ModelCache, ModelFile
from arkml.policies.network import Network
from arkml.policies.onnx import OnnxPolicy
from arkml.policies.policy import Policy
from arkml.policies.policy_files import PolicyFile
from arkml.policies.ports import Layout, Parts, Port
from arkml.policies.roles import find_named_roles, find_roles
from arkml.policies.shared_run import Helpers
from arkml.policies.signature import Signature, Wanted, find_signature
from arkml.policies.sources import Override
from arkml.policies.training import TrainingPolicy
from arkml.policies.workspace import PolicyWorkspace

_LIMITS = Limits()

_Key = tuple[bytes, bool, int | None, int | None, tuple[int, ...], Parts]


def no_parts(num_features: int, num_actions: int | None) -> Parts:
    """Return an empty tuple, for rows without declared parts."""
    del num_features, num_actions
    return ()


def no_branches(num_features: int, num_actions: int | None, choices: int | None) -> tuple[int, ...]:
    """Return an empty tuple, for actions without branches."""
    del num_features, num_actions, choices
    return ()


class PolicyLibrary:
    """
    Makes policies and networks from model files, which guests call snapshots.

    `override`, a file or a policy of the embedder, replaces every snapshot that is loaded;
    `choices`, policies for particular sessions of the guest `guest_name`, come first. One thread at
    a time uses the policies and networks; another thread may load. `helpers` are the threads that
    help with a large batch. `lock` guards the `demands` of open sessions.
    """

    _choices: PolicyChoices | None = None

    def __init__(
        self,
        models: ModelCache,
        *,
        seed: int = 0,
        deterministic: bool = False,
        override: Override = None,
        limits: Limits = _LIMITS,
        helpers: Helpers | None = None,
        choices: PolicyChoices | None = None,
        guest_name: str = "",
        workspace: PolicyWorkspace | None = None,
        lock: AbstractContextManager[object] | None = None,
        note_acting: Callable[[], None] | None = None,
    ) -> None:
        self._models = models
        self.seed = seed
        self._deterministic = deterministic
        self._override = override if isinstance(override, PolicyFile) else None
        self._given = None if isinstance(override, PolicyFile) else override
        self._limits = limits
        self._choices = choices
        self._guest_name = guest_name
        self._chosen: dict[int, PolicyLibrary] = {}  # by the id of a choice
        self._note_acting = note_acting
        self._workspace = workspace or PolicyWorkspace(helpers=helpers)
        self.demands = Demands(lock or RLock())
        """The demands of the sessions and brains that are open."""
        self._lock = Lock()
        self._signed: dict[Wanted, tuple[Layout, Signature]] = {}  # of the runs of a library
        # A policy is dropped with its last session; the cache may keep its model for longer.
        self._policies: WeakValueDictionary[_Key, Policy] = WeakValueDictionary()

    def load(
        self,
        snapshot: bytes,
        snapshot_format: SnapshotFormat,
        num_features: int | None,
        num_actions: int | None,
        branches_of: BranchesOf = no_branches,
        parts_of: PartsOf = no_parts,
    ) -> Policy:
        """
        Return the policy of a model file; the same object for equal arguments while it is in use.

        For `num_features` and `num_actions`, None stands for the number that the model has. A
        function of the embedder must return `num_actions` actions, a policy object has its own
        numbers. The policy of a session with branches is a MaskedPolicy. Raises ModelRejected,
        SnapshotTooLarge, InvalidArguments, or Unavailable if a run of the snapshot took too long
        before.
        """
        shape = num_features, num_actions
        policy = self._load(
            snapshot, snapshot_format, *shape, branches_of, parts_of, is_of_guest=True
        )
        if self._note_acting is not None:
            self._note_acting()
        return policy

    def of_session(
        self,
        behaviors: Sequence[str],
        num_features: int | None,
        num_actions: int | None,
        declared: Collection[str] = (),
    ) -> PolicyLibrary:
        """
        Return the library for a session: this one, or that of a policy chosen by the embedder.

        The arguments are those of `PolicyChoices.choose`. Raises InvalidArguments if several
        policies may be meant.
        """
        if self._choices is None:
            return self
        shape = num_features, num_actions
        chosen = self._choices.choose(behaviors, self._guest_name, *shape, declared)
        if chosen is None:
            return self
        with self._lock:
            library = self._chosen.get(id(chosen))
            if library is None:
                note = partial(self._choices.note_acting, chosen)
                library = self._chosen[id(chosen)] = self.with_override(chosen, note)
        return library

    def _load(
        self,
        snapshot: bytes,
        snapshot_format: SnapshotFormat,
        num_features: int | None,
        num_actions: int | None,
        branches_of: BranchesOf = no_branches,
        parts_of: PartsOf = no_parts,
        *,
        is_of_guest: bool,
    ) -> Policy:
        if isinstance(self._given, ObjectPolicy):
            self._given.require(num_features, num_actions)
            widths = self._given.num_features, self._given.num_actions
            return self._given_policy(self._given, *widths, branches_of(*widths, None))
        if self._given is not None and num_features is not None and num_actions is not None:
            widths = num_features, num_actions
            return self._given_policy(self._given, *widths, branches_of(*widths, None))
        digest = self._digest(snapshot)
        brought = digest if is_of_guest and self._override is None else None
        if brought is not None:
            self._workspace.require_runnable(brought)
        file = self._file(snapshot, snapshot_format, digest)
        features, choices = _widths(file, num_features)
        branches = branches_of(features, num_actions, choices)
        parts = parts_of(features, num_actions)
        key = (digest, brought is not None, num_features, num_actions, branches, parts)
        with self._lock:
            policy = self._policies.get(key)
        if policy is None:
            masks = ChoiceMasks(branches, self._workspace) if branches else None
            wanted = self._wanted(num_features, num_actions, branches, parts)
            acting = self._policy(file, wanted, digest, masks, brought)
            made = (
                acting
                if masks is None
                else MaskedPolicy(acting, masks, is_sure=acting.takes_highest)
            )
            with self._lock:
                policy = self._policies.setdefault(key, made)
        if self._given is not None:  # the guest leaves the numbers to its model
            widths = policy.num_features, policy.num_actions
            return self._given_policy(self._given, *widths, branches)
        return policy

    def load_override(self, policy: TrainingPolicy) -> Policy:
        """Return the embedder's policy, in place of the run's `policy`. Raises as `load`."""
        if self._override is not None and policy.masks is not None:
            acting: Policy = self.load_file(self._override, policy)
        else:
            acting = self._load(
                b"",
                SnapshotFormat.ONNX,
                policy.num_features,
                policy.num_actions,
                parts_of=lambda *_: policy.parts,
                is_of_guest=False,
            )
        if self._note_acting is not None:
            self._note_acting()
        return acting

    def load_file(self, file: PolicyFile, policy: TrainingPolicy) -> Policy:
        """
        Return the policy of an embedder's file, which acts with the masks of the run's `policy`.

        Raises as `load`.
        """
        digest = hashlib.sha256(file.data).digest()
        opened = self._opened(file.data, _format(file.data), digest)
        shape = policy.num_features, policy.num_actions, policy.branches
        wanted = self._wanted(*shape, policy.parts, outputs=file.outputs)
        return self._policy(opened, wanted, digest, policy.masks)

    @property
    def idle_choices(self) -> list[str | tuple[int, int]]:
        """The keys of policies for particular sessions that no session has opened with."""
        return [] if self._choices is None else self._choices.idle

    @property
    def takes_snapshots(self) -> bool:
        """True if models of guests are used, False if the embedder's policy replaces them."""
        return self._override is None and self._given is None

    def with_override(
        self, override: Override, note_acting: Callable[[], None] | None = None
    ) -> PolicyLibrary:
        """
        Return a library with another policy of the embedder, for the thread that uses this one.

        Both share a workspace, so that agents can move from policies of this library to the new
        ones. `note_acting` is called whenever the new one has loaded a policy.
        """
        return PolicyLibrary(
            self._models,
            seed=self.seed,
            deterministic=self._deterministic,
            override=override,
            limits=self._limits,
            workspace=self._workspace,
            note_acting=note_acting,
        )

    def become(self, successor: PolicyLibrary) -> None:
        """From now on load what `successor` would load, including the policies that it has made."""
        with self._lock:
            self._override, self._given = successor._override, successor._given
            self._policies = successor._policies
        self._workspace.renew()

    def keep(self, snapshot: bytes, digest: bytes) -> Snapshot:
        """
        Return the snapshot of a guest, whose bytes are stored once for all guests of the host.
        """
        return self._models.keep(snapshot, digest)

    def prepare(self) -> None:
        """Import the modules that models need, once in a process, so that no guest is charged."""
        if self._given is None:
            import_onnx()  # vetting reads models by it
            ort.load()

    def limit_runs(self, seconds: float) -> None:
        """Limit the next runs of policies to `seconds` of wall time each."""
        self._workspace.run_seconds = seconds

    @property
    def workspace(self) -> PolicyWorkspace:
        """The arrays and limits shared by all policies of the library."""
        return self._workspace

    def load_version(self, data: bytes, policy: TrainingPolicy) -> OnnxPolicy:
        """
        Return a policy that runs one version, an ONNX file, of the run's `policy`.

        Agents keep the recurrent states that they had with the previous version. Raises
        ModelRejected, SnapshotTooLarge or InvalidArguments.
        """
        if len(data) > self._limits.snapshot_bytes:
            raise SnapshotTooLarge(
                f"a policy of {len(data)} bytes is larger than {self._limits.snapshot_bytes}"
            )
        file = self._models.version(data)
        wanted = Wanted(
            policy.num_features,
            policy.num_actions,
            policy.branches,
            deterministic=policy.deterministic,
            raw=True,
        )
        signature = self._signature_of_version(file, wanted)
        policy.agents.widen(sum(source.width for source, _ in signature.roles.recurrent))
        return OnnxPolicy(
            file.load(signature.outputs),
            signature,
            seed=policy.seed,
            deterministic=policy.deterministic,
            pink=policy.pink,
            workspace=self._workspace,
            agents=policy.agents,
            masks=policy.masks,
        )

    def _signature_of_version(self, file: ModelFile, wanted: Wanted) -> Signature:
        """
        Return the signature of a version, equal to the signature of an earlier one with its layout.
        """
        known = self._signed.get(wanted)
        if known is None or known[0] is not file.layout:
            known = self._signed[wanted] = file.layout, _signature(file, wanted)
        return known[1]

    def load_network(
        self, snapshot: bytes, snapshot_format: SnapshotFormat, *, key: int = 0
    ) -> Network:
        """
        Return a new network of a model file, with agents of its own.

        Networks with different `key` draw different noise. Raises like `load`, and Unavailable if
        the host has a policy object or function, which lacks named inputs and outputs.
        """
        if self._given is not None:
            raise Unavailable(
                "the policy of the host is an object or a function, which cannot answer brains of"
                " ark-ml-inference-v0: give the host a model"
            )
        digest = self._digest(snapshot)
        file = self._file(snapshot, snapshot_format, digest)
        if self._note_acting is not None:
            self._note_acting()
        return Network(
            file.load(None),
            find_named_roles(file.layout),
            key=key,
            seed=self.seed,
            deterministic=self._deterministic,
            workspace=self._workspace,
            snapshot=digest if self._override is None else None,
        )

    def _given_policy(
        self,
        given: ObjectPolicy | PolicyFunction,
        num_features: int,
        num_actions: int,
        branches: tuple[int, ...],
    ) -> Policy:
        """
        Return a policy for sessions of these widths made of the embedder's object or function.
        """
        if isinstance(given, ObjectPolicy) and not branches:
            return given
        key = (b"", False, num_features, num_actions, branches, ())
        with self._lock:
            policy = self._policies.get(key)
            if policy is None:
                policy = (
                    given
                    if isinstance(given, ObjectPolicy)
                    else FunctionPolicy(given, num_features, num_actions)
                )
                if branches:
                    policy = MaskedPolicy(policy, ChoiceMasks(branches, self._workspace))
                self._policies[key] = policy
            return policy

    def _policy(
        self,
        file: ModelFile,
        wanted: Wanted,
        digest: bytes,
        masks: ChoiceMasks | None = None,
        snapshot: bytes | None = None,
    ) -> OnnxPolicy:
        try:
            signature = _signature(file, wanted)
        except InvalidArguments as error:
            if self._override is None:
                raise
            path = self._override.path
            named = "" if path is None else f" ({path.name})"
            text = f"the policy that overrides the guest's{named}: {error}"
            raise InvalidArguments(text) from error
        self._models.log_once(digest, signature.sentence)
        return OnnxPolicy(
            file.load(signature.outputs),
            signature,
            seed=self.seed,
            deterministic=self._deterministic,
            workspace=self._workspace,
            masks=masks,
            snapshot=snapshot,
        )

    def _wanted(
        self,
        num_features: int | None,
        num_actions: int | None,
        branches: tuple[int, ...],
        parts: Parts,
        outputs: tuple[str, ...] = (),
    ) -> Wanted:
        if self._override is not None:
            outputs = self._override.outputs
        return Wanted(
            num_features,
            num_actions,
            branches,
            outputs,
            deterministic=self._deterministic,
            parts=parts,
        )

    def _digest(self, snapshot: bytes) -> bytes:
        data = snapshot if self._override is None else self._override.data
        return hashlib.sha256(data).digest()

    def _file(self, snapshot: bytes, snapshot_format: SnapshotFormat, digest: bytes) -> ModelFile:
        if self._override is not None:
            snapshot = self._override.data
            snapshot_format = _format(snapshot)
        return self._opened(snapshot, snapshot_format, digest)

    def _opened(self, snapshot: bytes, snapshot_format: SnapshotFormat, digest: bytes) -> ModelFile:
        if len(snapshot) > self._limits.snapshot_bytes:
            raise SnapshotTooLarge(
                f"a snapshot of {len(snapshot)} bytes is larger than {self._limits.snapshot_bytes}"
            )
        kind, payload = _unpacked(snapshot, snapshot_format)
        match kind:
            case AssetKind.ONNX:
                return self._models.onnx(payload, digest if payload is snapshot else None)
            case AssetKind.NNEF:
                return self._models.nnef(payload)
            case _:
                assert_never(kind)


def _format(data: bytes) -> SnapshotFormat:
    return SnapshotFormat.CERVO if is_cervo(data) else SnapshotFormat.ONNX


def _signature(file: ModelFile, wanted: Wanted) -> Signature:
    return find_signature(find_roles(file.layout, wanted.num_features, wanted.parts), wanted)


def _widths(file: ModelFile, num_features: int | None) -> tuple[int, int | None]:
    """Return the features and the masked choices of a model, the latter None without masks."""
    roles = find_roles(file.layout, num_features)
    features = _width(roles.observations) if num_features is None else num_features
    return features, _width(roles.masks) if roles.masks else None


def _width(ports: Sequence[Port]) -> int:
    return sum(port.width for port in ports)


def _unpacked(snapshot: bytes, snapshot_format: SnapshotFormat) -> tuple[AssetKind, bytes]:
    match snapshot_format:
        case SnapshotFormat.TENSORFLOW:
            raise InvalidArguments("Tensorflow snapshots are no longer supported")
        case SnapshotFormat.ONNX:
            if not is_cervo(snapshot):
                return AssetKind.ONNX, snapshot
            return unpack(snapshot)
        case SnapshotFormat.CERVO:
            # Bare ONNX bytes would work, but guests in use rely on the refusal.
            if not is_cervo(snapshot):
                raise ModelRejected(
                    f"a Cervo snapshot starts with CRVO, this one with {snapshot[:4]!r};"
                    " declare a bare ONNX file as ONNX"
                )
            return unpack(snapshot)
        case _:
            assert_never(snapshot_format)
