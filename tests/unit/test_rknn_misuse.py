"""rknn_api: for any arguments a function returns a code (or null), never an exception."""

from __future__ import annotations

import ctypes as ct
import itertools
import random
from collections.abc import Iterator

import pytest

import rkcosim.rknn_api as rk
from rkcosim.golden.task import GoldenNpu
from tests.makers.rknn_models import image_model, open_model
from tests.unit.test_rknn_types import FUNCTIONS

ARGUMENTS = {
    "rknn_init": 5,
    "rknn_dup_context": 2,
    "rknn_destroy": 1,
    "rknn_query": 4,
    "rknn_inputs_set": 3,
    "rknn_set_batch_core_num": 2,
    "rknn_set_core_mask": 2,
    "rknn_run": 2,
    "rknn_wait": 2,
    "rknn_outputs_get": 4,
    "rknn_outputs_release": 3,
    "rknn_create_mem_from_phys": 4,
    "rknn_create_mem_from_fd": 5,
    "rknn_create_mem_from_mb_blk": 3,
    "rknn_create_mem": 2,
    "rknn_create_mem2": 3,
    "rknn_destroy_mem": 2,
    "rknn_set_weight_mem": 2,
    "rknn_set_internal_mem": 2,
    "rknn_set_io_mem": 3,
    "rknn_set_input_shape": 2,
    "rknn_set_input_shapes": 3,
    "rknn_mem_sync": 3,
    "rknn_matmul_create": 3,
    "rknn_matmul_create_dynamic_shape": 5,
    "rknn_matmul_create_dyn_shape": 5,
    "rknn_matmul_set_dynamic_shape": 2,
    "rknn_matmul_set_io_mem": 3,
    "rknn_matmul_set_core_mask": 2,
    "rknn_matmul_set_quant_params": 2,
    "rknn_matmul_get_quant_params": 3,
    "rknn_matmul_run": 1,
    "rknn_matmul_destroy": 1,
    "rknn_B_normal_layout_to_native_layout": 5,
    "rknn_register_custom_ops": 3,
    "rknn_custom_op_get_op_attr": 3,
}
POINTERS = ("rknn_create_mem_from_phys", "rknn_create_mem_from_fd", "rknn_create_mem_from_mb_blk")
POINTERS += ("rknn_create_mem", "rknn_create_mem2")
CODES = set(range(-14, 1))


@pytest.fixture(autouse=True)
def device() -> Iterator[None]:
    rk.use_device(GoldenNpu(1), quiet=True)
    yield
    from rkcosim.rknn_api.state import runtime

    for handle, state in list(runtime.contexts.items()):
        (rk.rknn_destroy if hasattr(state, "model") else rk.rknn_matmul_destroy)(handle)
    rk.use_device(None)


def junk() -> list[object]:
    """Invalid addresses that would also be safe in C."""
    structs = [getattr(rk, n) for n in rk.__all__ if isinstance(getattr(rk, n), type)]
    made = [kind() for kind in structs if issubclass(kind, ct.Structure)]
    nulls = [None, ct.c_void_p(), ct.POINTER(rk.rknn_tensor_attr)(), 0]
    arrays = [(rk.rknn_input * 2)(), (rk.rknn_output * 1)(), (rk.rknn_matmul_shape * 2)(), []]
    return [*made, *nulls, *arrays, -1, 1.5, "text", b"bytes", object(), [1, 2]]


def test_the_tables_know_every_function() -> None:
    assert set(ARGUMENTS) == set(FUNCTIONS)


@pytest.mark.parametrize("name", FUNCTIONS)
def test_junk_gives_codes(name: str) -> None:
    rng = random.Random(name)
    context = open_model(image_model())
    function, things = getattr(rk, name), junk()
    sized = name in ("rknn_init", "rknn_B_normal_layout_to_native_layout")
    for attempt in range(300):
        first = rng.choice([context, ct.byref(context), context.value, 0, *things])
        if name in ("rknn_destroy", "rknn_init", "rknn_dup_context"):
            first = rng.choice(things)
        rest = [rng.choice(things) for _ in range(ARGUMENTS[name] - 1)]
        if sized and any(isinstance(value, int) and value > 0 for value in rest):
            continue
        got = function(first, *rest)
        if name in POINTERS:
            assert isinstance(got, ct._Pointer), (attempt, first, rest)
        elif name == "rknn_custom_op_get_op_attr":
            assert got is None
        else:
            assert got in CODES, (attempt, first, rest)


def test_numbers_out_of_range() -> None:
    context = open_model(image_model())
    wild = (-1, 0, 1, 2, 255, 1 << 31, (1 << 32) - 1, 1 << 63)
    for a, b in itertools.product(wild, wild):
        assert rk.rknn_query(context, a, rk.rknn_tensor_attr(), b) in CODES
        assert rk.rknn_inputs_set(context, a, [rk.rknn_input(index=b, size=b & 0xFFFFFFFF)]) in CODES
        assert rk.rknn_outputs_get(context, a, [rk.rknn_output(index=b)], None) in CODES
        assert rk.rknn_set_core_mask(context, a) in CODES
        memory = rk.rknn_create_mem2(context, a if a <= 255 else 1 << 33, b)
        assert not memory or rk.rknn_destroy_mem(context, memory) == rk.RKNN_SUCC
        given = rk.rknn_matmul_info(M=a & 0xFF, K=a & 0x7FFFFFFF, N=b & 0x7FFFFFFF, type=2)
        ctx = rk.rknn_matmul_ctx()
        if rk.rknn_matmul_create(ctx, given, rk.rknn_matmul_io_attr()) == rk.RKNN_SUCC:
            assert rk.rknn_matmul_destroy(ctx) == rk.RKNN_SUCC
