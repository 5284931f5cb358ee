"""Choices between two readings of the hardware, where what boards did does not decide between them.

Every option is one bit of the core's `options` input, high for the reading that is not the default; the
golden model takes the same names.  Needs no Amaranth.  The rule that an option belongs to and its provenance
are in docs/hardware.md.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from dataclasses import dataclass

OPTION_BITS = 8
"""Width of the core's `options` input."""

VARIABLE = "RKCOSIM_OPTIONS"
"""Environment variable with the options of this process and its children, separated by commas."""


@dataclass(frozen=True)
class Option:
    """One choice.

    Members
    -------
    name : begins with the question it answers, for example "q1_...".
    rule : number of the rule in docs/hardware.md.
    default, otherwise : what the model does without the option, and with it.
    """

    name: str
    rule: str
    default: str
    otherwise: str


OPTIONS: tuple[Option, ...] = (
    Option(
        "d1_three_atoms_int8",
        "3.3",
        "three atoms of the last block of int8 depthwise weights take the place of four",
        "they take the place of three",
    ),
    Option(
        "j8_start_with_first_rows",
        "3.9",
        "a convolution starts when FEATURE_GRAINS rows are in CBUF",
        "it starts when the rows of its first stripe are",
    ),
    Option(
        "q1_zero_point_after_rounding",
        "4.8",
        "OUT_CVT rounds the shifted value with its offset, which decides about ties",
        "OUT_CVT rounds the shifted value, then adds the offset",
    ),
)
"""All options; the place in the tuple is the bit of the input."""


def option_names() -> tuple[str, ...]:
    """Names of all options, in the order of their bits."""
    return tuple(option.name for option in OPTIONS)


def option_bit(name: str) -> int:
    """Bit of an option in the core's `options` input.

    Raises
    ------
    ValueError
        for a name that does not exist; the message lists those that do.
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
    """The options given, or those of the environment when none are given.

    Raises
    ------
    ValueError
        as `option_bit`; names the environment variable when the name comes from there.
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
