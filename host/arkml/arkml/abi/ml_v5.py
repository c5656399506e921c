"""Table of `ark-ml-v5`: experiments on chosen hardware, and answers as bytes."""

from __future__ import annotations

from arkml.abi.codes import HardwareType, SnapshotFormat
from arkml.abi.ml_v1 import ADDRESS, FUTURE, HIVE, HIVE_SESSION, INFERENCE, SESSION, TRAINING
from arkml.abi.schema import U8, U32, Api, Bytes, Function, Lane, Param, Slice, Str

MAX_ROWS = 0xFF
"""Most rows of one answer; their number is a u8."""

MAX_ACTIONS = 0xFFFF // 4
"""Most actions of one row; a guest multiplies their number by four in a u16."""

_ANSWER = (
    "The answer is bytes: u8 version 0, u8 rows, u16 actions, then for each row a u64 id, a u8 "
    "that is 1 if actions follow, and the actions as f32. More than 255 rows are refused. "
    "A submit that fails empties the queue."
)

ML_V5 = Api(
    module="ark-ml-v5",
    prefix="ml",
    doc="Experiments on chosen hardware, and answers as bytes.",
    id=0x75C9_E1A5_CD99_4B85,
    enums=(HardwareType,),
    functions=(
        Function(
            "start_training",
            "Start an experiment from the hive's own configuration, and join it. `duration` is in "
            "seconds. The future holds a TrainingHandle.",
            (
                *ADDRESS,
                Param("experiment_name", Str()),
                Param("configuration", Str()),
                Param("namespace", Str()),
                Param("module_id", Str()),
                Param("duration", U32),
                Param("worker_count", U32),
                Param("hardware_type", HardwareType),
            ),
            returns=FUTURE,
            errors=HIVE,
        ),
        Function(
            "raw_experiment_config",
            "Ask for the configuration of the experiment of this session. The future holds text.",
            (Param("context", TRAINING),),
            returns=FUTURE,
            errors=HIVE_SESSION,
        ),
        Function(
            "start_inference",
            "Load a snapshot as a policy that acts for this guest; the model gives its shape.",
            (Param("snapshot_data", Slice(U8)), Param("snapshot_format", SnapshotFormat)),
            returns=INFERENCE,
            errors=HIVE,
        ),
        Function(
            "submit_training_observations",
            f"Train on the queued observations and get an answer for each. {_ANSWER}",
            (Param("context", TRAINING),),
            returns=Bytes(),
            errors=HIVE_SESSION,
            lane=Lane.ANSWER,
        ),
        Function(
            "submit_inference_observations",
            f"Get an answer for each queued observation. {_ANSWER}",
            (Param("context", INFERENCE),),
            returns=Bytes(),
            errors=SESSION,
            lane=Lane.ANSWER,
        ),
    ),
)
