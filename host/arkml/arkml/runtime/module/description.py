"""A module's kind, entry points, imports, exports and requirements, read from its bytes."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

from arkml.abi.catalog import APIS
from arkml.base.short_reprs import short_repr
from arkml.base.terminal import listed
from arkml.base.texts import did_you_mean
from arkml.errors import ModuleRejected
from arkml.runtime.module.binary import SPEC, Binary, ExternKind
from arkml.runtime.module.startup import COMMAND, Startup, find_wrappers, startup_of
from arkml.runtime.module.wasm_types import ExternalType, FunctionType, MemoryType

NOTHING = FunctionType()
BYTES_TO_STATUS = FunctionType(("i32", "i32"), ("i32",))

_NO_STARTUP = Startup()
_VERSION_NAME = "ARK_PACKED_FFI_CRATE_VERSION"
_API_PREFIX = "ARK_API_"
_MAX_WORDS = 64
_ID_SIZE = 8
_U32_MASK = 0xFFFF_FFFF  # i32.const is signed, an address is not


class ModuleKind(Enum):
    """The ways in which a host can run a module, most specific first."""

    APPLET = "applet"  # one call per frame
    CMDLET = "cmdlet"  # one call with text arguments
    SERVLET = "servlet"  # one call per request
    WASI_COMMAND = "wasi-command"  # `_start`
    MODULE_RUN = "module-run"  # bytes in, bytes out, under any name
    PLAIN = "plain"  # functions of numbers


_FIXED = {
    "ark_applet_update": (ModuleKind.APPLET, NOTHING),
    "ark_cmdlet_run": (ModuleKind.CMDLET, BYTES_TO_STATUS),
    "ark_servlet_request": (ModuleKind.SERVLET, BYTES_TO_STATUS),
    COMMAND: (ModuleKind.WASI_COMMAND, NOTHING),
}
_ALLOCATOR = {
    "ark_alloc": FunctionType(("i32", "i32"), ("i32",)),
    "ark_free": FunctionType(("i32", "i32", "i32"), ()),
}
_RESERVED = "ark_"
_MISSPELLED = 0.85  # the likeness of such a name to the one that was meant
_CALLED = {
    *(name for name in _FIXED if name.startswith(_RESERVED)),
    *_ALLOCATOR,
    "ark_cmdlet_help",
    "ark_get_alloc_stats",
    "ark_initialize",
    "ark_register_panic_hook",
    "ark_state_persist",
    "ark_state_restore",
    "ark_wasi_cmdlet_help",
}
"""The reserved names that a host or the runtime of a language calls."""


@dataclass(frozen=True, slots=True)
class EntryPoint:
    """
    An exported function that a host may call.

    Attributes:
        name: Name of the export, such as "ark_applet_update".
        kind: The kind of module that exports this function.
        type: Types of the function's parameters and results.

    """

    name: str
    kind: ModuleKind
    type: FunctionType


@dataclass(frozen=True, slots=True)
class ImportInfo:
    """One import of a module; `str(type)` of a function is, for example, `(i64 i32) -> (i32)`."""

    module: str
    name: str
    type: ExternalType


@dataclass(frozen=True, slots=True)
class ExportInfo:
    """One export of a module."""

    name: str
    type: ExternalType


@dataclass(frozen=True, slots=True)
class RequiredApi:
    """
    An API that the module was built against.

    Attributes:
        name: Name of the exported global that declares the requirement.
        id: The id of the API, None if it cannot be read from the module.
        module: The import module with this id, None if this host does not know it.

    """

    name: str
    id: int | None
    module: str | None


@dataclass(frozen=True, slots=True)
class ModuleInfo:
    """
    The description of a module.

    Attributes:
        size: Bytes of the module.
        kind: The kind of the first of its `entry_points`, most specific first.
        entry_points: Exported functions that a host may call, sorted by kind.
        imports: The imports.
        exports: The exports.
        memory: Type of the module's memory, or None.
        required: APIs that the module was built against.
        crate_version: Version of the crate that the module was built with, such as "0.17.0-pre.43";
            None if unknown.

    """

    __repr__ = short_repr

    size: int
    kind: ModuleKind
    entry_points: tuple[EntryPoint, ...]
    imports: tuple[ImportInfo, ...]
    exports: tuple[ExportInfo, ...]
    memory: MemoryType | None
    required: tuple[RequiredApi, ...]
    crate_version: str | None
    takes_bytes: bool
    """True if it exports `ark_alloc` and `ark_free`, which functions that take bytes need."""
    spec: bytes | None = None
    """The declaration of its agents: the contents of the custom section `arkml.spec`."""
    startup: Startup = _NO_STARTUP
    """The functions that start an instance, once, before any other."""
    misfits: tuple[str, ...] = ()
    """
    Sentences about exports that nothing calls: of the name of an entry point and another type, or
    of a name that is nearly one which hosts call.
    """


def describe(binary: Binary) -> ModuleInfo:
    """Describe a module. Its imports need not exist on this host."""
    exports = tuple(ExportInfo(export.name, binary.type_of(export)) for export in binary.exports)
    entry_points = _entry_points(exports)
    words = _words(binary)
    return ModuleInfo(
        size=len(binary.data),
        kind=entry_points[0].kind if entry_points else ModuleKind.PLAIN,
        entry_points=entry_points,
        imports=tuple(ImportInfo(entry.module, entry.name, entry.type) for entry in binary.imports),
        exports=exports,
        memory=binary.memories[0] if binary.memories else None,
        required=tuple(
            RequiredApi(name, word, _import_module(word))
            for name, word in words.items()
            if name.startswith(_API_PREFIX)
        ),
        crate_version=_version(words.get(_VERSION_NAME)),
        takes_bytes=_takes_bytes(exports),
        spec=binary.custom(SPEC),
        startup=startup_of(binary, find_wrappers(binary)),
        misfits=_misfits(exports),
    )


def _takes_bytes(exports: tuple[ExportInfo, ...]) -> bool:
    types = {export.name: export.type for export in exports}
    return all(types.get(name) == expected for name, expected in _ALLOCATOR.items())


def _entry_points(exports: tuple[ExportInfo, ...]) -> tuple[EntryPoint, ...]:
    takes_bytes = _takes_bytes(exports)
    entry_points = [
        EntryPoint(export.name, _kind(export.name, export.type, takes_bytes), export.type)
        for export in exports
        if isinstance(export.type, FunctionType) and not _is_reserved(export.name, export.type)
    ]
    order = list(ModuleKind)
    return tuple(sorted(entry_points, key=lambda entry: order.index(entry.kind)))


def _misfits(exports: tuple[ExportInfo, ...]) -> tuple[str, ...]:
    wanted = {name: type_ for name, (_, type_) in _FIXED.items() if name != COMMAND}
    unused = _CALLED - {export.name for export in exports}
    found = []
    for name, type_ in ((export.name, export.type) for export in exports):
        if wanted.get(name, type_) != type_:
            found.append(f"{name} is {type_}, and no entry point: that is {wanted[name]}")
        is_unknown = name.startswith(_RESERVED) and name not in _CALLED
        if is_unknown and (meant := did_you_mean(name, unused, _MISSPELLED)):
            found.append(f"nothing calls the export {listed([name])}: {meant}")
    return tuple(found)


def _is_reserved(name: str, function: FunctionType) -> bool:
    """Return whether the host or the language calls the export itself, such as `_initialize`."""
    if name in _FIXED:
        return _FIXED[name][1] != function
    return name.startswith((_RESERVED, "__")) or name == "_initialize"


def _kind(name: str, function: FunctionType, takes_bytes: bool) -> ModuleKind:
    if name in _FIXED:
        return _FIXED[name][0]
    if function == BYTES_TO_STATUS and takes_bytes:
        return ModuleKind.MODULE_RUN
    return ModuleKind.PLAIN


def _words(binary: Binary) -> dict[str, int | None]:
    """Return the u64 at each address that the crate exports, or None if it is not constant."""
    addresses = [
        export
        for export in binary.exports
        if export.kind is ExternKind.GLOBAL and export.name.startswith((_VERSION_NAME, _API_PREFIX))
    ]
    if len(addresses) > _MAX_WORDS:
        raise ModuleRejected(f"the module requires {len(addresses):,} APIs, more than there are")
    words: dict[str, int | None] = {}
    for export in addresses:
        variable = binary.globals[export.index]
        address = variable.value if variable.type.value == "i32" else None
        words[export.name] = _word(binary, address)
    return words


def _word(binary: Binary, address: int | None) -> int | None:
    if address is None:
        return None
    address &= _U32_MASK
    for segment in reversed(binary.segments):  # a later segment overwrites an earlier one
        if segment.offset is None or segment.memory:
            continue
        start = address - (segment.offset & _U32_MASK)
        if start >= 0 and segment.start + start + _ID_SIZE <= segment.end:
            place = segment.start + start
            return int.from_bytes(binary.data[place : place + _ID_SIZE], "little")
    return None


def _import_module(api_id: int | None) -> str | None:
    if api_id is None:
        return None
    return next((api.module for api in APIS if api.id == api_id), None)


def _version(packed: int | None) -> str | None:
    """Unpack a version: 0x11002b is 0.17.0-pre.43, a byte for each part below the major one."""
    if packed is None:
        return None
    major, minor, patch, pre = packed >> 24, packed >> 16 & 0xFF, packed >> 8 & 0xFF, packed & 0xFF
    text = f"{major}.{minor}.{patch}"
    return f"{text}-pre.{pre}" if pre else text
