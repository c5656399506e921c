"""The result types of futures in the ML API, and their encoding in guest memory."""

from __future__ import annotations

import dataclasses
import sys
from collections.abc import Sequence

import numpy as np

from arkml.abi import layout
from arkml.abi.ml_v1 import EXPERIMENT_INFO
from arkml.abi.ml_v2 import ARK_EXPERIMENT_CONFIG
from arkml.abi.schema import Struct
from arkml.sessions.futures import ResultType
from arkml.sessions.guest_run import ExperimentInfo, ExperimentShape, Metric
from arkml.sessions.session_table import TrainingStart

_ITEM_BYTES = 512


def _bytes_of_items(items: Sequence[ExperimentInfo] | Sequence[Metric]) -> int:
    """Return the bytes of items, by estimate: their names may be long."""
    return sum(_ITEM_BYTES + sys.getsizeof(item.name) for item in items)


BOOL: ResultType[bool] = ResultType("bool")
BYTES: ResultType[bytes] = ResultType("byte vector", counted=True)
TEXT: ResultType[str] = ResultType("string")
TRAINING: ResultType[TrainingStart] = ResultType(
    "training session", discard=TrainingStart.give_up, has_effect=True
)
SHAPE: ResultType[ExperimentShape] = ResultType("experiment shape")
EXPERIMENTS: ResultType[Sequence[ExperimentInfo]] = ResultType(
    "experiment vector", counted=True, size=_bytes_of_items
)
METRICS_V1: ResultType[Sequence[Metric]] = ResultType(
    "metric vector of v1", counted=True, size=_bytes_of_items
)
METRICS_V3: ResultType[Sequence[Metric]] = ResultType(
    "metric vector of v3", counted=True, size=_bytes_of_items
)


def metric_bytes(struct: Struct, metrics: Sequence[Metric]) -> bytes:
    """
    Encode metrics in one of two layouts. A value too large for an f32, such as 1e39, is infinite.
    """
    with np.errstate(over="ignore"):
        return b"".join(
            layout.pack(struct, {"name": metric.name, "value": float(np.float32(metric.value))})
            for metric in metrics
        )


def experiment_bytes(experiments: Sequence[ExperimentInfo]) -> bytes:
    return b"".join(
        layout.pack(EXPERIMENT_INFO, dataclasses.asdict(experiment)) for experiment in experiments
    )


def shape_bytes(shape: ExperimentShape) -> bytes:
    return layout.pack(ARK_EXPERIMENT_CONFIG, dataclasses.asdict(shape))
