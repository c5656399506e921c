"""Table of `ark-ml-v1`: training, inference, and the futures of both."""

from __future__ import annotations

from arkml.abi.codes import EpisodeState, ErrorCode, ExperimentStatus, SnapshotFormat
from arkml.abi.schema import (
    BOOL,
    F32,
    I64,
    U8,
    U32,
    U64,
    Api,
    Array,
    Bytes,
    Field,
    FixedStr,
    Function,
    Handle,
    Lane,
    Out,
    OutSlice,
    Pad,
    Param,
    Slice,
    Str,
    Struct,
)

TRAINING = Handle("TrainingHandle", "A training session: the guest's membership in an experiment.")
INFERENCE = Handle("InferenceHandle", "An inference session: one policy that acts for this guest.")
FUTURE = Handle("FutureHandle", "A pending result. Poll it, then take it or drop it.")

METRIC_V1 = Struct(
    "MetricV1",
    "A named number, with a short name.",
    (
        Field("name", Array(U8, 28), "UTF-8, padded with zero bytes."),
        Field("value", F32),
    ),
)

EXPERIMENT_INFO = Struct(
    "ExperimentInfo",
    "One experiment of a hive, as listed by `list_experiments`.",
    (
        Field("name", FixedStr(128), "Display name."),
        Field("id", FixedStr(64), "Identifier on the hive."),
        Field("started_at", I64, "Nanoseconds since the Unix epoch."),
        Field("ended_at", I64, "Nanoseconds since the Unix epoch; 0 before the end."),
        Field("max_duration", U64, "Seconds after which the experiment is stopped."),
        Field("experiment_status", ExperimentStatus),
        Field("worker_count", U32, "Number of game workers on servers; 0 when only clients play."),
    ),
)

POLL_SIMPLE = Struct(
    "PollSimple",
    "State of a future. A failed future is ready: taking it answers its error.",
    (Field("ready", BOOL),),
)

POLL_VEC = Struct(
    "PollVec",
    "State of a future of a vector.",
    (
        Field("ready", BOOL),
        Field("_pad", Pad(3)),
        Field("len", U32, "Number of items; 0 when the future failed."),
    ),
)

ARGUMENTS = (ErrorCode.INVALID_ARGUMENTS,)
SESSION = (ErrorCode.INVALID_ARGUMENTS, ErrorCode.NOT_FOUND)
HIVE = (ErrorCode.INVALID_ARGUMENTS, ErrorCode.UNAVAILABLE)
HIVE_SESSION = (ErrorCode.INVALID_ARGUMENTS, ErrorCode.NOT_FOUND, ErrorCode.UNAVAILABLE)
TAKE = (*HIVE_SESSION, ErrorCode.HTTP_REQUEST_FAILED)

ADDRESS = (Param("hive_url", Str()), Param("hive_port", U32))
_CONTEXT = Param("context", TRAINING)
_SHAPE = (Param("num_features", U32), Param("num_actions", U32))
_STEP = (Param("id", U64), Param("episode_state", EpisodeState), Param("reward", F32))
_FEATURES = Param("features", Slice(F32))
_ACTIONS = Param("actions", Slice(F32))
_METADATA = Param("metadata", Slice(METRIC_V1))
_LENGTH = Param("length", F32)
_ANSWERS = (Param("out_actions", OutSlice(F32)), Param("out_values", OutSlice(F32)))
_HANDLE = Param("handle", FUTURE)

