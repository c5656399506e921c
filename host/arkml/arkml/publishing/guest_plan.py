"""The plan of a guest: all that a page must know of its module to run it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from arkml.base.short_reprs import cut_repr
from arkml.base.terminal import listed
from arkml.errors import EntryPointMissing, LinkError
from arkml.guests.guest import SEED_EXPORT, seeded_initializers
from arkml.hive.protocol.runs import MAX_NAME_BYTES
from arkml.limits import Limits
from arkml.publishing.imports_table import imports_table
from arkml.runtime.compiled_module import CompiledModule
from arkml.runtime.module.description import ModuleKind
from arkml.runtime.module.normalize import MEMORY_MODULE, MEMORY_NAME, Normalized, normalize
from arkml.runtime.module.wasm_types import MemoryType
from arkml.training.tasks import starts_trainings

_FRAME = "ark_applet_update"
_MOST_PAGES = 65_536
_OPENS, _LOADS = "ml__start_inference", "ml_inference__load_inference_async"


class GuestPlan(NamedTuple):
    """
    All that a page must know to run a guest: imports, memory, start and frame.

    Attributes:
        wasm: The module that is published.
        is_changed: Whether `wasm` is not the guest's own module, but the form in which a host runs
            it.
        trains: Whether the policy answers the training sessions of the guest, because it cannot act
            otherwise; else trainings are Unavailable, as without a hive.
        document: The plan as JSON values, for `ArkGuest` in `ark_guest.js`.

    """

    wasm: bytes
    is_changed: bool
    trains: bool
    document: Mapping[str, Any]


def plan_of(module: CompiledModule, fps: float) -> GuestPlan:
    """
    Return the plan of a module that runs `fps` frames per second, such as 60.

    Raises EntryPointMissing for a module that has no frame, and LinkError for one that imports
    anything other than functions and one memory, or that acts only by `ark-ml-inference-v0`.
    """
    if module.info.kind is not ModuleKind.APPLET:
        raise EntryPointMissing(
            f"{module.name} is of kind {module.info.kind.value} and has no frame: a page calls the"
            f" export {_FRAME} again and again, and it exports {listed(module.functions)}"
        )
    whole = normalize(module.binary, module.limits)
    is_changed = bool(whole.added) or _hides_memory(whole)
    names = {entry.name for entry in module.info.imports}
    trains = starts_trainings(module.info) and _OPENS not in names
    if not (trains or _OPENS in names) and _LOADS in names:
        raise LinkError(
            f"{module.name} acts by ark-ml-inference-v0 alone, of which a page has no runtimes: its"
            f" agents would stand still. {_OPENS} of ark-ml-v1 opens a session that a page answers"
        )
    document = {
        "imports": imports_table((one.module, one.name) for one in module.info.imports),
        "memory": _memory(module, whole, is_changed=is_changed),
        "initializers": seeded_initializers(module, _FRAME),
        "seedExport": SEED_EXPORT,
        "frame": _FRAME,
        "frameNanoseconds": round(1e9 / fps),
        "trains": trains,
        "limits": _limits(module.limits),
    }
    return GuestPlan(whole.wasm if is_changed else module.binary, is_changed, trains, document)


def _hides_memory(whole: Normalized) -> bool:
    """Return whether a module has a memory that is neither imported nor exported."""
    return whole.memory is not None and not (whole.memory.imported or whole.memory.exports)


def _memory(module: CompiledModule, whole: Normalized, *, is_changed: bool) -> dict[str, Any]:
    """Return where the memory is: made by the page and imported, or exported by the guest."""
    plan = whole.memory
    if plan is None:
        return {"exported": None, "imported": None}
    if not (is_changed or plan.imported):
        return {"exported": plan.exports[0], "imported": None}
    place = (MEMORY_MODULE, MEMORY_NAME)
    if not is_changed:
        found = [one for one in module.info.imports if isinstance(one.type, MemoryType)]
        if len(found) != 1:
            raise LinkError(f"{module.name} imports {cut_repr(len(found))} memories: one at most")
        place = (found[0].module, found[0].name)
    maximum = _MOST_PAGES if plan.maximum is None else plan.maximum
    return {"imported": place, "minimum": plan.minimum, "maximum": maximum, "exported": None}


def _limits(limits: Limits) -> dict[str, int]:
    return {
        "handles": limits.handles,
        "futures": limits.futures,
        "rows": limits.rows,
        "metadata": limits.metadata_bytes,
        "columns": limits.column_bytes,
        "text": limits.text_bytes,
        "bytes": limits.snapshot_bytes,
        "log": limits.log_bytes,
        "lines": limits.log_lines,
        "name": MAX_NAME_BYTES,
    }
