"""A compiled model on the golden device, checked at both levels."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from rkcosim.compiler import CompiledModel, LoadedModel
from rkcosim.verify.crosscheck.model_check import GoldenDriver, ModelChecker


def checked_run(model: CompiledModel, values: Sequence[np.ndarray]) -> np.ndarray:
    """Run on codes or numbers, one array per input; return the first output in its memory layout."""
    with LoadedModel(model, GoldenDriver()) as loaded:
        for index, item in enumerate(values):
            loaded.set_input(index, item)
        loaded.run()
        checker = ModelChecker(loaded, "device")
        verdict = checker.check(list(values))
        assert verdict.match, verdict.first
        assert checker.check_memory() is None
        checker.close()
        return loaded.get_output(0, raw=True)