_HIVE_FUNCTIONS = (
    Function(
        "onnx_to_cervo",
        "Pack an ONNX model into a Cervo container.",
        (Param("buffer", Slice(U8)),),
        returns=Bytes(),
        errors=ARGUMENTS,
    ),
    Function(
        "can_connect_to_hive",
        "Ask whether a hive answers at this address. The future holds a bool.",
        ADDRESS,
        returns=FUTURE,
        errors=HIVE,
    ),
    Function(
        "list_experiments",
        "Ask a hive for its experiments. The future holds ExperimentInfo items.",
        ADDRESS,
        returns=FUTURE,
        errors=HIVE,
    ),
    Function(
        "experiment_action_count",
        "Get the number of actions for each observation of the experiment.",
        (_CONTEXT,),
        returns=U32,
        errors=SESSION,
    ),
    Function(
        "experiment_feature_count",
        "Get the number of features of each observation of the experiment.",
        (_CONTEXT,),
        returns=U32,
        errors=SESSION,
    ),
)

_TRAINING_FUNCTIONS = (
    Function(
        "start_training",
        "Start an experiment on a hive and join it. The future holds a TrainingHandle.",
        (*ADDRESS, Param("game_name", Str()), Param("experiment_name", Str()), *_SHAPE),
        returns=FUTURE,
        errors=HIVE,
    ),
    Function(
        "start_training_from_checkpoint",
        "Start an experiment from a checkpoint and join it. The future holds a TrainingHandle.",
        (
            *ADDRESS,
            Param("game_name", Str()),
            Param("experiment_name", Str()),
            *_SHAPE,
            Param("checkpoint", Str()),
        ),
        returns=FUTURE,
        errors=HIVE,
    ),
    Function(
        "push_training_observation",
        "Queue one observation for the next submit. `reward` belongs to the step that led to it, "
        "`length` is the duration of that step: the policy sees it with the row, and neither "
        "learning nor an environment gives it a meaning. `actions` is empty except for rows that "
        "will be submitted as augmented or demonstration observations.",
        (_CONTEXT, *_STEP, _FEATURES, _ACTIONS, _LENGTH),
        lane=Lane.PUSH,
        errors=HIVE_SESSION,
    ),
    Function(
        "push_training_observation_with_metadata",
        "Queue one observation that carries metrics for the next submit.",
        (_CONTEXT, *_STEP, _FEATURES, _ACTIONS, _METADATA),
        lane=Lane.PUSH,
        errors=HIVE_SESSION,
    ),
    Function(
        "submit_training_observations",
        "Train on the queued observations and get `num_actions` actions and one value for each, "
        "in push order. Rows that end their episode get zeros. A submit that fails empties the "
        "queue.",
        (_CONTEXT, *_ANSWERS),
        lane=Lane.SUBMIT,
        errors=HIVE_SESSION,
    ),
    Function(
        "submit_training_augmented_observations",
        "Train on the queued observations and the actions pushed with them as augmented data.",
        (_CONTEXT,),
        errors=HIVE_SESSION,
    ),
    Function(
        "submit_training_demonstration_observations",
        "Train on the queued observations and the actions pushed with them as demonstrations.",
        (_CONTEXT,),
        errors=HIVE_SESSION,
    ),
    Function(
        "stop_training",
        "Leave the experiment and drop the handle. The experiment continues for other guests.",
        (_CONTEXT,),
        errors=HIVE_SESSION,
    ),
    Function(
        "download_snapshot",
        "Ask for the newest policy. The future holds bytes.",
        (_CONTEXT,),
        returns=FUTURE,
        errors=HIVE_SESSION,
    ),
    Function(
        "download_metrics",
        "Ask for the experiment's metrics. The future holds MetricV1 items.",
        (_CONTEXT,),
        returns=FUTURE,
        errors=HIVE_SESSION,
    ),
)

_INFERENCE_CONTEXT = Param("context", INFERENCE)

