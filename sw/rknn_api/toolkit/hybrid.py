"""The files between the steps of hybrid quantisation: data, and a text that names layers in floating point.

Like `api.py`, this module is copied into the folder `rknn` and depends on nothing of rkcosim.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

ALGORITHMS = {"normal": "minmax", "kl_divergence": "entropy", "mmse": "mse"}
"""Algorithms of the toolkit, and the methods of `rkcosim quantize`."""

METHODS = {"channel": "--per-channel", "layer": "--per-tensor"}
"""Methods of the toolkit, and the options of `rkcosim quantize`."""

HYBRID = "custom_quantize_layers:"
"""Heading of the layers in the text."""


def hybrid_text(first: Sequence[str], tensors: Sequence[str]) -> str:
    """Return the text in which users name the layers that stay in floating point.

    Parameters
    ----------
    first : tensors, results of layers, that are proposed.
    tensors : all of them, which are listed as comments.
    """
    return "\n".join(
        [
            "# Layers that do not run in int8: the name of a layer's result, and float16.",
            HYBRID,
            *(f"    {tensor}: float16" for tensor in first),
            "# The results of all layers:",
            *(f"#   {tensor}" for tensor in tensors),
            "",
        ]
    )


def hybrid_layers(text: str, layers: Mapping[str, str]) -> list[str]:
    """Return the names of the layers that a text of `hybrid_quantization_step1` keeps in floating point.

    Parameters
    ----------
    text : the text.
    layers : names of layers by the names of their results.

    Raises
    ------
    ValueError
        If a layer does not exist, or its type is neither float16 nor int8.
    """
    found, inside = [], False
    for line in text.splitlines():
        row = line.strip()
        if not row or row.startswith("#"):
            continue
        if not line[0].isspace():
            inside = row.startswith(HYBRID)
            continue
        if not inside:
            continue
        name, _, kind = (part.strip().strip("'\"") for part in row.rpartition(":"))
        if name not in layers and name not in layers.values():
            raise ValueError(f"no layer has the result '{name}'")
        if kind not in ("float16", "int8"):
            raise ValueError(f"'{name}' has the type '{kind}', but only float16 and int8 are available")
        if kind == "float16":
            found.append(layers.get(name, name))
    return found


_NUMBERS = re.compile(r"--(mean|std)=[-+0-9.,/einfa]*")


def read_hybrid(data_input: str, model_quantization_cfg: str) -> tuple[str, list[str], list[str]]:
    """Return data set, options and names of the layers in floating point, of `hybrid_quantization_step1`.

    Raises
    ------
    OSError
        if a file cannot be read.
    ValueError
        if a file was not written by step 1, or names layers or types that do not exist.
    """
    try:
        data = json.loads(Path(data_input).read_text(encoding="utf-8"))
        dataset, quantising, layers = data["dataset"], data["quantising"], data["layers"]
        names = [*layers, *layers.values()]
    except (KeyError, TypeError, AttributeError, ValueError, RecursionError) as error:
        raise ValueError(f"{data_input} was not written by hybrid_quantization_step1") from error
    if not isinstance(dataset, str) or (wrong := _not_ours(quantising)) is not None:
        what = "dataset" if not isinstance(dataset, str) else f"option {wrong!r}"
        raise ValueError(f"{data_input} has a {what} that hybrid_quantization_step1 never writes")
    if not all(isinstance(name, str) for name in names):
        raise ValueError(f"{data_input} has a layer that hybrid_quantization_step1 never writes")
    try:
        kept = hybrid_layers(Path(model_quantization_cfg).read_text(encoding="utf-8"), layers)
    except ValueError as error:
        raise ValueError(f"{model_quantization_cfg}: {error}") from error
    return dataset, quantising, kept


def _not_ours(words: Any) -> Any:
    """Return the first of the options in a data file that is not one of `hybrid_quantization_step1`.

    A data file may come from anybody, and its options are given to a command that can write files.
    """
    if not isinstance(words, list):
        return words
    before = ""
    for word in words:
        if not isinstance(word, str):
            return word
        known = word in ("--method", "--bgr", "--pixels", *METHODS.values()) or _NUMBERS.fullmatch(word)
        if not (word in ALGORITHMS.values() if before == "--method" else known):
            return word
        before = word
    return before if before == "--method" else None
