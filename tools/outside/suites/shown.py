"""Suites of others that another command or a test of this project runs, and the pages that show them."""

from __future__ import annotations

from tools.outside.suite import Suite

SUITES = (
    Suite(
        name="DIOPI",
        repository="DeepLink-org/DIOPI",
        tests="DIOPI's conformance suite, operator by operator",
        how="`python -m benchmarks.diopi CHECKOUT` runs it unmodified under `rkcosim diopi`.",
        board_source="none: the expected outputs are PyTorch's.",
        shown="results/diopi_suite.md",
        figures=(r"([\d,]+) cases: ([\d,]+) passed; ([\d,]+) passed", r"\1 cases: \2 pass, \3 pass forward"),
    ),
    Suite(
        name="AOSP's examples of NNAPI",
        repository="timocapa/android_packages_modules_NeuralNetworks",
        tests="the examples in AOSP's specifications of NNAPI's operations",
        how="`rkcosim nnapi-specs` runs them.",
        board_source="none: the expected outputs are AOSP's.",
        shown="nnapi_operations.md",
        figures=(
            r"\| ([\d,]+) \| ([\d,]+) \| ([\d,]+) \| ([\d,]+) \| (\d+) \| of [\d,]+ examples",
            r"\1 examples: \2 pass on the NPU, \3 on the host, \4 refused, \5 wrong",
        ),
    ),
    Suite(
        name="ONNX node tests",
        repository="onnx/onnx",
        tests="the node tests of the package onnx",
        how="`python -m benchmarks.onnx_nodes` and `python -m benchmarks.ort_nodes` run them.",
        board_source="none: the expected outputs are those of the package.",
        shown="models.md#onnx-files",
        figures=(
            r"of ([\d ]+) tests: (\d+) in which the NPU takes part, ([\d ]+) on the host, "
            r"(\d+) refused [^\n]*?(\d+) wrong",
            r"\1 tests: \2 pass with the NPU, \3 on the host, \4 refused, \5 wrong",
        ),
    ),
    Suite(
        name="allbilly's sweeps",
        repository="allbilly/rk3588",
        tests="convolutions in fp16 with the largest difference that a board showed for each",
        how="`tests/system/test_board_convolutions.py` has the shapes and the board's numbers, on the golden "
        "model and on the RTL.",
        board_source="allbilly/rk3588 @40fae7b, sweep_results: numbers for each shape.",
        shown="results/provenance.md#witnesses",
    ),
    Suite(
        name="happyme531's chains",
        repository="happyme531/rknpu2_matmul_open",
        tests="chains of tasks of language models: RMS norm, attention, a transformation from both sides, "
        "int8 products with compressed weights",
        how="`tests/system/test_board_norm.py` and `test_board_matrices.py` have them by fields, on the "
        "golden model and on the RTL, against mathematics. The repository is in no stored copy as a whole, "
        "and is not built.",
        board_source="happyme531/rknpu2_matmul_open @dac239c and @192f6ca: docs/ATTENTION.md, "
        "tests/test_compress.cpp and tests/README.md say what its author compares on a board.",
        shown="results/provenance.md#witnesses",
    ),
    Suite(
        name="Mesa's Teflon",
        repository="bminor/mesa-mesa",
        tests="Mesa's delegate for LiteRT over the mainline driver, `libteflon.so`",
        how="Its command lists are sources of rules (`mesa-regcmd` on the page); a list of its for a "
        "depthwise convolution runs, and its bytes are the expected ones, in replay_dw_mesa and "
        "conv_dw_int8_runtime of [rocket-userspace](#rocket-userspace).",
        cannot="The delegate itself: `libteflon.so` is a part of a build of Mesa, and neither Debian 12 nor "
        "PyPI has a package with it.",
        board_source="gregordinary/rocket-userspace @e067786, tests/data/teflon-dw-capture: bytes of Teflon.",
        shown="results/provenance.md",
    ),
    Suite(
        name="cocotb",
        repository="cocotb/cocotb",
        tests="the examples of testbenches of this project with the newest cocotb (2.1.0, 2026-11)",
        how="`pytest examples/cocotb` runs them in Verilator; cocotbext-axi 0.1.28 and cocotb-coverage 2.0 "
        "are the newest as well.",
        board_source="none: it is a tool.",
        shown="cocotb.md",
    ),
    Suite(
        name="Amaranth",
        repository="amaranth-lang/amaranth",
        tests="all RTL of this project with the newest Amaranth (0.5.10, 2026-11)",
        how="`make test` elaborates and simulates it with the installed release, which pip takes as the "
        "newest that pyproject.toml allows.",
        board_source="none: it is a tool.",
        shown="verilog.md",
    ),
    Suite(
        name="model files of boards' owners",
        repository="widgetii/orangepi5plus-npu",
        tests="model files of widgetii/orangepi5plus-npu, allbilly/rk3588 and others",
        how="`python -m benchmarks.public_models DIR` runs every layer against LiteRT or onnxruntime.",
        board_source="none for their tensors; times of networks are on the page of the [zoo](zoo.md).",
        shown="results/public_models.md",
    ),
)
