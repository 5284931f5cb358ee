"""What was tried to make an int8 model better, and what it gained."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from typing import Any


@dataclass(frozen=True)
class Cost:
    """What an inference takes: estimated cycles of the NPU, and operators on the host."""

    cycles: int
    host_operators: int


@dataclass
class Trial:
    """A change that was tried.

    Members
    -------
    text
        What was done, in words.
    options
        Options of `rkcosim quantize` that do it.
    error
        Mean relative error of the channels, the mean of all outputs, on the held-out samples.
    sqnr
        SQNR of the worst output in dB; None if there is no error.
    noise
        Standard error of the difference of `error` from that of the model without the change.
    advised
        Whether the change makes the outputs better by more than the noise.
    cost
        What an inference takes; None if that is unknown.
    """

    text: str
    options: list[str]
    error: float
    sqnr: float | None
    noise: float = 0.0
    advised: bool = False
    cost: Cost | None = None


@dataclass
class Advice:
    """Result of `advise`.

    Members
    -------
    calibrated, measured
        Numbers of samples.
    before
        The model without a change.
    trials
        All changes that were tried, the best first.
    failed
        Changes that could not be made, with the reason.
    together
        Advised changes that were made one after the other, each kept if it makes the outputs better by more
        than the noise once more; None if fewer than two were kept.
    """

    calibrated: int
    measured: int
    before: Trial
    trials: list[Trial]
    failed: list[str] = field(default_factory=list)
    together: Trial | None = None

    @property
    def advised(self) -> list[Trial]:
        """The changes that make the outputs better by more than the noise, the best first."""
        every = [*self.trials, *([self.together] if self.together else [])]
        return sorted((trial for trial in every if trial.advised), key=lambda trial: trial.error)

    def as_json(self) -> dict[str, Any]:
        """Return everything in a form for `json.dump`."""
        return asdict(self)
