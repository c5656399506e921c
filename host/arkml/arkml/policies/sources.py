"""The kinds of policies that an embedder may name: files, bytes, objects, functions, or none."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TypeAlias

from arkml.base.output_files import path_of
from arkml.base.short_reprs import cut_repr
from arkml.errors import UsageError
from arkml.limits import Limits
from arkml.policies.choices import Given
from arkml.policies.given import PolicyFunction, checked_policy
from arkml.policies.policy import Policy
from arkml.policies.policy_files import PolicyFile, output_names, read_policy_file

Named: TypeAlias = (
    str | os.PathLike[str] | bytes | bytearray | memoryview | Policy | PolicyFunction | None
)
"""The policy of an embedder, as it names it."""

Override: TypeAlias = Given | None
"""A policy of the embedder for all sessions; None lets guests use their own snapshots."""


@dataclass(frozen=True, slots=True)
class PolicySource:
    """
    A policy that an embedder named, whose file was not read yet.

    Attributes:
        name: The policy's name for messages.
        path: The file, None for a policy that is not in a file.
        outputs: Names of the file's outputs that hold the actions; empty for the default.

    """

    name: str
    path: Path | None
    outputs: tuple[str, ...]
    _given: Override

    def read(self, limits: Limits) -> Override:
        """Return the policy, read from its file if necessary. Raises as `read_policy_file`."""
        if self.path is None:
            return self._given
        return PolicyFile(read_policy_file(self.path, limits), self.outputs, self.path)


def policy_source(policy: Named, outputs: str | Sequence[str] = ()) -> PolicySource:
    """
    Return the policy that an embedder named, checked but not yet read from its file.

    Args:
        policy: A path, the bytes of an ONNX file, a policy object, or None for no policy.
        outputs: Names of the ONNX file's outputs that hold the actions; empty for the default.

    Raises:
        UsageError: `policy` is not a policy, or `outputs` are given without a file.

    """
    names = output_names(outputs)
    if isinstance(policy, str | os.PathLike):
        path = path_of(policy, "policy")
        return PolicySource(str(path), path, names, None)
    if isinstance(policy, bytes | bytearray | memoryview):
        return PolicySource("of bytes", None, names, PolicyFile(bytes(policy), names))
    if names:
        raise UsageError(f"outputs is {cut_repr(names)}: it is about a policy that is a file")
    given = None if policy is None else checked_policy(policy)
    name = "None" if given is None else cut_repr(policy)
    return PolicySource(name, None, (), given)
