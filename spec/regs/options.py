"""Choices between two interpretations of the hardware that measurements on boards do not decide.

Every option is one bit of the core's `options` input, high for the interpretation that is not the default.
The golden model takes the same names. The module does not need Amaranth. docs/reference has the rule that
an option belongs to and its provenance.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from dataclasses import dataclass

OPTION_BITS = 8
"""Width of the core's `options` input."""

VARIABLE = "RKCOSIM_OPTIONS"
"""Environment variable with the options of this process and its child processes, separated by commas."""


@dataclass(frozen=True)
class Option:
    """One choice.

    Members
    -------
    name : name, which begins with the question that it answers, for example "q1_...".
    rule : number of the rule in docs/reference.
    default, otherwise : behaviour of the model without the option, and with it.
    """

    name: str
    rule: str
    default: str
    otherwise: str


OPTIONS: tuple[Option, ...] = (
    Option(
        "d1_three_atoms_int8",
        "3.6.2",
        "three atoms of the last block of int8 depthwise weights take the place of four",
        "they take the place of three",
    ),
    Option(
        "j8_start_with_first_rows",
        "4.11.1",
        "a convolution starts when FEATURE_GRAINS rows are in CBUF",
        "it starts when the rows of its first stripe are in CBUF",
    ),
    Option(
        "q1_zero_point_after_rounding",
        "7.10.1",
        "OUT_CVT rounds the shifted value with its offset, which decides how ties are rounded",
        "OUT_CVT rounds the shifted value, then adds the offset",
    ),
    Option(
        "r2_pend_never_inside_atoms",
        "7.11.1",
        "flying, channels past ORIG_CHANNEL are OFFSET_PEND in the last atom and in atoms without others",
        "they are OFFSET_PEND in atoms without others; elsewhere ERDMA's operand is 0 for them",
    ),
    Option(
        "i5_rows_and_weights_first",
        "4.11.1",
        "a convolution starts when FEATURE_GRAINS rows are in CBUF",
        "it starts when all rows of the task are in CBUF, and all weights or as many as fit their banks",
    ),
)
"""All options; the index in the tuple is the bit of the input."""


def option_names() -> tuple[str, ...]:
    """Names of all options, in the order of their bits."""
    return tuple(option.name for option in OPTIONS)


def option_bit(name: str) -> int:
    """Bit of an option in the core's `options` input.

    Raises
    ------
    ValueError
        If there is no such option; the message lists the existing ones.
    """
    names = option_names()
    if name not in names:
        raise ValueError(f"there is no option '{name}'; the options are {', '.join(names) or 'none'}")
    return names.index(name)


def options_mask(names: Iterable[str]) -> int:
    """Value of the core's `options` input; raises ValueError as `option_bit`."""
    mask = 0
    for name in names:
        mask |= 1 << option_bit(name)
    return mask


def chosen_options(names: Iterable[str] | None = None) -> frozenset[str]:
    """The given options, or those of the environment if `names` is None.

    Raises
    ------
    ValueError
        As `option_bit`; the message names the environment variable if the name comes from there.
    """
    if names is not None:
        chosen = frozenset(names)
        options_mask(chosen)
        return chosen
    chosen = frozenset(name.strip() for name in os.environ.get(VARIABLE, "").split(",") if name.strip())
    try:
        options_mask(chosen)
    except ValueError as error:
        raise ValueError(f"{VARIABLE}: {error}") from None
    return chosen
