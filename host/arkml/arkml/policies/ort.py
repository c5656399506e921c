"""
onnxruntime by its C API, set up with one thread, capped memory and no output.

The package brings a shared library beside its Python module. Its functions are in one table, which
only grows from release to release, so each is known by its index:
https://onnxruntime.ai/docs/api/c/struct_ort_api.html. The package itself is not imported: its
Python module contains a second copy of the runtime, whose runs cannot begin without Python.
"""

from __future__ import annotations

import ctypes
import os
import sys
from collections.abc import Callable, Mapping, Sequence
from ctypes import byref, c_bool, c_char_p, c_int, c_int64, c_size_t, c_uint64, c_void_p
from functools import cached_property, partial
from importlib.util import find_spec
from math import prod
from pathlib import Path
from threading import Lock
from typing import Any, NamedTuple, NoReturn

import numpy as np
import numpy.typing as npt

from arkml.base.handler_errors import is_of_handler
from arkml.base.native_imports import without_telemetry
from arkml.batches import Floats
from arkml.errors import ModelRejected, UsageError
from arkml.policies.load_time import LoadTime
from arkml.policies.subnormals import call_flushed

ARENA_BYTES = 512 << 20
"""Bytes that all models of the process together may use while they run, without weights."""

_NO_FOLDER = os.devnull  # where models look for further files: no file can be there
_SHOWN = 400  # characters of an error
_SILENT = 4  # only fatal errors are logged; the others are raised
_VERSION = 22  # of the table, which has all functions below
_LIBRARIES = {"win32": "onnxruntime.dll", "darwin": "libonnxruntime.*.dylib"}
_ARENA, _DEFAULT, _SEQUENTIAL, _FLOAT = 1, 0, 0, 1  # numbers of the C API

_P = c_void_p
_FUNCTIONS: dict[str, tuple[int, tuple[Any, ...]]] = {
    "CreateEnv": (3, (c_int, c_char_p, _P)),
    "CreateSessionFromArray": (8, (_P, c_char_p, c_size_t, _P, _P)),
    "Run": (9, (_P, _P, _P, _P, c_size_t, _P, c_size_t, _P)),
    "CreateSessionOptions": (10, (_P,)),
    "SetSessionExecutionMode": (13, (_P, c_int)),
    "SetSessionLogSeverityLevel": (22, (_P, c_int)),
    "SetIntraOpNumThreads": (24, (_P, c_int)),
    "SetInterOpNumThreads": (25, (_P, c_int)),
    "SessionGetInputCount": (30, (_P, _P)),
    "SessionGetOutputCount": (31, (_P, _P)),
    "SessionGetInputTypeInfo": (33, (_P, c_size_t, _P)),
    "SessionGetInputName": (36, (_P, c_size_t, _P, _P)),
    "SessionGetOutputName": (37, (_P, c_size_t, _P, _P)),
    "CreateRunOptions": (39, (_P,)),
    "RunOptionsSetRunLogSeverityLevel": (41, (_P, c_int)),
    "RunOptionsSetTerminate": (46, (_P,)),
    "RunOptionsUnsetTerminate": (47, (_P,)),
    "CreateTensorWithDataAsOrtValue": (49, (_P, _P, c_size_t, _P, c_size_t, c_int, _P)),
    "GetTensorMutableData": (51, (_P, _P)),
    "CastTypeInfoToTensorInfo": (55, (_P, _P)),
    "GetTensorElementType": (60, (_P, _P)),
    "GetDimensionsCount": (61, (_P, _P)),
    "GetDimensions": (62, (_P, _P, c_size_t)),
    "GetTensorTypeAndShape": (65, (_P, _P)),
    "CreateCpuMemoryInfo": (69, (c_int, c_int, _P)),
    "AllocatorFree": (76, (_P, _P)),
    "GetAllocatorWithDefaultOptions": (78, (_P,)),
    "AddSessionConfigEntry": (130, (_P, c_char_p, c_char_p)),
    "RunWithBinding": (133, (_P, _P, _P)),
    "CreateIoBinding": (134, (_P, _P)),
    "BindInput": (136, (_P, c_char_p, _P)),
    "BindOutput": (137, (_P, c_char_p, _P)),
    "CreateAndRegisterAllocator": (144, (_P, _P, _P)),
    "CreateArenaCfg": (156, (c_size_t, c_int, c_int, c_int, _P)),
    "SessionOptionsSetLoadCancellationFlag": (293, (_P, c_bool)),
}
"""Functions that return a status, by their places in the table and their parameters."""
_RELEASES = {
    "Status": 93, "Session": 95, "Value": 96, "RunOptions": 97, "TypeInfo": 98,
    "TensorTypeAndShapeInfo": 99, "SessionOptions": 100, "IoBinding": 135,
}  # fmt: skip
_GET_MESSAGE = 2
_ELEMENTS: dict[int, tuple[str, Any]] = {
    1: ("float", np.float32), 2: ("uint8", np.uint8), 3: ("int8", np.int8),
    4: ("uint16", np.uint16), 5: ("int16", np.int16), 6: ("int32", np.int32),
    7: ("int64", np.int64), 9: ("bool", np.bool_), 10: ("float16", np.float16),
    11: ("double", np.float64), 12: ("uint32", np.uint32), 13: ("uint64", np.uint64),
}  # fmt: skip
"""Names and types of elements, by their numbers in the C API."""

