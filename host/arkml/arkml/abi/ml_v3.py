"""Table of `ark-ml-v3`: metrics with long names, and pushes that carry them."""

from __future__ import annotations

from arkml.abi.codes import EpisodeState
from arkml.abi.ml_v1 import (
    ADDRESS,
    FUTURE,
    HIVE,
    HIVE_SESSION,
    INFERENCE,
    POLL_VEC,
    SESSION,
    TAKE,
    TRAINING,
)
from arkml.abi.schema import (
    F32,
    U32,
    U64,
    Api,
    Field,
    FixedStr,
    Function,
    Lane,
    OutSlice,
    Param,
    Slice,
    Str,
    Struct,
)

METRIC_V3 = Struct(
    "MetricV3",
    "A named number.",
    (Field("name", FixedStr(64)), Field("value", F32)),
)

_STEP = (
    Param("id", U64),
    Param("episode_state", EpisodeState),
    Param("reward", F32),
    Param("features", Slice(F32)),
)
_METADATA = Param("metadata", Slice(METRIC_V3))

ML_V3 = Api(
    module="ark-ml-v3",
    prefix="ml",
    doc="Metrics with long names, and pushes that carry them.",
    id=0xAED6_0109_4F07_3C82,
    structs=(METRIC_V3,),
    functions=(
        Function(
            "start_training",
            "Start an experiment of the given duration, from a checkpoint unless `checkpoint` is "
            "empty, and join it. The future holds a TrainingHandle.",
            (
                *ADDRESS,
                Param("game_name", Str()),
                Param("experiment_name", Str()),
                Param("num_features", U32),
                Param("num_actions", U32),
                Param("num_remote_workers", U32),
                Param("config", Str()),
                Param("checkpoint", Str()),
                Param("training_duration_in_seconds", U64),
            ),
            returns=FUTURE,
            errors=HIVE,
        ),
        Function(
            "push_training_observation",
            "Queue one observation and its metrics for the next submit. `actions` is empty except "
            "for rows that will be submitted as augmented or demonstration observations.",
            (Param("context", TRAINING), *_STEP, Param("actions", Slice(F32)), _METADATA),
            lane=Lane.PUSH,
            errors=HIVE_SESSION,
        ),
        Function(
            "push_inference_observation",
            "Queue one observation and its metrics for the next submit.",
            (Param("context", INFERENCE), *_STEP, _METADATA),
            lane=Lane.PUSH,
            errors=SESSION,
        ),
        Function(
            "download_metrics",
            "Ask for the experiment's metrics. The future holds MetricV3 items.",
            (Param("context", TRAINING),),
            returns=FUTURE,
            errors=HIVE_SESSION,
        ),
        Function(
            "poll_future_vec_metric",
            "Check whether a future of metrics is ready, and get their number.",
            (Param("handle", FUTURE),),
            returns=POLL_VEC,
            errors=SESSION,
        ),
        Function(
            "take_future_vec_metric",
            "Take the metrics out of a ready future and drop the handle.",
            (Param("handle", FUTURE), Param("data", OutSlice(METRIC_V3))),
            errors=TAKE,
        ),
    ),
)
