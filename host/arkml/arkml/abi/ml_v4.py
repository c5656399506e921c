"""Table of `ark-ml-v4`: training with hyperparameters that the guest chooses."""

from __future__ import annotations

from arkml.abi.ml_v1 import ADDRESS, FUTURE, HIVE, POLL_SIMPLE, SESSION, TAKE
from arkml.abi.ml_v2 import RUN
from arkml.abi.schema import F32, U32, U64, Api, Field, Function, Param, Ref, Str, Struct, Text

PROTOCOL_CONFIG = Struct(
    "ProtocolConfig",
    "Hyperparameters of the learner: soft actor-critic with n-step returns.",
    (
        Field("feature_count", U32, "Number of features of an observation."),
        Field("action_count", U32, "Number of actions for an observation."),
        Field("hidden", U32, "Width of the hidden layers; default 1024."),
        Field("alpha", F32, "Entropy temperature; default 0.01."),
        Field("use_terminal_masking", U32, "1 if the value of a Terminal state is 0; default 1."),
        Field("learning_rate_init", F32, "Learning rate at the start; default 1e-2."),
        Field("learning_rate_end", F32, "Learning rate at the end; default 1e-4."),
        Field("learning_rate_steps", U32, "Steps from start to end; default 300,000."),
        Field("batch_size", U32, "Transitions of an optimizer step; default 4,000."),
        Field("memory_min_size", U32, "Transitions before learning starts; default 5,000."),
        Field("memory_max_size", U32, "Transitions kept; default 1,000,000."),
        Field("gamma", F32, "Discount of a step; default 0.97."),
        Field("rollout_length", U32, "Steps of a return; default 5."),
    ),
)

ML_V4 = Api(
    module="ark-ml-v4",
    prefix="ml",
    doc="Training with hyperparameters that the guest chooses, and configurations as text.",
    id=0xAED6_0109_4F07_3C83,
    structs=(PROTOCOL_CONFIG,),
    functions=(
        Function(
            "start_training",
            "Start an experiment with the hyperparameters of `protocol`, and join it. The future "
            "holds a TrainingHandle.",
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
            "Ask a hive for the configuration of one of its experiments. The future holds text.",
            (*ADDRESS, RUN),
            returns=FUTURE,
            errors=HIVE,
        ),
        Function(
            "poll_future_string",
            "Check whether a future of text is ready.",
            (Param("handle", FUTURE),),
            returns=POLL_SIMPLE,
            errors=SESSION,
        ),
        Function(
            "take_future_string",
            "Take the text out of a ready future and drop the handle.",
            (Param("handle", FUTURE),),
            returns=Text(),
            errors=TAKE,
            consumes=True,
        ),
    ),
)
