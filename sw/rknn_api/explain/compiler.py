"""Lines of the compiler of the vendor's toolkit and of the runtime, which build tasks for a model.

The forms of the lines are those that public threads quote: airockchip/rknn-toolkit2 #193, #377, #419,
airockchip/rknn-llm #417, airockchip/rknn_model_zoo #82, #181, #227, rockchip-linux/rknn-toolkit2 #173, #217,
#272, #557.  What a field means and how far it reaches comes from the register description.
"""

from __future__ import annotations

import re

from rkcosim.rknn_api.explain.explanation import Explanation, Rules, integer, known
from rkcosim.spec.regs import Field, registers

_UNKNOWN_TARGET = "if the log is of another chip, its field has another place"


def _too_wide(match: re.Match[str]) -> Explanation:
    """Explain a value that a field of a register cannot hold, and how far the layer is too large."""
    offset, shift, limit, value = (integer(match[name]) for name in ("offset", "shift", "limit", "value"))
    register = registers().at(offset)
    field = next((one for one in register.fields.values() if one.lsb == shift), None) if register else None
    if register is None or field is None:
        return Explanation(
            match[0],
            "the compiler has a value that a field of a register cannot hold",
            [f"the RK3588 has no field at bit {shift} of 0x{offset:04X}; {_UNKNOWN_TARGET}"],
        )
    lines = [
        f"{register.path} at 0x{offset:04X} ({_sentence(register.desc)}), bits {field.msb}:{field.lsb}: "
        f"{_sentence(field.desc) or field.name}",
        f"the field has {field.width} bits, so it holds at most {field.most}; the layer needs {value}",
    ]
    if limit != field.most:
        lines.append(f"the line's limit is {limit}: {_UNKNOWN_TARGET}")
    lines += _cut(field, value)
    lines.append(
        "lines of this kind come in groups, one for each task and field; a model that is built nevertheless "
        "has tasks whose field lost its upper bits "
        f"({value & field.most}), so their results cannot be right [derived]"
    )
    return Explanation(
        match[0], f"a layer is too large for {register.path}.{field.name}, when the model is compiled", lines
    )


def _sentence(text: str) -> str:
    return re.sub(r"(\s*\[[^\]]*\])+$", "", text)


def _cut(field: Field, value: int) -> list[str]:
    """Return which dimension of the layer has to become smaller, and by how much."""
    most = field.most
    if "NOTCH" in field.name:
        return [
            "a notch is the rest of a row behind the part that a task handles: the full row is "
            f"{value - most} atoms too long (an atom has 16 bytes: 16 int8 or 8 fp16 channels of a pixel)",
            "the compiler needs such rows for Transpose, Reshape, Concat and changes of layout of long "
            f"tensors: make the dimension that becomes the row shorter than {most + 1}, for example by "
            f"splitting it into {-(-value // most)} or more parts before the operator, or move the operator "
            "out of the model",
        ]
    counted = {"WIDTH": "width", "HEIGHT": "height", "CHANNEL": "number of channels", "KERNEL": "kernel"}
    name = next((text for part, text in counted.items() if part in field.name), "size")
    less_one = bool(re.search(r"-\s*1\b", field.desc))
    size, largest = value + less_one, most + less_one
    return [
        f"the layer's {name} as the compiler laid it out is {size}, and a task takes at most {largest}: "
        f"split that dimension into {-(-size // largest)} or more parts, or choose a smaller input"
    ]


def _unsupported(match: re.Match[str]) -> Explanation:
    return Explanation(
        match[0],
        f"the operator {match['op']} has neither an NPU nor a CPU implementation in this version",
        [
            "the model cannot be built or run as it is; a newer release of toolkit and runtime may have it",
            "otherwise write it with other operators, cut the model before it "
            "(inputs and outputs of load_onnx), or register it as a custom operator",
        ],
    )


def _layout(match: re.Match[str]) -> Explanation:
    """Explain a change of layout or a transpose whose distances do not fit the registers."""
    notches = [
        (register, register.fields[name])
        for register, name in (
            (registers()["DPU"]["DATA_CUBE_NOTCH_ADDR"], "NOTCH_ADDR_0"),
            (registers()["DPU_RDMA"]["SRC_DMA_CFG"], "LINE_NOTCH_ADDR"),
        )
    ]
    what = {
        "Unpack": "an unpacking of the native layout",
        "CHW_C1HWC2": "a change of layout from C, H, W to the native C1, H, W, C2",
        "ABC_T_BAC": "a transpose of three dimensions (A, B, C to B, A, C)",
    }.get(match["kind"], f"{match['kind']} (a change of layout or a transpose)")
    if match["why"] == "not aligned":
        lines = [
            "the compiler wanted to emit it as tasks of the NPU, and a dimension is not a multiple of what "
            "the native layout takes (16 int8 or 8 fp16 channels in an atom)"
        ]
    else:
        names = " and ".join(f"{register.path}.{field.name}" for register, field in notches)
        most = min(field.most for _, field in notches)
        lines = [
            "the compiler wanted to emit it as tasks of the NPU, and the distance between rows or surfaces "
            "does not fit the registers",
            f"{names} hold at most {most} atoms of 16 bytes, so a tensor with more rows or columns than that "
            "(often a flattened one) causes it",
            "keep the dimensions separate, or split the tensor before the Reshape or Transpose",
        ]
    lines.append("lines of level E behind it (REGTASK) say that tasks were emitted with such a value")
    return Explanation(match[0], what, lines)


