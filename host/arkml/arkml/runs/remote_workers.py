"""
Remote workers that a guest asks for: the permission, and the module that the hive gets for them.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from arkml.errors import InvalidArguments, Unavailable
from arkml.runtime.module.description import ModuleKind

if TYPE_CHECKING:
    from arkml.hive.client import HiveClient
    from arkml.hive.protocol.runs import RunRequest
    from arkml.runtime.compiled_module import CompiledModule
    from arkml.sessions.run_request import TrainingRequest

_LINK = re.compile("[0-9a-f]{64}")


class RemoteWorkers:
    """
    Uploads a guest's `module` for workers that a hive starts for its runs.

    `is_allowed` says whether the host permits the upload. With `is_worker` the guest itself is in a
    rollout worker, and its requests for workers are ignored.
    """

    def __init__(self, module: CompiledModule, *, is_allowed: bool, is_worker: bool) -> None:
        self._module = module
        self._is_allowed = is_allowed
        self._is_worker = is_worker

    def fields(self, request: TrainingRequest) -> dict[str, Any]:
        """
        Return the fields of a RunRequest for the workers that a guest asks for, {} for none.

        Raises Unavailable if the host does not allow workers.
        """
        if not request.workers or self._is_worker:
            return {}
        self._require_allowed(f"{request.workers} remote workers were asked for")
        linked = request.worker_module
        takes_arguments = self._module.info.kind is ModuleKind.CMDLET
        return {
            "workers": request.workers,
            "module": linked or self._module.binary_digest,
            "module_name": linked[:12] or self._module.name,
            "arguments": request.input.decode("utf-8", "replace") if takes_arguments else None,
        }

    def linked(self, link: str) -> str:
        """
        Return the hash in a guest's link to an uploaded module, in lower case.

        Raises Unavailable if the host does not allow workers, and InvalidArguments for a link that
        is not a SHA-256, such as "npc.wasm".
        """
        self._require_allowed(f"the guest names {link[:80]!r} as the module of remote workers")
        if not _LINK.fullmatch(link.lower()):
            raise InvalidArguments(
                f"{link[:80]!r} does not name a module: a link is the SHA-256 of an uploaded"
                " module, 64 hexadecimal digits"
            )
        return link.lower()

    def upload(self, client: HiveClient, request: RunRequest) -> None:
        """
        Send the guest's module to the hive if a run's workers need it. Blocks; raises HiveError.
        """
        if request.workers and request.module == self._module.binary_digest:
            client.upload_module(self._module.binary_digest, self._module.binary).result()

    def _require_allowed(self, wish: str) -> None:
        if not (self._is_allowed or self._is_worker):
            raise Unavailable(
                f"{wish}, and this host uploads no modules: HiveGrant(upload_modules=True) allows"
                " it"
            )
