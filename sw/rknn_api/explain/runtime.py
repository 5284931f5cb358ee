"""Lines of the runtime, librknnrt (rknn_api reference 4.6)."""

from __future__ import annotations

import re

from rkcosim.rknn_api.explain.driver import flags
from rkcosim.rknn_api.explain.explanation import Explanation, Rules, integer, known, status_lines, verdict


def _pairs(text: str) -> dict[str, str]:
    """`key: value` pairs in a line."""
    return {key.strip(): value.strip() for key, value in re.findall(r"([a-z][a-z ]*?): ([^,]+)", text)}


def _submit(match: re.Match[str]) -> Explanation:
    pairs = _pairs(match["rest"])
    made = Explanation(match[0], "the runtime submitted a job to the driver, which returned an error")
    if "op name" in pairs or "op id" in pairs:
        made.lines.append(f"operator {pairs.get('op id', '?')}, {pairs.get('op name', 'without a name')}")
    if "flags" in pairs:
        made.lines.append(f"job flags {pairs['flags']}: {flags(integer(pairs['flags']))}")
    if {"task start", "task number", "run task counter"} <= pairs.keys():
        start, number = integer(pairs["task start"]), integer(pairs["task number"])
        counter = integer(pairs["run task counter"])
        if counter < number:
            made.lines.append(f"{counter} of {number} tasks ended: task {start + counter} hangs")
        else:
            made.lines.append(f"all {number} tasks ended: the final interrupt is missing or does not match")
    if "int status" in pairs:
        status = integer(pairs["int status"])
        made.lines += status_lines(status)
        made.lines.append(verdict(status))
    return made


RULES: Rules = {
    r"failed to submit!?,?(?P<rest>.*)": _submit,
    r"param input size\((\d+)\) < model input size\((\d+)\)": known(
        "rknn_inputs_set: the buffer is too small (RKNN_ERR_PARAM_INVALID)",
        r"\1 bytes given, \2 needed: elements times the size of the rknn_input's `type` (0 is FLOAT32)",
    ),
    r"(input|output) memory size\((\d+)\) < model \w+ size\((\d+)\)": known(
        r"rknn_set_io_mem: the \1 memory is too small (RKNN_ERR_PARAM_INVALID)",
        r"\2 bytes given, \3 needed: size_with_stride of the attribute",
    ),
    r"info_len\((\d+)\) < sizeof\((\w+)\)\((\d+)\)": known(
        r"rknn_query: program and library were built with different headers (RKNN_ERR_PARAM_INVALID)",
        r"\2 has \3 bytes, the program passes \1",
    ),
    r"Invalid RKNN model version (\d+)": known(
        r"the .rknn file has format \1, newer than the library (RKNN_ERR_MODEL_INVALID)"
    ),
    r"Meet unsupported src layout for normalize": known(
        "rknn_inputs_set: fmt NCHW cannot be used where mean and std are applied; use NHWC"
    ),
    r"core mode (\d+) is not supported": known(r"rknn_set_core_mask: \1 is none of 0, 1, 2, 4, 3, 7, 0xffff"),
    r"Not support core mask: (\d+)": known(
        r"matrix products run on one core; mask \1 was rejected (RKNN_ERR_FAIL)"
    ),
    r"failed to convert fd\S* .*to handle": known(
        "a buffer cannot be mapped for the NPU: its 4 GiB of addresses are full, or fd is not a dma-buf"
    ),
    r"fence fd = -1 is invalid": known(
        "rknn_wait or rknn_run requires a fence, and none was given (extend.fence_fd)"
    ),
    r"invalid RKNN_MAGIC|Invalid RKNN format": known(
        "the file is no .rknn file, or it is damaged (RKNN_ERR_MODEL_INVALID)",
        "compare its size and checksum with the original: a transfer in text mode changes bytes "
        "(airockchip/rknn-toolkit2 #60); a Git LFS pointer and a model of toolkit 1 (rknpu) give it, too",
    ),
    r"does not match the RKNPU hardware version": known(
        "the model was compiled for another chip: convert it again with target_platform='rk3588'",
    ),
    r"rknn model target platform\[\d+\] is (\w+), while current platform is (\w+)": known(
        r"the model was compiled for \1 and the board is \2: convert it again for the board",
    ),
    r"rknn_set_input_shapes error, input name = (\S+)": known(
        r"the shape given for input '\1' is none of those that the model was built for",
        "the lines behind it list them with their layout: dims have to be in the order of fmt (an input of "
        "1, 224, 224, 1 in NHWC is not 1, 1, 224, 224), and of the same rank",
        "rknn_query(RKNN_QUERY_INPUT_DYNAMIC_RANGE) gives the shapes that a model has",
    ),
    r"Invalid quantized_dtype '(\S+)', expect in": known(
        r"the toolkit's config does not know quantized_dtype '\1'",
        "names of toolkit 1 (asymmetric_quantized-8, dynamic_fixed_point) were replaced: int8 is 'w8a8'; for "
        "fp16 leave it out and use build(do_quantization=False)",
    ),
}
