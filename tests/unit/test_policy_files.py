import os

import numpy as np
import pytest
from onnx import TensorProto, helper

from arkml.errors import ModelRejected, SnapshotTooLarge, UsageError
from arkml.limits import Limits
from arkml.policies.policy_files import read_policy_file
from arkml.policies.vetting import vet

LIMITS = Limits()
WEIGHTS = np.arange(24, dtype="<f4").reshape(8, 3)


def model(location="weights.bin", *, in_node=False, **more):
    """x @ w with w in another file."""
    tensor = TensorProto(name="w", data_type=TensorProto.FLOAT, dims=[8, 3], data_location=1)
    for key, value in {"location": location, **more}.items():
        tensor.external_data.add(key=key, value=str(value))
    nodes = [helper.make_node("MatMul", ["x", "w"], ["y"])]
    if in_node:
        nodes.insert(0, helper.make_node("Constant", [], ["w"], value=tensor))
    graph = helper.make_graph(
        nodes,
        "g",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["N", 8])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, ["N", 3])],
        [] if in_node else [tensor],
    )
    opsets = [helper.make_opsetid("", 17)]
    return helper.make_model(graph, opset_imports=opsets, ir_version=8).SerializeToString()


def write(folder, data, weights=None):
    (folder / "weights.bin").write_bytes(WEIGHTS.tobytes() if weights is None else weights)
    path = folder / "model.onnx"
    path.write_bytes(data)
    return path


def test_a_file_without_side_files_is_read_as_it_is(tmp_path):
    path = write(tmp_path, b"anything, even a location")

    assert read_policy_file(path, LIMITS) == b"anything, even a location"


@pytest.mark.parametrize("in_node", [False, True])
def test_weights_beside_the_model_move_into_it(tmp_path, in_node):
    path = write(tmp_path, model(in_node=in_node))

    graph = vet(read_policy_file(path, LIMITS), LIMITS).graph

    tensor = graph.node[0].attribute[0].t if in_node else graph.initializer[0]
    assert tensor.raw_data == WEIGHTS.tobytes()


def test_offset_and_length_choose_the_part_of_the_file(tmp_path):
    path = write(tmp_path, model(offset=4, length=96), bytes(4) + WEIGHTS.tobytes() + bytes(9))

    graph = vet(read_policy_file(path, LIMITS), LIMITS).graph

    assert graph.initializer[0].raw_data == WEIGHTS.tobytes()


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (model("../weights.bin"), "weights must lie in a file of the model's own folder"),
        (model("/etc/passwd"), "weights must lie in a file of the model's own folder"),
        (model(".."), "weights must lie in a file of the model's own folder"),
        (model(""), "weights must lie in a file of the model's own folder"),
        (model("nowhere.bin"), "cannot be read: No such file"),
        (model(offset=1), "the file ends before byte 97"),
        (model(offset=97, length=96), "the file ends before byte 193"),
        (model(length=95), "95 bytes for a shape"),
        (model(offset=-1), "expected a number of bytes, got '-1'"),
        (model(offset=1 << 70), "expected a number of bytes"),
    ],
)
def test_a_side_file_has_to_be_what_the_model_says(tmp_path, data, reason):
    path = write(tmp_path, data)

    with pytest.raises(ModelRejected, match=f"weight 'w' in .*{reason}"):
        read_policy_file(path, LIMITS)


def test_a_side_file_is_never_a_link(tmp_path):
    path = write(tmp_path, model("link.bin"))
    (tmp_path / "link.bin").symlink_to("weights.bin")

    with pytest.raises(ModelRejected, match="cannot be read"):
        read_policy_file(path, LIMITS)


def test_a_side_file_that_is_a_pipe_does_not_block(tmp_path):
    path = write(tmp_path, model("pipe.bin"))
    os.mkfifo(tmp_path / "pipe.bin")

    with pytest.raises(ModelRejected, match="not a plain file"):
        read_policy_file(path, LIMITS)


def test_the_model_and_its_weights_together_are_a_snapshot(tmp_path):
    data = model()
    path = write(tmp_path, data)

    with pytest.raises(SnapshotTooLarge):
        read_policy_file(path, Limits(snapshot_bytes=len(data) + 95))
    with pytest.raises(SnapshotTooLarge):
        read_policy_file(path, Limits(snapshot_bytes=len(data) - 1))


def test_of_a_side_file_only_the_weights_are_read(tmp_path):
    path = write(tmp_path, model(offset=1 << 32))
    with (tmp_path / "weights.bin").open("wb") as file:
        file.seek(1 << 32)
        file.write(WEIGHTS.tobytes())

    graph = vet(read_policy_file(path, LIMITS), LIMITS).graph

    assert graph.initializer[0].raw_data == WEIGHTS.tobytes()


def test_a_file_that_is_not_there_is_a_wrong_use(tmp_path):
    with pytest.raises(UsageError, match=r"nothing.onnx cannot be read: No such file"):
        read_policy_file(tmp_path / "nothing.onnx", LIMITS)
    with pytest.raises(UsageError, match="cannot be read: Is a directory"):
        read_policy_file(tmp_path, LIMITS)


def test_a_pipe_is_refused_and_not_waited_for(tmp_path):
    path = tmp_path / "pipe.onnx"
    os.mkfifo(path)

    with pytest.raises(UsageError, match="not a plain file"):
        read_policy_file(path, LIMITS)


def test_a_name_that_cannot_be_a_path_is_refused_in_a_sentence():
    with pytest.raises(UsageError, match="cannot be read: its name has a null character"):
        read_policy_file("a\0b", LIMITS)