Address = int


class OrtError(RuntimeError):
    """An error that onnxruntime returned."""


class OrtPort(NamedTuple):
    """
    An input of a loaded model.

    Attributes:
        name: Name of the input.
        type: Its type, such as "tensor(float)".
        shape: Its sizes, -1 for a free one.

    """

    name: str
    type: str
    shape: tuple[int, ...]


class _Api:
    """
    The functions of the C API by name, and the objects that all sessions of the process share.

    A function raises OrtError. Raises UsageError if the library is not there, or too old.
    """

    def __init__(self) -> None:
        without_telemetry()
        library = ctypes.CDLL(str(_library()))
        library.OrtGetApiBase.restype = c_void_p
        get_api = ctypes.CFUNCTYPE(c_void_p, ctypes.c_uint32)(_word(library.OrtGetApiBase()))
        table = get_api(_VERSION)
        if not table:
            raise UsageError(
                "onnxruntime is too old: arkml needs 1.29 or newer, pip install -U onnxruntime"
            )
        self._library = library  # which stays loaded
        self._message = ctypes.CFUNCTYPE(c_char_p, _P)(_word(table + 8 * _GET_MESSAGE))
        self.releases = {
            name: ctypes.PYFUNCTYPE(None, _P)(_word(table + 8 * place))
            for name, place in _RELEASES.items()
        }
        self.run_bound: Address = _word(table + 8 * _FUNCTIONS["RunWithBinding"][0])
        self.release_status: Address = _word(table + 8 * _RELEASES["Status"])
        self._functions = {
            name: ctypes.CFUNCTYPE(c_void_p, *parameters)(_word(table + 8 * place))
            for name, (place, parameters) in _FUNCTIONS.items()
        }
        self.run = self._functions["RunWithBinding"]
        self.allocator = self.made("GetAllocatorWithDefaultOptions")
        self.memory = self.made("CreateCpuMemoryInfo", _ARENA, _DEFAULT)
        self.environment = self.made("CreateEnv", _SILENT, b"arkml")
        arena = self.made("CreateArenaCfg", ARENA_BYTES, -1, -1, -1)
        self.call("CreateAndRegisterAllocator", self.environment, self.memory, arena)

    def call(self, name: str, *arguments: Any) -> None:
        """Call a function. Raises OrtError."""
        status = self._functions[name](*arguments)
        if status:
            self.fail(status)

    def made(self, name: str, *arguments: Any) -> Address:
        """Return the object that a function made, whose address it stores by its last argument."""
        out = c_void_p()
        self.call(name, *arguments, byref(out))
        return out.value or 0

    def fail(self, status: Address) -> NoReturn:
        """Raise the error of a status."""
        text = (self._message(status) or b"").decode("utf-8", "replace")
        self.releases["Status"](status)
        raise OrtError(text)

    def name(self, function: str, session: Address, index: int) -> str:
        """Return the name of an input or output."""
        address = self.made(function, session, index, self.allocator)
        try:
            return ctypes.string_at(address).decode("utf-8", "replace")
        finally:
            self.call("AllocatorFree", self.allocator, address)

    def shape(self, info: Address) -> tuple[int, tuple[int, ...]]:
        """Return the number of the type of elements, and the sizes: -1 for a free one."""
        kind, count = c_int(), c_size_t()
        self.call("GetTensorElementType", info, byref(kind))
        self.call("GetDimensionsCount", info, byref(count))
        sizes = (c_int64 * count.value)()
        self.call("GetDimensions", info, sizes, count)
        return kind.value, tuple(sizes)


