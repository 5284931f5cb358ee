"""What the mutation check leaves alone, each with the reason: nothing a run shows depends on it."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

_COUNTED = "shown to the counters"
_SLEEP = "says when a clock edge may be left out; the watched build checks that it is never too often"

FILES: dict[str, str] = {
    "rtl/config.py": "choices of the geometry, fixed before elaboration",
    "rtl/core.py": "wiring of the blocks, and counters",
    "rtl/soc.py": "not part of an engine",
    "rtl/counters.py": "counts what others do; a test compares it with its C++ twin",
    "rtl/activity.py": "shown to the counters",
    "rtl/layouts.py": "shapes",
    "rtl/npu/dma_registers.py": "a table of names",
    "rtl/npu/array.py": "engines replace the array cell by its C++ twin; a test compares the two",
    "rtl/npu/array_integer.py": "engines replace the array cell by its C++ twin; a test compares the two",
    "rtl/npu/array_float.py": "engines replace the array cell by its C++ twin; a test compares the two",
    "rtl/npu/array_round.py": "engines replace the array cell by its C++ twin; a test compares the two",
    "rtl/clock_groups.py": _SLEEP,
    "cosim/golden/task/__init__.py": "imports",
    "cosim/golden/task/errors.py": "texts",
    "cosim/golden/task/observer.py": "shows internals to a lockstep run; no part of a task",
    "cosim/golden/task/npu.py": "the device protocol around the model, not the model",
}
"""Modules without arithmetic or control of a task."""

FUNCTIONS: dict[str, dict[str, str]] = {
    "rtl/regbus.py": {"_watch": "shown to whoever looks on"},
    "cosim/golden/task/memory.py": {
        "atom_ranges": "ranges for messages of a lockstep run",
        "copy": "for tests",
        "write": "the host's way in",
        "unmap": "no task takes mappings away",
        "regions": "for messages",
    },
    "cosim/golden/task/device.py": {
        "waits": "texts for people",
        "_wait": "texts for people",
        "run_task": "an entry for tests, beside the device protocol",
        "run_kick": "an entry for tests, beside the device protocol",
        "_host_pointers": "an entry for tests, beside the device protocol",
    },
    "cosim/golden/task/cna.py": {"occupied": "shows internals to a lockstep run"},
    "cosim/golden/task/core.py": {"delivered": "shows internals to a lockstep run"},
    "cosim/golden/task/core_float.py": {
        "_width": "decides which of two exact ways is taken; more than it must be is slower and as right",
        "_span": "decides which of two exact ways is taken; more than it must be is slower and as right",
    },
}
"""Module to functions of it."""

NAMES: dict[str, dict[str, str]] = {
    "rtl/pc_dma.py": {"moves": _SLEEP},
    "rtl/regfile.py": {"moves": _SLEEP},
    "rtl/npu/atom_writer.py": {"moves": _SLEEP},
    "rtl/npu/cna.py": {"feature_moves": _SLEEP, "weight_moves": _SLEEP},
    "rtl/npu/dpu_pipe.py": {
        **{"moves": _SLEEP, "float_task": _SLEEP},
        **dict.fromkeys(("lacks", "lacks_bs"), _COUNTED),
    },
    "rtl/npu/dpu_float.py": {"lacks": _COUNTED},
    "rtl/npu/dpu_rdma.py": {"moves": _SLEEP},
    "rtl/npu/dpu_rdma_operands.py": {"beats": _COUNTED},
    "rtl/npu/atom_reader.py": {"beats": _COUNTED},
    "rtl/npu/csc.py": dict.fromkeys(("active", "preparing"), _COUNTED),
    "rtl/npu/ddma.py": dict.fromkeys(("passes", "READ_BURSTS", "WRITE_BURSTS", "WRITE_QUEUE"), _COUNTED),
    "rtl/npu/dpu_writer.py": {"moves": _SLEEP},
    "rtl/npu/csc_pixels.py": {
        **{f"stall_{name}": "an event that is only counted" for name in ("feature", "weight", "acc")},
        **dict.fromkeys(("kernels", "macs", "array_macs"), _COUNTED),
    },
    "rtl/npu/dpu.py": {
        **dict.fromkeys(("busy_octet", "lacks"), "an event that is only counted"),
        **{name: _SLEEP for name in ("moves", "writer_moves", "float_task")},
    },
    "rtl/npu/ppu.py": {
        **dict.fromkeys(("busy_atom", "lacks"), "an event that is only counted"),
        **dict.fromkeys(("starved", "refused", "(in_row, row_ends)"), _COUNTED),
    },
    "rtl/npu/cna_weight.py": {
        "some": "where the first fetch is cut: only how fast",
        "first_atoms": "where the first fetch is cut: only how fast",
        **dict.fromkeys(("held", "beats"), _COUNTED),
    },
    "rtl/npu/cna_fetch.py": {
        "joins": "whether two runs share a burst of the bus: only how fast",
        "short": "whether two runs share a burst of the bus: only how fast",
        "beats": _COUNTED,
    },
    "cosim/golden/task/rdma.py": {
        **{name: "sizes of readers that do not run" for name in ("width", "height", "channels", "group")}
    },
    "cosim/golden/task/core.py": {
        "narrow": "which of two exact ways is taken; a wrong choice in the other direction is a slower one",
        "block": "pixels at a time; a slice ends with its array",
        "step": "pixels at a time: only how fast",
        "at_once": "taps at a time: only how fast",
        "_BLOCK": "products at a time: only how fast",
        "macs": "a statistic, which only estimates time",
    },
    "cosim/golden/task/cna.py": {
        f"_held['{kind}']": "shown to a lockstep run" for kind in ("feature", "weight")
    },
    "cosim/golden/task/dpu.py": {"client": "texts for people"},
    "cosim/golden/task/cna_argb.py": {"ATOM": "zeros in CBUF behind the last pixel, which no pixel reads"},
    "cosim/golden/task/dpu_float.py": {"half": "a longer table holds the same entries again"},
    "cosim/golden/task/context.py": {"macs": "a statistic, which only estimates time"},
    "cosim/golden/task/device.py": {"_task": "the number of the task, for messages"},
    "cosim/golden/task/ppu.py": {
        "_FAR": "a place beyond all values: any is as good",
        "nan": "a place beyond all others: any is as good",
    },
    "cosim/golden/task/core_float.py": {
        "(xh, wh)": "where numbers are cut in two: any place near does",
        "gone": "any shift that leaves no bit will do",
        "limit": "which of two exact ways is taken; a lower limit is slower and as right",
        "direct": "which of two exact ways is taken; a wrong choice in the other direction is a slower one",
        "large": "which of two ways to round is taken; numbers that both hold come out alike",
        "_PAIRS": "pairs at a time: only how fast",
    },
}
"""Module to names: what is assigned to them is left alone."""


EXPRESSIONS: dict[str, dict[str, str]] = {
    "rtl/npu/cna_settings.py": {
        "self.slab_entries - entries": "a slab larger than the RK3588's CBUF is the only one of its task"
    },
    "rtl/npu/dpu_rdma_stripes.py": {"rest > 15": "at 15 both ways give 16 pixels"},
    "rtl/list_fetch.py": {"room >= chunk": "when the next burst is asked for: only how soon"},
    "rtl/npu/float32.py": {
        "value[23:31] < 118": "at 118 the value is below 2^-8 and comes to 0 either way",
        "apart > 32": "at 33 a normal number still leaves a bit, and a subnormal one is below all rounding",
    },
    "cosim/golden/task/ppu.py": {
        "pad > best": "where they are equal, either is",
        "out.shape[:3]": "what follows the third size is not looked at",
    },
    "cosim/golden/task/arith.py": {"value >= 0": "0 is 0 with either shift"},
    "cosim/golden/task/dpu.py": {"conv[1].shape[1]": "sums and window sums have one shape"},
    "cosim/golden/task/dpu_stages.py": {"value >= 0": "0 is 0 multiplied or not"},
    "cosim/golden/task/core_float.py": {
        "(1 << 24) - 1": "the bit above is the last one of the sum already",
        "bits >> 31 == 1": "when the signs of both operands turn round, that of the product does not",
    },
}
"""Module to expressions that may be changed without a difference."""


@dataclass(frozen=True)
class Rules:
    """Functions, assigned names and expressions of a module in which nothing is changed."""

    functions: frozenset[str]
    names: frozenset[str]
    expressions: frozenset[str]


def rules_of(path: str) -> Rules:
    """What is left alone in a module."""
    return Rules(*(frozenset(rules.get(path, ())) for rules in (FUNCTIONS, NAMES, EXPRESSIONS)))


def modules(root: Path, folders: tuple[str, ...]) -> list[tuple[str, str]]:
    """(path, source) of the modules of some folders that may be changed."""
    found = []
    for folder in folders:
        for path in sorted((root / folder).glob("*.py")):
            name = str(path.relative_to(root))
            if name not in FILES:
                found.append((name, path.read_text()))
    return found
