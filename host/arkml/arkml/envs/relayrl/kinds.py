"""The kinds and dtypes of RelayRL environments, and their error class."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import Any, ClassVar, TypeAlias
from uuid import UUID

import numpy.typing as npt

from arkml.errors import ArkmlError

EnvironmentUuid: TypeAlias = UUID
"""The id of one environment, valid as long as it exists."""

Uuid: TypeAlias = UUID

EnvInfo: TypeAlias = list[tuple[str, str]]

Tensor: TypeAlias = npt.NDArray[Any]

Error: TypeAlias = ArkmlError
"""The base of the errors here, as `thiserror::Error` is that of the crate's."""


class EnvironmentError(ArkmlError):
    """
    An operation of an environment failed as a whole, without any effect.

    Each kind of error is a subclass, and an attribute of this class, made with a sentence:
    `EnvironmentError.EnvironmentError`, `.ObservationBuildingError` and
    `.TrainingPerformanceReturnError`. It is not an OSError, as the builtin of this name is.
    """

    EnvironmentError: ClassVar[type[_EnvironmentError]]
    ObservationBuildingError: ClassVar[type[_ObservationBuildingError]]
    TrainingPerformanceReturnError: ClassVar[type[_TrainingPerformanceReturnError]]
    prefix: ClassVar[str] = "Environment error"

    def __init__(self, text: str) -> None:
        super().__init__(text)
        self.text = text

    def __str__(self) -> str:
        return f"{self.prefix}: {self.text}"


class _EnvironmentError(EnvironmentError):
    """The environment cannot do that."""


class _ObservationBuildingError(EnvironmentError):
    """There is no observation."""

    prefix = "Observation building error"


class _TrainingPerformanceReturnError(EnvironmentError):
    """There is no return."""

    prefix = "Training performance return error"


for _kind in (_EnvironmentError, _ObservationBuildingError, _TrainingPerformanceReturnError):
    _kind.__name__ = _kind.__name__[1:]
    _kind.__qualname__ = f"EnvironmentError.{_kind.__name__}"
    setattr(EnvironmentError, _kind.__name__, _kind)


@dataclass(frozen=True, slots=True)
class EnvironmentKind:
    """`Scalar`, `Vector`, `Other(name)` or `Unknown`; compare them with `==`."""

    name: str
    other: str | None = None

    Scalar: ClassVar[EnvironmentKind]
    Vector: ClassVar[EnvironmentKind]
    Unknown: ClassVar[EnvironmentKind]

    @staticmethod
    def Other(name: str) -> EnvironmentKind:  # noqa: N802  the name in the traits
        """Return a kind with this name that the traits do not know."""
        return EnvironmentKind("Other", name)

    def __repr__(self) -> str:
        return self.name if self.other is None else f'{self.name}("{self.other}")'


EnvironmentKind.Scalar = EnvironmentKind("Scalar")
EnvironmentKind.Vector = EnvironmentKind("Vector")
EnvironmentKind.Unknown = EnvironmentKind("Unknown")


_NUMPY = {
    "f2": "F16", "f4": "F32", "f8": "F64", "i1": "I8", "i2": "I16", "i4": "I32", "i8": "I64",
    "b1": "Bool",
}  # fmt: skip


class _Named(Enum):
    def __str__(self) -> str:
        return str(self.value)


class Backend(_Named):
    """A library whose arrays serve as tensors: `NdArray` is numpy here, `Tch` is torch."""

    NdArray = "NdArray"
    Tch = "Tch"


class TensorKind(_Named):
    """The kind of numbers in a tensor: Bool, Int or Float."""

    Float = "Float"
    Int = "Int"
    Bool = "Bool"


class EnvNdArrayDType(_Named):
    """The dtype of a numpy array."""

    F16 = "F16"
    F32 = "F32"
    F64 = "F64"
    I8 = "I8"
    I16 = "I16"
    I32 = "I32"
    I64 = "I64"
    Bool = "Bool"


class EnvTchDType(_Named):
    """The dtype of a torch tensor."""

    F16 = "F16"
    Bf16 = "Bf16"
    F32 = "F32"
    F64 = "F64"
    I8 = "I8"
    I16 = "I16"
    I32 = "I32"
    I64 = "I64"
    U8 = "U8"
    Bool = "Bool"


@dataclass(frozen=True, slots=True)
class EnvDType:
    """`NdArray(EnvNdArrayDType)` or `Tch(EnvTchDType)`; shown as "NdArray(F32)"."""

    library: str
    dtype: EnvNdArrayDType | EnvTchDType

    @staticmethod
    def NdArray(dtype: EnvNdArrayDType) -> EnvDType:  # noqa: N802  the name in the traits
        """Return the dtype of a numpy array."""
        return EnvDType("NdArray", dtype)

    @staticmethod
    def Tch(dtype: EnvTchDType) -> EnvDType:  # noqa: N802  the name in the traits
        """Return the dtype of a torch tensor."""
        return EnvDType("Tch", dtype)

    @staticmethod
    def of(tensor: Tensor) -> EnvDType:
        """
        Return the dtype of a numpy array. Raises EnvironmentError for one without a name here.
        """
        name = _NUMPY.get(tensor.dtype.str[1:])
        if name is None:
            raise EnvironmentError.EnvironmentError(f"no tensor holds {tensor.dtype}")
        return EnvDType.NdArray(EnvNdArrayDType[name])

    @property
    def backend(self) -> Backend:
        """The library of tensors with this dtype."""
        return Backend(self.library)

    @property
    def tensor_kind(self) -> TensorKind:
        """The kind of numbers in tensors with this dtype: Bool, Int or Float."""
        if self.dtype.name == "Bool":
            return TensorKind.Bool
        return TensorKind.Int if self.dtype.name[0] in "IU" else TensorKind.Float

    def __str__(self) -> str:
        return f"{self.library}({self.dtype})"

    def __repr__(self) -> str:
        return str(self)
