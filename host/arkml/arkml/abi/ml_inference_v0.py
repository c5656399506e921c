"""Table of `ark-ml-inference-v0`: policies with named inputs, for many agents at once."""

from __future__ import annotations

from arkml.abi.codes import ErrorCode, SnapshotFormat
from arkml.abi.schema import (
    BOOL,
    F32,
    U8,
    U32,
    U64,
    Api,
    Array,
    Bytes,
    Field,
    Function,
    Handle,
    Outcome,
    Param,
    Slice,
    Str,
    Struct,
)

RUNTIME = Handle("RuntimeHandle", "A runtime: brains and the observations queued for them.", U32)
BRAIN = Handle("RawInferenceHandle", "A brain: one loaded policy of a runtime.", U32)
LOADING = Handle("LoadInferenceHandle", "A brain that is being loaded.", U32)

SHAPE = Struct(
    "Shape",
    "The shape of one input or output, without the batch dimension.",
    (
        Field("ndim", U32, "Number of dimensions used in `dims`; at most 8."),
        Field("dims", Array(U32, 8)),
    ),
)

_SESSION = (ErrorCode.INVALID_ARGUMENTS, ErrorCode.NOT_FOUND)
_ONLY_RUNTIME = (Param("handle", RUNTIME),)
_PLACE = (Param("runtime_handle", RUNTIME), Param("inference_handle", BRAIN))
_SLOT = Param("slot", U32)
_AGENT = Param("agent", U64)

_LOADING_FUNCTIONS = (
    Function(
        "onnx_to_cervo",
        "Pack an ONNX model into a Cervo container.",
        (Param("buffer", Slice(U8)),),
        returns=Bytes(),
        errors=(ErrorCode.INVALID_ARGUMENTS,),
    ),
    Function(
        "create_runtime",
        "Create an empty runtime.",
        returns=RUNTIME,
        outcome=Outcome.NONE,
    ),
    Function(
        "destroy_runtime",
        "Destroy a runtime and all its brains.",
        _ONLY_RUNTIME,
        errors=(ErrorCode.NOT_FOUND,),
    ),
    Function(
        "load_inference_async",
        "Start loading a brain; poll the handle for it.",
        (*_ONLY_RUNTIME, Param("format", SnapshotFormat), Param("data", Slice(U8))),
        returns=LOADING,
        errors=(*_SESSION, ErrorCode.UNAVAILABLE),
    ),
    Function(
        "poll_load_inference_async",
        "Get a brain once it is loaded; Unavailable until then. A load that failed answers its "
        "error at every poll.",
        (Param("handle", LOADING),),
        returns=BRAIN,
        errors=(*_SESSION, ErrorCode.UNAVAILABLE),
    ),
    Function(
        "unload_inference",
        "Unload a brain. Refused while observations are queued for it.",
        (Param("runtime_handle", RUNTIME), Param("handle", BRAIN)),
        errors=_SESSION,
    ),
)

_DESCRIBING_FUNCTIONS = (
    Function(
        "get_brain_input_names",
        "Get the names of a brain's inputs: u8 count, then u8 length and UTF-8 for each.",
        _PLACE,
        returns=Bytes(),
        errors=_SESSION,
    ),
    Function(
        "get_brain_input_shape",
        "Get the shape of the input with this index.",
        (*_PLACE, _SLOT),
        returns=SHAPE,
        errors=_SESSION,
    ),
    Function(
        "get_brain_output_names",
        "Get the names of a brain's outputs: u8 count, then u8 length and UTF-8 for each.",
        _PLACE,
        returns=Bytes(),
        errors=_SESSION,
    ),
    Function(
        "get_brain_output_shape",
        "Get the shape of the output with this index.",
        (*_PLACE, _SLOT),
        returns=SHAPE,
        errors=_SESSION,
    ),
)

_SUBMITTING_FUNCTIONS = (
    Function(
        "begin_infer_submission",
        "Begin the observation of one agent.",
        (*_PLACE, _AGENT),
        errors=_SESSION,
    ),
    Function(
        "submit_inference_item",
        "Give one named input of the observation begun last, in any order.",
        (*_PLACE, Param("name", Str()), Param("data", Slice(F32))),
        errors=_SESSION,
    ),
    Function(
        "end_infer_submission",
        "Queue the observation begun last. An observation with missing, unknown or wrong-sized "
        "inputs is refused and dropped.",
        _PLACE,
        errors=(*_SESSION, ErrorCode.UNAVAILABLE),
    ),
    Function(
        "execute_inference",
        "Answer all queued observations. The bytes name the agents: u8 count, then a u64 id for "
        "each; beyond 255 agents the rest stays queued.",
        _ONLY_RUNTIME,
        returns=Bytes(),
        errors=_SESSION,
    ),
    Function(
        "execute_inference_for",
        "Answer queued observations, brain by brain, until `time_limit_s` seconds have passed; at "
        "least one brain. The bytes name the agents: u8 count, then a u64 id for each.",
        (*_ONLY_RUNTIME, Param("time_limit_s", F32)),
        returns=Bytes(),
        errors=_SESSION,
    ),
)

_RESULT_FUNCTIONS = (
    Function(
        "poll_result",
        "Check whether the last execution answered this agent.",
        (*_ONLY_RUNTIME, Param("inference_handle", BRAIN), _AGENT),
        returns=BOOL,
        errors=_SESSION,
    ),
    Function(
        "result_get_brain_agents",
        "Get the agents that a brain answered in the last execution: u8 count, then a u64 id for "
        "each.",
        _PLACE,
        returns=Bytes(),
        errors=_SESSION,
    ),
    Function(
        "result_get_brain_output_names",
        "Get the names of a brain's results: u8 count, then u8 length and UTF-8 for each.",
        _PLACE,
        returns=Bytes(),
        errors=_SESSION,
    ),
    Function(
        "result_get_brain_agent_output",
        "Get one output of one agent: u8 count, then an f32 for each.",
        (*_PLACE, _AGENT, _SLOT),
        returns=Bytes(),
        errors=_SESSION,
    ),
)

ML_INFERENCE_V0 = Api(
    module="ark-ml-inference-v0",
    prefix="ml_inference",
    doc="Policies with named inputs, loaded in the background, for many agents at once.",
    id=0xB1A7_DAE8_14BC_6952,
    handles=(RUNTIME, BRAIN, LOADING),
    structs=(SHAPE,),
    functions=(
        *_LOADING_FUNCTIONS,
        *_DESCRIBING_FUNCTIONS,
        *_SUBMITTING_FUNCTIONS,
        *_RESULT_FUNCTIONS,
    ),
)
