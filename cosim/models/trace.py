"""A waveform around the first wrong byte of a model's run."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from cosim import progress
from cosim.crosscheck.mismatch import run_watched, trace_mismatch
from waves.spec import TraceSpec


def trace_model_mismatch(
    trace: TraceSpec,
    verdict: dict[str, Any],
    batch: Sequence[Sequence[Any]],
    open_session: Callable[[TraceSpec | None], Any],
) -> dict[str, Any]:
    """Run a model again up to the inference that went wrong, for the write of its first wrong byte.

    Parameters
    ----------
    trace : what to write; begins at "mismatch".
    verdict : with "inference" and "address" if something differs.
    batch : inputs of all inferences.
    open_session : a fresh `cosim.models.run.Session`, with a waveform or None.

    Returns
    -------
    What to add to the verdict: the "cycle" of that write.
    """
    if "address" not in verdict:
        progress.say("no waveform: nothing differs")
        return {}

    def rerun(spec: TraceSpec | None, address: int | None) -> list[int]:
        with open_session(spec) as session:

            def run() -> None:
                for values in batch[: verdict["inference"] + 1]:
                    session.infer(values)

            return run_watched(session.device, None, address, run)

    cycle, said = trace_mismatch(trace, verdict["address"], rerun)
    progress.say(said)
    return {"cycle": cycle}