_lock = Lock()
_loaded: _Api | None = None


def load() -> _Api:
    """Return onnxruntime, loaded and set up on the first call. Raises UsageError."""
    global _loaded
    with _lock:
        if _loaded is None:
            _loaded = _Api()
        return _loaded


class _Owned:
    """Something of onnxruntime's that is released with this object. `address` is 0 behind that."""

    _kind = ""

    def __init__(self, api: _Api, address: Address) -> None:
        self._api = api
        self._release = api.releases[self._kind]
        self.address = address

    def __del__(self, is_ending: Callable[[], bool] = sys.is_finalizing) -> None:
        address, self.address = getattr(self, "address", 0), 0
        if address and not is_ending():  # the module may have lost its names by then
            self._release(address)


class OrtRunOptions(_Owned):
    """
    Options for runs of onnxruntime, reused because a run without options makes slower ones itself.
    """

    _kind = "RunOptions"

    def __init__(self) -> None:
        api = load()
        super().__init__(api, api.made("CreateRunOptions"))
        api.call("RunOptionsSetRunLogSeverityLevel", self.address, _SILENT)
        self._terminates = False

    @property
    def terminate(self) -> bool:
        """True ends runs with these options before their next node. Any thread may set it."""
        return self._terminates

    @terminate.setter
    def terminate(self, value: bool) -> None:
        self._terminates = value
        name = "RunOptionsSetTerminate" if value else "RunOptionsUnsetTerminate"
        self._api.call(name, self.address)


class _SessionOptions(_Owned):
    _kind = "SessionOptions"

    def __init__(self, folded_bytes: int) -> None:
        api = load()
        super().__init__(api, api.made("CreateSessionOptions"))
        api.call("SetIntraOpNumThreads", self.address, 1)
        api.call("SetInterOpNumThreads", self.address, 1)
        api.call("SetSessionExecutionMode", self.address, _SEQUENTIAL)
        api.call("SetSessionLogSeverityLevel", self.address, _SILENT)
        for key, value in {
            "session.intra_op.allow_spinning": "0",
            "session.inter_op.allow_spinning": "0",
            "session.use_env_allocators": "1",
            "session.load_model_format": "ONNX",
            "session.model_external_initializers_file_folder_path": _NO_FOLDER,
            "optimization.constant_folding_max_output_size_in_bytes": str(folded_bytes),
        }.items():
            api.call("AddSessionConfigEntry", self.address, key.encode(), value.encode())

    def cancel(self) -> None:
        """End the loading of a model. Any thread may call it."""
        self._api.call("SessionOptionsSetLoadCancellationFlag", self.address, True)


