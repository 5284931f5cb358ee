"""Gates of gregordinary/rocket-userspace, a library over the mainline driver."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from tools.outside.programs import Program, each_program
from tools.outside.suite import PASS, SKIP, Checkout, Outcome, Suite, on_engine


def _gates() -> dict[str, Program]:
    """Return the gates for RK3588 that CMakeLists.txt registers, with their arguments and settings."""
    plain = (
        *("activation_lut", "leaky_relu", "recip_rsqrt", "lut_tanh", "exp_lut", "softplus_mish", "elu"),
        *("ew_minmax", "prelu", "ew_mul", "conv_act", "gelu", "conv1d", "conv_transpose", "resize"),
        *("reduce_feature", "cumsum", "rmsnorm", "norm_vision", "ffn", "ffn_fused", "softmax"),
        *("cross_entropy", "layernorm", "mha", "flash_attn", "encoder_block", "siglip", "sam"),
        *("fc_data_bank_sweep", "matmul_kacc_chain", "matmul_batch", "matmul_int8_dequant"),
        *("matmul_prepacked_crossm", "matmul_tiled", "matmul_mt", "crossop_chain", "matmul_int8_tiled"),
        *("mixed_chain_coexist", "matmul_int4_tiled", "matmul_int4_groupwise", "matmul_int8_prepacked"),
        *("matmul_int8_crossm", "matmul_int8_groupwise", "matmul_int8_prepacked_gw"),
        *("matmul_int8_crossm_gw", "matmul_int4_prepacked", "matmul_int4_prepacked_gw"),
        *("matmul_int4_crossm", "uapi_selftest", "uapi_submit_errpath", "uapi_bo_ranges"),
    )
    never_skip = ("conv2d_fp16", "chain_layout", "pool_fp16", "pool_int8", "reduce_mean", "conv2d_int8")
    sizes = {
        "bytes_moved": "512 3840 4096",
        "matmul_fp32out": "64 4096 512",
        "matmul_bf16_tiled": "512 3840 4096",
        "matmul_bf16_stream": "512 3840 4096 4",
        "matmul_tf32_tiled": "512 3840 4096",
        "matmul_int16_exact": "512 3840 4096",
        "uapi_bo_lifetime": "64",
    }
    found = {f"{name}_rocket": Program(f"build/{name}_rocket", skips=(2,)) for name in plain}
    found |= {f"{name}_rocket": Program(f"build/{name}_rocket") for name in never_skip}
    for name, words in sizes.items():
        found[f"{name}_rocket"] = Program(f"build/{name}_rocket", words.split(), skips=(2,))
    for name in ("replay_dw_mesa", "conv_dw_int8_runtime"):
        found[name] = Program(f"build/{name}", skips=(2,))
    grouped = "build/matmul_int8_prepacked_gw_rocket"
    wide = {"wide": "256 2880 512 1440 2", "moe": "256 2880 2880 576 2"}
    for name, words in wide.items():
        found[f"matmul_int8_prepacked_gw_{name}_rocket"] = Program(grouped, words.split(), skips=(2,))
    found["flash_attn_rocket_nochain"] = Program(
        "build/flash_attn_rocket", (), {"ROCKET_FA_CHAIN": "0"}, (2,)
    )
    found["prep_signal_robust_rocket"] = Program(
        "build/prep_signal_robust_rocket", (), {"ROCKET_SIG_ITERS": "60"}, (2,)
    )
    matrix = "build/matmul_correctness_matrix_rocket"
    found["matmul_correctness_matrix_rocket"] = Program(matrix, ("512", "1024", "1024"), skips=(3,))
    large = ("512", "4096", "4096")
    for name, value in (("asym", "1"), ("sym", "0")):
        found[f"matmul_correctness_matrix_{name}"] = Program(matrix, large, {"ROCKET_MM_ASYM": value}, (3,))
    return dict(sorted(found.items()))


LEFT_OUT = (
    *("fc_data_bank_sweep_rocket", "ffn_fused_rocket", "flash_attn_rocket", "flash_attn_rocket_nochain"),
    *("matmul_bf16_stream_rocket", "matmul_correctness_matrix_asym", "matmul_correctness_matrix_sym"),
    *("matmul_int16_exact_rocket", "matmul_int4_crossm_rocket", "matmul_int4_prepacked_gw_rocket"),
    *("matmul_int4_prepacked_rocket", "matmul_int8_prepacked_rocket", "matmul_kacc_chain_rocket"),
    *("matmul_mt_rocket", "matmul_tf32_tiled_rocket"),
)
"""Gates of billions of multiplications: they had not ended after two minutes on a busy machine."""

WITHOUT_WEIGHTS = ("siglip_rocket", "sam_rocket")
"""Gates that skip, because the weights of their networks are not in the repository (API.md)."""

GATES = {name: gate for name, gate in _gates().items() if name not in LEFT_OUT}

RTL_TOO = (
    *("activation_lut_rocket", "bytes_moved_rocket", "chain_layout_rocket", "conv1d_rocket"),
    *("conv2d_int8_rocket", "conv_act_rocket", "conv_dw_int8_runtime", "conv_transpose_rocket"),
    *("cross_entropy_rocket", "crossop_chain_rocket", "cumsum_rocket", "elu_rocket"),
    *("ew_minmax_rocket", "ew_mul_rocket", "exp_lut_rocket", "gelu_rocket", "layernorm_rocket"),
    *("leaky_relu_rocket", "lut_tanh_rocket", "matmul_int8_dequant_rocket", "matmul_int8_tiled_rocket"),
    *("matmul_tiled_rocket", "norm_vision_rocket", "pool_fp16_rocket", "pool_int8_rocket"),
    *("prelu_rocket", "prep_signal_robust_rocket", "recip_rsqrt_rocket", "reduce_feature_rocket"),
    *("reduce_mean_rocket", "replay_dw_mesa", "resize_rocket", "rmsnorm_rocket", "softmax_rocket"),
    *("softplus_mish_rocket", "uapi_bo_lifetime_rocket", "uapi_bo_ranges_rocket"),
    *("uapi_selftest_rocket", "uapi_submit_errpath_rocket"),
)
"""Gates that are small enough for the RTL."""


def _run(here: Checkout, engine: str, folder: Path) -> Mapping[str, Outcome]:
    gates = on_engine(engine, GATES, RTL_TOO)
    limit = 300 if engine == "golden" else 600
    return each_program(here, "device", engine, gates, limit, ("--rocket-interface", "1.5"))


def _board(test: str) -> tuple[str, ...]:
    return (SKIP,) if test in WITHOUT_WEIGHTS else (PASS,)


SUITE = Suite(
    name="rocket-userspace",
    repository="gregordinary/rocket-userspace",
    tests="matrix products of seven types, convolutions, pooling, activations, norms, attention over the "
    "mainline driver; its interface",
    how="Each gate for RK3588 that its CMakeLists.txt registers runs under `rkcosim device "
    "--rocket-interface 1.5`, with the arguments that stand there, built into the folder `build`; "
    "`tests/dw_dump_capture.py` makes the files of conv_dw_int8_runtime. resize_rocket is right only where "
    "members of a structure that the library leaves unset are 0 (oh, ow, src/rocket_conv_transpose.c): the "
    "programs were compiled with such variables set to 0. Small gates run on the RTL, too.",
    cannot=f"{len(LEFT_OUT)} gates of billions of multiplications, which do not end within the ledger's "
    f"limits (five minutes on the golden model, ten on the RTL): {', '.join(LEFT_OUT)}. Of these, "
    "matmul_int16_exact_rocket, matmul_tf32_tiled_rocket and fc_data_bank_sweep_rocket passed on the golden "
    "model on 2026-11-30 within ten minutes each; matmul_bf16_stream_rocket and matmul_kacc_chain_rocket had "
    "not ended then. siglip_rocket and sam_rocket skip, because weights of networks are missing in the "
    "repository.",
    board_source="gregordinary/rocket-userspace @e067786, README.md: on RK3588 every gate in `tests/` is "
    "bit-exact. The expected bytes of replay_dw_mesa and conv_dw_int8_runtime are what Mesa's Teflon gave.",
    board=_board,
    run=_run,
)