RULES: Rules = {
    (
        r"REGTASK: The bit width of field value exceeds the limit, target: \w+, "
        r"offset: (?P<offset>0x[0-9a-fA-F]+), shift = (?P<shift>\d+), "
        r"limit: (?P<limit>0x[0-9a-fA-F]+), value: (?P<value>0x[0-9a-fA-F]+)"
    ): _too_wide,
    (
        r"emit(?P<kind>\w+?)_?[Rr]egtasks?:? (?P<why>notch_addr overflow|align_surf overflow|not aligned|"
        r"align_surf\(\d+\) > notch_limit\(\d+\))"
    ): _layout,
    r"DatainEntries overflow, need to tiling more, datain_entries: (\d+), limitation: (\d+)": known(
        "the compiler tries how to divide a layer, and this attempt is too large",
        r"the input rows of a task would take \1 entries of the CBUF, and the compiler allows \2",
        "a line of level D: it tries smaller parts next. It is no error and does not change results",
    ),
    r"failed to config argb mode layer": known(
        "the compiler cannot set up a layer for the CNA's image mode (input of 1 to 4 channels)",
        "seen with a first convolution, and in toolkit 1.6.0 with the Softmax of YOLOv8's DFL, whose "
        "convolution has one output channel (rockchip-linux/rknn-toolkit2 #272); the program aborts",
        "use a newer toolkit, or cut the model before that Softmax and compute the rest in the program",
    ),
    r"[Pp]ad: mode (\w+) unsupport pads\[(\d+)\] = (-?\d+)": known(
        r"the compiler does not pad with mode \1 on the NPU here: pads[\2] is \3",
        "pads lists the begins of all dimensions and then their ends (ONNX)",
        "a warning: the operator is computed in another way; pad in the convolution or in the program "
        "if that is slow",
    ),
    r"channel is too large, may produce thousands of regtask": known(
        "a layer has so many channels that it would need thousands of tasks: it runs on the CPU",
        "often a MatMul, Transpose or Softmax over a vocabulary or an embedding; airockchip/rknn_model_zoo "
        "#227 saw it on the RK3588 and not on the RK3576",
        "reorder the dimensions so that the large one is height or width, or split it",
    ),
    r"invalid tensor malloc size, tensor name: (\S*?), target: (\w+), size: (\d+)": known(
        r"the compiler wants \3 bytes on the \2 for tensor '\1': a tensor without elements, or one whose "
        "size is unknown",
        "a dynamic or zero dimension is left in the model, or an operator before it could not be built "
        "(see the lines before; in airockchip/rknn-toolkit2 #193 REGTASK errors)",
        "give all dimensions as numbers, simplify the model, and look at the first error, not this one",
    ),
    r"Failed to config layer: '(?P<layer>[^']+)' using (?P<cores>\d)Core fallback to single core mode": known(
        r"layer \1 cannot be divided among \2 cores: it runs on one core, with the same result",
        "the lines behind it give its sizes (ori_I input, ori_K kernel, ori_O output)",
    ),
    r"Failed to config layer: '(?P<layer>[^']+)', Fatal Error": known(
        r"layer \1 cannot be built: no division into tasks fits the CBUF and the fields of the registers",
        "the lines behind it give its sizes; smaller width or channels, or another padding, avoid it",
    ),
    r"No lowering found for: (\S+), node type = (\w+), use CustomOperatorLower instead": known(
        r"operator \2 (\1) is unknown to this toolkit: the model needs a custom operator of that name",
        "rknn_register_custom_ops supplies it at run time; otherwise write it with other operators",
    ),
    r"[Mm]eet unsupported? (?P<op>\w+)$": _unsupported,
    r"[Uu]nsupport(?:ed)?\s+(?:CPU op:\s*|cpu\s+)?(?P<op>\w+)(?: op)?\b.* (?:in current|in this librknnrt)": (
        _unsupported
    ),
    r"rknn fallback cpu failed": known(
        "an operator that the NPU cannot do has no CPU implementation in this runtime",
        "the line before names it; the model cannot run with this version",
    ),
}
