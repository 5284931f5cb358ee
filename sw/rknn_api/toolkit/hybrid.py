"""The text in which users of `hybrid_quantization_step1` name the layers that stay in floating point.

Like `api.py`, this module is copied into the folder `rknn` and depends on nothing of rkcosim.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

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
