"""`ark-ml-v4`, declared once: training with a protocol of one's own."""

from __future__ import annotations

from arkml.abi.ml_v1 import ADDRESS, FUTURE, HIVE, POLL_SIMPLE, SESSION, TAKE
from arkml.abi.ml_v2 import RUN
from arkml.abi.schema import F32, U32, U64, Api, Field, Function, Param, Ref, Str, Struct, Text

PROTOCOL_CONFIG = Struct(
    "ProtocolConfig",
    "How the hive learns: soft actor-critic with n-step returns.",
    (
        Field("feature_count", U32, "Features of an observation."),
        Field("action_count", U32, "Actions of an answer."),
        Field("hidden", U32, "Width of the hidden layers; 1024 unless set."),
        Field("alpha", F32, "Entropy temperature; 0.01 unless set."),
        Field("use_terminal_masking", U32, "Whether a Terminal state has no future; 1 unless set."),
        Field("learning_rate_init", F32, "At the start; 1e-2 unless set."),
        Field("learning_rate_end", F32, "At the end; 1e-4 unless set."),
        Field("learning_rate_steps", U32, "Steps from the one to the other; 300,000 unless set."),
        Field("batch_size", U32, "Transitions of an optimizer step; 4,000 unless set."),
        Field("memory_min_size", U32, "Transitions before learning starts; 5,000 unless set."),
        Field("memory_max_size", U32, "Transitions kept; 1,000,000 unless set."),
        Field("gamma", F32, "Discount of a step; 0.97 unless set."),
        Field("rollout_length", U32, "Steps of a return; 5 unless set."),
    ),
)

ML_V4 = Api(
    module="ark-ml-v4",
    prefix="ml",
    doc="Training with a protocol of one's own, and configurations as text.",
    id=0xAED6_0109_4F07_3C83,
    structs=(PROTOCOL_CONFIG,),
    functions=(
        Function(
            "start_training",
            "Start an experiment that learns as `protocol` says, and join it. The future gives a "
            "TrainingHandle.",
            (
                *ADDRESS,
                Param("game_name", Str()),
                Param("experiment_name", Str()),
                Param("num_remote_workers", U32),
                Param("config", Str()),
                Param("checkpoint", Str()),
                Param("training_duration_in_seconds", U64),
                Param("protocol", Ref(PROTOCOL_CONFIG)),
            ),
            returns=FUTURE,
            errors=HIVE,
        ),
        Function(
            "raw_experiment_config_from_registry",
            "Ask a hive for the configuration of one of its experiments. The future gives text.",
            (*ADDRESS, RUN),
            returns=FUTURE,
            errors=HIVE,
        ),
        Function(
            "poll_future_string",
            "Whether a future that gives text is ready.",
            (Param("handle", FUTURE),),
            returns=POLL_SIMPLE,
            errors=SESSION,
        ),
        Function(
            "take_future_string",
            "Take the text out of a ready future and forget the handle.",
            (Param("handle", FUTURE),),
            returns=Text(),
            errors=TAKE,
            consumes=True,
        ),
    ),
)
