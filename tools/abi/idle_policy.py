"""
The idle policy of guests: an ONNX model that answers zeros, in the languages of `guest_abi`.

Its two widths are written into the bytes at run time, so that a guest has a policy for rows of any
width before it has learned one.
"""

from __future__ import annotations

from tools.abi.text import NOTICE

_FEATURES, _ACTIONS = 0x1F_FFFE, 0x1F_FFFD  # stand for the widths, and occur nowhere else


def _model() -> bytes:
    from onnx import TensorProto, helper

    sizes = _FEATURES.to_bytes(8, "little") + _ACTIONS.to_bytes(8, "little")
    graph = helper.make_graph(
        [
            helper.make_node("ConstantOfShape", ["widths"], ["gains"]),
            helper.make_node("MatMul", ["obs", "gains"], ["actions"]),
        ],
        "idle",
        [helper.make_tensor_value_info("obs", TensorProto.FLOAT, ["N", _FEATURES])],
        [helper.make_tensor_value_info("actions", TensorProto.FLOAT, ["N", _ACTIONS])],
        [helper.make_tensor("widths", TensorProto.INT64, [2], sizes, raw=True)],
    )
    opsets = [helper.make_opsetid("", 15)]
    model = helper.make_model(graph, opset_imports=opsets, ir_version=8)
    return bytes(model.SerializeToString())


def _places(model: bytes, width: int) -> tuple[int, int]:
    """Return where a width stands: in 8 bytes, and as a varint of 3 bytes."""
    found = []
    varint = bytes([width & 0x7F | 0x80, width >> 7 & 0x7F | 0x80, width >> 14])
    for form in (width.to_bytes(8, "little"), varint):
        (_, _) = model.split(form)  # once
        found.append(model.index(form))
    return found[0], found[1]


def files() -> dict[str, str]:
    """Return the text of each file by its path below `guest_abi`."""
    model = _model()
    features, actions = _places(model, _FEATURES), _places(model, _ACTIONS)
    rows = "".join(
        "    " + ", ".join(str(byte) for byte in model[at : at + 20]) + ",\n"
        for at in range(0, len(model), 20)
    )
    about = "An ONNX model that answers zeros; each width has two places in it."
    return {
        "c/ark_idle_policy.h": (
            f"/* {NOTICE} */\n#ifndef ARK_IDLE_POLICY_H\n#define ARK_IDLE_POLICY_H\n\n"
            "#include <stdint.h>\n\n"
            f"/* {about} */\n"
            f"#define ARK_IDLE_FEATURES {{{features[0]}, {features[1]}}}\n"
            f"#define ARK_IDLE_ACTIONS {{{actions[0]}, {actions[1]}}}\n"
            f"static const uint8_t ARK_IDLE_POLICY[{len(model)}] = {{\n{rows}}};\n\n#endif\n"
        ),
        "rust/ark_idle_policy.rs": (
            f"// {NOTICE}\n//! {about}\n\n"
            f"pub const FEATURES: [usize; 2] = [{features[0]}, {features[1]}];\n"
            f"pub const ACTIONS: [usize; 2] = [{actions[0]}, {actions[1]}];\n"
            f"pub const MODEL: [u8; {len(model)}] = [\n{rows}];\n"
        ),
        "assemblyscript/idle_policy.ts": (
            f"// {NOTICE}\n// {about}\n\n"
            f"export const FEATURES: StaticArray<i32> = [{features[0]}, {features[1]}];\n"
            f"export const ACTIONS: StaticArray<i32> = [{actions[0]}, {actions[1]}];\n"
            f"export const MODEL: StaticArray<u8> = [\n{rows}];\n"
        ),
    }
