"""`ark-ml-v1`, declared once: training, inference, and the futures of both."""

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

TRAINING = Handle("TrainingHandle", "A training session: this guest's part in an experiment.")
INFERENCE = Handle("InferenceHandle", "An inference session: one policy that acts for this guest.")
FUTURE = Handle("FutureHandle", "A pending result. Poll it, then take it or drop it.")

METRIC_V1 = Struct(
    "MetricV1",
    "A named number, with a short name.",
    (
        Field("name", Array(U8, 28), "UTF-8, filled up with zero bytes."),
        Field("value", F32),
    ),
)

EXPERIMENT_INFO = Struct(
    "ExperimentInfo",
    "One experiment of a hive, as `list_experiments` tells it.",
    (
        Field("name", FixedStr(128), "For people."),
        Field("id", FixedStr(64), "For the hive."),
        Field("started_at", I64, "Nanoseconds since the Unix epoch."),
        Field("ended_at", I64, "Nanoseconds since the Unix epoch; 0 while it has not ended."),
        Field("max_duration", U64, "Seconds after which the experiment is stopped."),
        Field("experiment_status", ExperimentStatus),
        Field("worker_count", U32, "Game workers on servers; 0 when only clients play."),
    ),
)

POLL_SIMPLE = Struct(
    "PollSimple",
    "Whether a future is ready. A failed one is: taking it gives its error.",
    (Field("ready", BOOL),),
)

POLL_VEC = Struct(
    "PollVec",
    "Whether a future that gives a vector is ready.",
    (
        Field("ready", BOOL),
        Field("_pad", Pad(3)),
        Field("len", U32, "Items of the vector; 0 when the future failed."),
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
        "Ask whether a hive answers at this address. The future gives a bool.",
        ADDRESS,
        returns=FUTURE,
        errors=HIVE,
    ),
    Function(
        "list_experiments",
        "Ask a hive for its experiments. The future gives ExperimentInfo items.",
        ADDRESS,
        returns=FUTURE,
        errors=HIVE,
    ),
    Function(
        "experiment_action_count",
        "How many actions each answer of the experiment has.",
        (_CONTEXT,),
        returns=U32,
        errors=SESSION,
    ),
    Function(
        "experiment_feature_count",
        "How many features each observation of the experiment has.",
        (_CONTEXT,),
        returns=U32,
        errors=SESSION,
    ),
)

_TRAINING_FUNCTIONS = (
    Function(
        "start_training",
        "Start an experiment on a hive and join it. The future gives a TrainingHandle.",
        (*ADDRESS, Param("game_name", Str()), Param("experiment_name", Str()), *_SHAPE),
        returns=FUTURE,
        errors=HIVE,
    ),
    Function(
        "start_training_from_checkpoint",
        "Start an experiment from a checkpoint and join it. The future gives a TrainingHandle.",
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
        "Queue one observation for the next submit. `reward` belongs to the step that led here. "
        "`length` is how long that step took: the rows of a submit show it to the policy that "
        "answers, and neither learning nor an environment gives it a meaning. `actions` is empty "
        "except for rows to be submitted as augmented or demonstration observations.",
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
        "Train on the queued observations and have each answered: `num_actions` actions and one "
        "value per row, in push order. Rows that ended their episode get zeros. A submit that "
        "fails empties the queue.",
        (_CONTEXT, *_ANSWERS),
        lane=Lane.SUBMIT,
        errors=HIVE_SESSION,
    ),
    Function(
        "submit_training_augmented_observations",
        "Train on the queued observations, with the actions pushed along, as augmented ones.",
        (_CONTEXT,),
        errors=HIVE_SESSION,
    ),
    Function(
        "submit_training_demonstration_observations",
        "Train on the queued observations, with the actions pushed along, as demonstrations.",
        (_CONTEXT,),
        errors=HIVE_SESSION,
    ),
    Function(
        "stop_training",
        "Leave the experiment and forget the handle. The experiment goes on for others.",
        (_CONTEXT,),
        errors=HIVE_SESSION,
    ),
    Function(
        "download_snapshot",
        "Ask for the policy as trained so far. The future gives bytes.",
        (_CONTEXT,),
        returns=FUTURE,
        errors=HIVE_SESSION,
    ),
    Function(
        "download_metrics",
        "Ask for the experiment's metrics. The future gives MetricV1 items.",
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
        "Have the queued observations answered: `num_actions` actions and one value per row, in "
        "push order. Rows that ended their episode get zeros. A submit that fails empties the "
        "queue.",
        (_INFERENCE_CONTEXT, *_ANSWERS),
        lane=Lane.SUBMIT,
        errors=SESSION,
    ),
    Function(
        "push_inference_observation",
        "Queue one observation for the next submit; `length` is how long its step took, which the "
        "rows of a submit show to the policy that answers, and which has no other effect.",
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
        "End the session and forget the handle.",
        (_INFERENCE_CONTEXT,),
        errors=SESSION,
    ),
)

_FUTURE_FUNCTIONS = (
    Function(
        "poll_future_bool",
        "Whether a future that gives a bool is ready.",
        (_HANDLE,),
        returns=POLL_SIMPLE,
        errors=SESSION,
    ),
    Function(
        "take_future_bool",
        "Take the bool out of a ready future and forget the handle.",
        (_HANDLE, Param("data", Out(BOOL))),
        errors=TAKE,
    ),
    Function(
        "poll_future_vec_u8",
        "Whether a future that gives bytes is ready, and how many there are.",
        (_HANDLE,),
        returns=POLL_VEC,
        errors=SESSION,
    ),
    Function(
        "take_future_vec_u8",
        "Take the bytes out of a ready future and forget the handle.",
        (_HANDLE, Param("data", OutSlice(U8))),
        errors=TAKE,
    ),
    Function(
        "poll_future_vec_metric",
        "Whether a future that gives metrics is ready, and how many there are.",
        (_HANDLE,),
        returns=POLL_VEC,
        errors=SESSION,
    ),
    Function(
        "take_future_vec_metric",
        "Take the metrics out of a ready future and forget the handle.",
        (_HANDLE, Param("data", OutSlice(METRIC_V1))),
        errors=TAKE,
    ),
    Function(
        "poll_future_training_handle",
        "Whether a future that gives a training session is ready.",
        (_HANDLE,),
        returns=POLL_SIMPLE,
        errors=SESSION,
    ),
    Function(
        "take_future_training_handle",
        "Take the training session out of a ready future and forget the future's handle.",
        (_HANDLE, Param("data", Out(TRAINING))),
        errors=TAKE,
    ),
    Function(
        "poll_future_vec_experiment_info",
        "Whether a future that gives experiments is ready, and how many there are.",
        (_HANDLE,),
        returns=POLL_VEC,
        errors=SESSION,
    ),
    Function(
        "take_future_vec_experiment_info",
        "Take the experiments out of a ready future and forget the handle.",
        (_HANDLE, Param("data", OutSlice(EXPERIMENT_INFO))),
        errors=TAKE,
    ),
    Function(
        "drop_future",
        "Forget a future of any kind, ready or not.",
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
