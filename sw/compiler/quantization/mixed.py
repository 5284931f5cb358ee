"""Models of which the most important layers stay in floating point."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from rkcosim.compiler.quantization.accuracy import Accuracy
from rkcosim.compiler.quantization.forms import FloatModel
from rkcosim.compiler.quantization.quantizer import Settings
from rkcosim.compiler.quantization.session import Sample

ROUNDS = 4
"""Most rounds in which layers are chosen.  Layers that only help together are not found in one round."""


def keep_most_important(
    model: FloatModel,
    samples: Sequence[Sample],
    settings: Settings,
    count: int,
    found: Accuracy | None = None,
) -> tuple[str, ...]:
    """Return the names of the layers to keep in floating point: those of `settings`, and `count` others.

    In each round the layers that the worst output gains most from are added, and the model is quantised again
    with them in floating point.

    Parameters
    ----------
    model, samples, settings
        As for `FloatModel.quantize`.
    count
        Number of layers to choose.
    found
        Result of `measure` with `gains` for these settings, if it is known.

    Raises
    ------
    ModelError
        As `FloatModel.quantize` and `FloatModel.measure`.
    """
    kept = settings.keep
    rounds = min(count, ROUNDS)
    for number in range(rounds):
        if number or found is None:
            made = model.quantize(samples, replace(settings, keep=kept))
            found = model.measure(made, samples, gains=True)
        many = count * (number + 1) // rounds - count * number // rounds
        more = [layer.name for layer in found.worst(len(found.layers)) if layer.name not in kept][:many]
        kept = (*kept, *more)
    return kept
