"""Where jobs of `.rknn` files for several cores end, so that cores wait for each other."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from onnx import TensorProto, helper, numpy_helper

from rkcosim.compiler import compile_model
from rkcosim.regcmd.word import op_enable_mask
from rkcosim.rknn_file import read_rknn, schema
from rkcosim.rknn_file.plan import file_plan
from rkcosim.rknn_file.writer import write_rknn


@pytest.fixture(scope="module")
def two_convolutions() -> bytes:
    """Two convolutions of 5 x 5 for three cores; a core reads rows that others write."""
    rng = np.random.default_rng(0)
    kernels = [
        numpy_helper.from_array(rng.normal(size=(32, 32, 5, 5)).astype(np.float32), name) for name in "ab"
    ]
    nodes = [
        helper.make_node("Conv", ["x", "a"], ["y"], pads=[2] * 4),
        helper.make_node("Conv", ["y", "b"], ["z"], pads=[2] * 4),
    ]
    ports = [helper.make_tensor_value_info(name, TensorProto.FLOAT, [1, 32, 24, 24]) for name in "xz"]
    graph = helper.make_graph(nodes, "two", ports[:1], ports[1:], kernels)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 13)], ir_version=8)
    return write_rknn(compile_model(model.SerializeToString(), reuse=True, cores=3))


def test_cores_wait_behind_a_divided_node_without_a_convolution(
    two_convolutions: bytes, monkeypatch: pytest.MonkeyPatch
):
    """Files before container 6 have no barriers: behind a Concat that three cores copy, the 5 x 5 convolution
    of tomjeans/RKNN2-RK3588-picodet (toolkit 1.4.0) reads rows of the other cores. In one job its last two
    rows on cores 0 and 1 were wrong, against the nodes' exact values and the plan for one core."""
    monkeypatch.setattr("rkcosim.rknn_file.plan._Maker._linked", lambda *_: True)
    file = read_rknn(two_convolutions)
    parts = [segment.parts for segment in file_plan(file, 3).segments()]
    assert parts == [((0, 2), (2, 2), (4, 2))]  # convolutions wait for each other
    first = min(record.node for record in file.records)
    copies = op_enable_mask(["DPU", "DPU_RDMA"])
    file.records[:] = [
        replace(record, enable_mask=copies) if record.node == first else record for record in file.records
    ]
    assert [segment.parts for segment in file_plan(file, 3).segments()] == parts
    file.version = schema.Version.TOOLKIT_1
    divided = [segment.parts for segment in file_plan(file, 3).segments()]
    assert divided == [((0, 1), (1, 1), (2, 1)), ((0, 1), (1, 1), (2, 1))]