class _Value(_Owned):
    """A tensor: one that a run has made, or an array, float32, which is kept alive."""

    _kind = "Value"
    array: Floats | None = None

    @classmethod
    def of(cls, api: _Api, array: Floats) -> _Value:
        """Return a tensor of the memory of an array, contiguous."""
        shape = (c_int64 * array.ndim)(*array.shape)
        address = api.made(
            "CreateTensorWithDataAsOrtValue", api.memory, array.ctypes.data, array.nbytes, shape,
            array.ndim, _FLOAT,
        )  # fmt: skip
        value = cls(api, address)
        value.array = array
        return value

    def copied(self) -> npt.NDArray[Any]:
        """Return a copy as an array. Raises OrtError for elements that are no numbers."""
        api = self._api
        info = api.made("GetTensorTypeAndShape", self.address)
        try:
            kind, shape = api.shape(info)
        finally:
            api.releases["TensorTypeAndShapeInfo"](info)
        if kind not in _ELEMENTS:
            raise OrtError(f"an output has elements of type {kind}, which are no numbers")
        dtype = np.dtype(_ELEMENTS[kind][1])
        size = dtype.itemsize * prod(shape)
        data = ctypes.string_at(api.made("GetTensorMutableData", self.address), size)
        return np.frombuffer(data, dtype).reshape(shape)


class OrtSession(_Owned):
    """
    A model loaded in onnxruntime. Any thread may run it.

    `outputs` are the names of its outputs.
    """

    _kind = "Session"

    def __init__(self, api: _Api, address: Address) -> None:
        super().__init__(api, address)
        count = c_size_t()
        api.call("SessionGetOutputCount", address, byref(count))
        names = range(count.value)
        self.outputs = [api.name("SessionGetOutputName", address, index) for index in names]

    @cached_property
    def inputs(self) -> list[OrtPort]:
        """Its inputs."""
        count = c_size_t()
        self._api.call("SessionGetInputCount", self.address, byref(count))
        return [self._input(self._api, index) for index in range(count.value)]

    def _input(self, api: _Api, index: int) -> OrtPort:
        name = api.name("SessionGetInputName", self.address, index)
        info = api.made("SessionGetInputTypeInfo", self.address, index)
        try:
            tensor = api.made("CastTypeInfoToTensorInfo", info)  # a part of `info`
            if not tensor:
                return OrtPort(name, "no tensor", ())
            kind, shape = api.shape(tensor)
        finally:
            api.releases["TypeInfo"](info)
        return OrtPort(name, f"tensor({_ELEMENTS.get(kind, (str(kind),))[0]})", shape)

    def run(
        self, names: Sequence[str], feeds: Mapping[str, Floats], options: OrtRunOptions
    ) -> list[npt.NDArray[Any]]:
        """
        Run the model, and return its outputs as new arrays.

        Args:
            names: The names of the outputs to return.
            feeds: float32, by the names of inputs.
            options: Options of this run.

        Raises:
            OrtError: The run failed, or was ended.

        """
        run = OrtRun(self, names, feeds, options)
        run()
        return run.outputs()


class OrtRun:
    """A call that runs a session as `OrtSession.run`, on the same inputs each time."""

    def __init__(
        self,
        session: OrtSession,
        names: Sequence[str],
        feeds: Mapping[str, Floats],
        options: OrtRunOptions,
    ) -> None:
        api = self._api = load()
        arrays = [np.ascontiguousarray(array, np.float32) for array in feeds.values()]
        values = [_Value.of(api, array) for array in arrays]
        self._kept = session, options, values
        self._arguments = (
            session.address, options.address, _texts(feeds), _addresses(values), len(values),
            _texts(names), len(names),
        )  # fmt: skip
        self._outputs: list[_Value] = []
        self._found = c_void_p * len(names)

    def __call__(self) -> None:
        """Run the model. Raises OrtError if that fails, or is ended."""
        found = self._found()
        self._api.call("Run", *self._arguments, found)
        self._outputs = [_Value(self._api, address or 0) for address in found]

    def outputs(self) -> list[npt.NDArray[Any]]:
        """Return the outputs of the last run, as arrays of their own. Raises OrtError."""
        return [output.copied() for output in self._outputs]


