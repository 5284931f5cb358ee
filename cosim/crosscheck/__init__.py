"""Comparison of the RTL with the golden models."""

from cosim.crosscheck.check import copy_memory, cross_check, use_memory
from cosim.crosscheck.compare import Difference, TensorMap, Verdict, compare_images, judge
from cosim.crosscheck.kick import Kick, KickResult, run_kick

__all__ = [
    "Difference",
    "Kick",
    "KickResult",
    "TensorMap",
    "Verdict",
    "compare_images",
    "copy_memory",
    "cross_check",
    "judge",
    "run_kick",
    "use_memory",
]