_INFERENCE_FUNCTIONS = (
    Function(
        "start_inference",
        "Load a snapshot as a policy that acts for this guest.",
        (
            *_SHAPE,
            Param("snapshot_data", Slice(U8)),
            Param("snapshot_format", SnapshotFormat),
        ),
        returns=INFERENCE,
        errors=HIVE,
    ),
    Function(
        "submit_inference_observations",
        "Get `num_actions` actions and one value for each queued observation, in push order. "
        "Rows that end their episode get zeros. A submit that fails empties the queue.",
        (_INFERENCE_CONTEXT, *_ANSWERS),
        lane=Lane.SUBMIT,
        errors=SESSION,
    ),
    Function(
        "push_inference_observation",
        "Queue one observation for the next submit. `length` is the duration of its step: the "
        "policy sees it with the row, and it has no other effect.",
        (_INFERENCE_CONTEXT, *_STEP, _FEATURES, _LENGTH),
        lane=Lane.PUSH,
        errors=SESSION,
    ),
    Function(
        "push_inference_observation_with_metadata",
        "Queue one observation that carries metrics for the next submit.",
        (_INFERENCE_CONTEXT, *_STEP, _FEATURES, _METADATA),
        lane=Lane.PUSH,
        errors=SESSION,
    ),
    Function(
        "stop_inference",
        "End the session and drop the handle.",
        (_INFERENCE_CONTEXT,),
        errors=SESSION,
    ),
)

_FUTURE_FUNCTIONS = (
    Function(
        "poll_future_bool",
        "Check whether a future of a bool is ready.",
        (_HANDLE,),
        returns=POLL_SIMPLE,
        errors=SESSION,
    ),
    Function(
        "take_future_bool",
        "Take the bool out of a ready future and drop the handle.",
        (_HANDLE, Param("data", Out(BOOL))),
        errors=TAKE,
    ),
    Function(
        "poll_future_vec_u8",
        "Check whether a future of bytes is ready, and get their number.",
        (_HANDLE,),
        returns=POLL_VEC,
        errors=SESSION,
    ),
    Function(
        "take_future_vec_u8",
        "Take the bytes out of a ready future and drop the handle.",
        (_HANDLE, Param("data", OutSlice(U8))),
        errors=TAKE,
    ),
    Function(
        "poll_future_vec_metric",
        "Check whether a future of metrics is ready, and get their number.",
        (_HANDLE,),
        returns=POLL_VEC,
        errors=SESSION,
    ),
    Function(
        "take_future_vec_metric",
        "Take the metrics out of a ready future and drop the handle.",
        (_HANDLE, Param("data", OutSlice(METRIC_V1))),
        errors=TAKE,
    ),
    Function(
        "poll_future_training_handle",
        "Check whether a future of a training session is ready.",
        (_HANDLE,),
        returns=POLL_SIMPLE,
        errors=SESSION,
    ),
    Function(
        "take_future_training_handle",
        "Take the training session out of a ready future and drop the future's handle.",
        (_HANDLE, Param("data", Out(TRAINING))),
        errors=TAKE,
    ),
    Function(
        "poll_future_vec_experiment_info",
        "Check whether a future of experiments is ready, and get their number.",
        (_HANDLE,),
        returns=POLL_VEC,
        errors=SESSION,
    ),
    Function(
        "take_future_vec_experiment_info",
        "Take the experiments out of a ready future and drop the handle.",
        (_HANDLE, Param("data", OutSlice(EXPERIMENT_INFO))),
        errors=TAKE,
    ),
    Function(
        "drop_future",
        "Drop a future of any kind, ready or not.",
        (_HANDLE,),
        errors=(ErrorCode.NOT_FOUND,),
    ),
)

ML_V1 = Api(
    module="ark-ml-v1",
    prefix="ml",
    doc="Training, inference and the futures of both.",
    id=0xAED6_0109_4F07_3C80,
    enums=(EpisodeState, SnapshotFormat, ExperimentStatus),
    handles=(TRAINING, INFERENCE, FUTURE),
    structs=(METRIC_V1, EXPERIMENT_INFO, POLL_SIMPLE, POLL_VEC),
    functions=(
        *_HIVE_FUNCTIONS,
        *_TRAINING_FUNCTIONS,
        *_INFERENCE_FUNCTIONS,
        *_FUTURE_FUNCTIONS,
    ),
)
