"""Table of `ark-ml-v2`: remote workers, and experiments that others started."""

from __future__ import annotations

from arkml.abi.ml_v1 import (
    ADDRESS,
    FUTURE,
    HIVE,
    HIVE_SESSION,
    POLL_SIMPLE,
    SESSION,
    TAKE,
    TRAINING,
)
from arkml.abi.schema import U32, Api, Field, Function, Out, Param, Str, Struct

ARK_EXPERIMENT_CONFIG = Struct(
    "ArkExperimentConfig",
    "The shape of an experiment's rows.",
    (
        Field("num_features", U32, "Number of features of an observation."),
        Field("num_actions", U32, "Number of actions for an observation."),
    ),
)

EXPERIMENT_CONFIG_FUTURE = Struct(
    "ExperimentConfigFuture",
    "The two futures of an experiment's configuration.",
    (
        Field("ark_config", FUTURE, "Future of an ArkExperimentConfig."),
        Field("module_config", FUTURE, "Future of the guest's own configuration, as bytes."),
    ),
)

RUN = Param("run_id", Str())
_CONTEXT = Param("context", TRAINING)
_START = (
    *ADDRESS,
    Param("game_name", Str()),
    Param("experiment_name", Str()),
    Param("num_features", U32),
    Param("num_actions", U32),
    Param("num_remote_workers", U32),
    Param("config", Str()),
)

ML_V2 = Api(
    module="ark-ml-v2",
    prefix="ml",
    doc="Remote workers, and experiments that others started.",
    id=0xAED6_0109_4F07_3C81,
    structs=(ARK_EXPERIMENT_CONFIG, EXPERIMENT_CONFIG_FUTURE),
    functions=(
        Function(
            "set_worker_module_link",
            "Set the module that remote workers run: `cid` is the SHA-256 of a module that was "
            "uploaded to the hive, in hexadecimal digits. By default they run the guest's own.",
            (Param("cid", Str()),),
            errors=HIVE,
        ),
        Function(
            "connect_to_experiment",
            "Join an experiment that is already running. The future holds a TrainingHandle.",
            (*ADDRESS, RUN),
            returns=FUTURE,
            errors=HIVE,
        ),
        Function(
            "start_training",
            "Start an experiment with remote workers and a configuration in JSON, and join it. "
            "The future holds a TrainingHandle.",
            _START,
            returns=FUTURE,
            errors=HIVE,
        ),
        Function(
            "start_training_from_checkpoint",
            "Start an experiment with remote workers from a checkpoint, and join it. The future "
            "holds a TrainingHandle.",
            (*_START, Param("checkpoint", Str())),
            returns=FUTURE,
            errors=HIVE,
        ),
        Function(
            "stop_experiment",
            "Stop the experiment for all its guests and drop the handle.",
            (_CONTEXT,),
            errors=HIVE_SESSION,
        ),
        Function(
            "experiment_config",
            "Ask for the configuration of the experiment of this session.",
            (_CONTEXT,),
            returns=EXPERIMENT_CONFIG_FUTURE,
            errors=HIVE_SESSION,
        ),
        Function(
            "experiment_config_from_registry",
            "Ask a hive for the configuration of one of its experiments.",
            (*ADDRESS, RUN),
            returns=EXPERIMENT_CONFIG_FUTURE,
            errors=HIVE,
        ),
        Function(
            "download_snapshot_from_registry",
            "Ask a hive for the policy of one of its experiments. The future holds bytes.",
            (*ADDRESS, RUN),
            returns=FUTURE,
            errors=HIVE,
        ),
        Function(
            "poll_future_ark_experiment_config",
            "Check whether a future of an experiment's shape is ready.",
            (Param("handle", FUTURE),),
            returns=POLL_SIMPLE,
            errors=SESSION,
        ),
        Function(
            "take_future_ark_experiment_config",
            "Take the experiment's shape out of a ready future and drop the handle.",
            (Param("handle", FUTURE), Param("data", Out(ARK_EXPERIMENT_CONFIG))),
            errors=TAKE,
        ),
    ),
)
