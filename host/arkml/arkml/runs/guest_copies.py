"""Copies of guests' modules that a hive keeps with runs, so that people can watch policies play."""

from __future__ import annotations

from concurrent.futures import Future
from typing import TYPE_CHECKING

from msgspec.structs import replace

from arkml.hive.protocol.watch_messages import MOST_OTHERS, GuestReport
from arkml.runtime.module.description import ModuleKind

if TYPE_CHECKING:
    from arkml.hive.client import HiveClient
    from arkml.hive.protocol.runs import RunInfo
    from arkml.runs.hive_access import HiveAccess
    from arkml.runtime.compiled_module import CompiledModule
    from arkml.sessions.run_request import TrainingRequest

_NAME = 200  # characters


class GuestCopies:
    """Sends a guest's module to the hive for each run that it starts, if the host allows that."""

    def __init__(self, module: CompiledModule, hives: HiveAccess) -> None:
        self._module = module
        self._hives = hives
        self._given: dict[tuple[HiveClient, str], GuestReport] = {}  # by the id of the run

    def keep(self, client: HiveClient, run: RunInfo, request: TrainingRequest) -> None:
        """
        Send the module to a run's hive, without waiting; a refusal is logged as a warning.

        A run in which several guests of one module take part gets the module once. Where the guest
        has started other runs on that hive, all of them are told of each other.
        """
        key = client, run.id
        if not self._hives.grant.keeps_module or key in self._given:
            return
        limit = self._hives.limit
        takes_arguments = self._module.info.kind is ModuleKind.CMDLET
        report = GuestReport(
            module=self._module.binary_digest,
            name=self._module.name[:_NAME],
            behavior=request.experiment,
            arguments=request.input.decode("utf-8", "replace") if takes_arguments else None,
            max_episode_steps=None if limit is None else limit.most,
        )

        self._given[key] = report
        together = {key: one for key, one in self._given.items() if key[0] is client}
        if len(together) > MOST_OTHERS + 1:
            together = {key: report}
        for own, one in together.items():
            others = {other.behavior: key[1] for key, other in together.items() if key != own}
            self._send(*own, replace(one, others=others))

    def _send(self, client: HiveClient, run_id: str, report: GuestReport) -> None:
        def tell(kept: Future[GuestReport]) -> None:
            if not kept.cancelled() and (error := kept.exception()) is not None:
                name = report.behavior
                self._hives.warn(f"the policies of run {name!r} cannot be watched: {error}")

        client.keep_guest(run_id, report, self._module.binary).add_done_callback(tell)