class _RunStruct(ctypes.Structure):
    """The struct arkml_bound of the native library."""

    _fields_ = (
        ("run", c_void_p),
        ("release", c_void_p),
        ("session", c_void_p),
        ("options", c_void_p),
        ("binding", c_void_p),
        ("is_flushed", c_uint64),
    )


class BoundRun(_Owned):
    """
    A function object that runs a model on fixed arrays, which it keeps alive.

    `native` is the address of a struct with which the native library makes the run without Python.

    Args:
        session: The loaded model.
        feeds: float32, contiguous, by the names of inputs.
        fetches: float32, contiguous, by the names of outputs.
        options: Options of the run.
        is_flushed: True sets subnormal numbers to zero in runs; see `call_flushed`.

    Raises:
        OrtError: An array does not fit; when called: the run failed.

    """

    _kind = "IoBinding"

    def __init__(
        self,
        session: OrtSession,
        feeds: Mapping[str, Floats],
        fetches: Mapping[str, Floats],
        options: OrtRunOptions,
        *,
        is_flushed: bool = False,
    ) -> None:
        api = load()
        super().__init__(api, api.made("CreateIoBinding", session.address))
        self._kept: list[object] = [session, options]
        for function, arrays in (("BindInput", feeds), ("BindOutput", fetches)):
            for name, array in arrays.items():
                value = _Value.of(api, array)
                self._kept.append(value)
                api.call(function, self.address, name.encode(), value.address)
        self._api_run, self._fail = api.run, api.fail
        self._arguments = session.address, options.address, self.address
        self._is_flushed = is_flushed
        self._own = _RunStruct(api.run_bound, api.release_status, *self._arguments, is_flushed)
        self.native: Address = ctypes.addressof(self._own)

    def __call__(self) -> None:
        """Run the session."""
        if self._is_flushed:
            status = call_flushed(partial(self._api_run, *self._arguments))
        else:
            status = self._api_run(*self._arguments)
        if status:
            self._fail(status)


def open_session(data: bytes, time: LoadTime, *, folded_bytes: int) -> OrtSession:
    """
    Load a vetted model in onnxruntime.

    Constant expressions are computed once if they take up to `folded_bytes` each, and larger ones
    in each run. Raises ModelRejected if onnxruntime refuses the model, or as `LoadTime.late`.
    """
    api = load()
    options = _SessionOptions(folded_bytes)
    with time.watched(options.cancel) as watch:
        try:
            made = "CreateSessionFromArray", api.environment, data, len(data), options.address
            return OrtSession(api, api.made(*made))
        except Exception as error:
            if is_of_handler(error):
                raise
            if watch.reason is not None:
                raise time.late(watch.reason, "load") from error
            raise ModelRejected(f"onnxruntime refuses the model: {reason(error)}") from error


def reason(error: Exception) -> str:
    """Return the beginning of an error's text in one line."""
    return (" ".join(str(error).split()) or type(error).__name__)[:_SHOWN]


def _library() -> Path:
    """Return the library of the installed package. Raises UsageError."""
    spec = find_spec("onnxruntime")
    folders = [] if spec is None else list(spec.submodule_search_locations or ())
    pattern = _LIBRARIES.get(sys.platform, "libonnxruntime.so.*")
    for folder in folders:
        if found := sorted(Path(folder, "capi").glob(pattern)):
            return found[0]
    raise UsageError(
        f"onnxruntime has no {pattern} in {folders or 'any folder'}: arkml runs models by its C"
        " API, which the packages of PyPI have: pip install --force-reinstall onnxruntime"
    )


def _word(address: Address) -> Address:
    return c_void_p.from_address(address).value or 0


def _texts(names: Sequence[str] | Mapping[str, object]) -> Any:
    return (c_char_p * len(names))(*map(str.encode, names))


def _addresses(values: Sequence[_Value]) -> Any:
    return (c_void_p * len(values))(*[value.address for value in values])
