"""Named terms of time that published figures include beside the cycles of the NPU.

Each series of measurements has its terms.  Their values are fitted to rows of the fitted half only
(`python -m tools.calibrate`), apart from those that a source states.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from rkcosim.measure.perf.boards.expected import INT4_ROWS_GOPS, PRODUCT_RUN_US
from rkcosim.measure.perf.boards.language import LanguageModel
from rkcosim.measure.perf.boards.table import BoardRow
from rkcosim.spec.submit import SUBMIT_PARTS_US, SUBMIT_US

CALIBRATION = Path(__file__).with_name("calibrated.json")
"""Values that `tools.calibrate` fitted to boards, with the ids of the rows used for each."""

CALIBRATION_VERSION = 2


@dataclass(frozen=True)
class Term:
    """A constant of the time beside the NPU's.

    Members
    -------
    name, unit : "us" for a time, "GB/s" for a rate.
    what : what takes this time, or moves at this rate.
    lumped : parts that public measurements do not separate from it; empty if it is one part.
    published : value that a source states; None for a fitted one.
    source : where it is stated, for a published one.
    """

    name: str
    unit: str
    what: str
    lumped: str = ""
    published: float | None = None
    source: str = ""


PROFILES: Mapping[str, str] = {
    "yolov5s-640": "YOLOv5s with ReLU, int8, toolkit 1.5.0, one core",
    "yolov8n-1920": "YOLOv8n at 1920x1920, int8, toolkit 2, one core",
    "yolov8n-three-cores": "YOLOv8n at 1920x1088 and 1920x1920, int8, runtime 2, C++, three cores",
    "unet-256": "U-Net at 256x256, fp16, toolkit 2.3.0, one core",
    "unet-128": "a smaller U-Net, most of it at 128x128, fp16, toolkit 2.3.0, one core",
    "yolov10-640": "four layers of YOLOv10, int8, one core",
}
"""Series that are profiles of networks, layer by layer, and what was profiled."""


def profiling(series: str) -> str:
    """Return the name of what profiling adds to each layer of a profile."""
    return f"profiling of {series}"


RUN, RUN_ROWS, RUN_SEVERAL = "rknn_matmul_run", "rknn_matmul_run of rows", "rknn_matmul_run on several cores"
CHAINED, OPERATOR, RKLLM = "chained jobs", "one operator", "rkllm"
"""Other series: products by three ways to call them, by another driver library, models of one operator, and
language models by the vendor's runtime."""

SERIES = (*PROFILES, RUN, RUN_ROWS, RUN_SEVERAL, CHAINED, OPERATOR, RKLLM)

SUBMIT, INTERRUPT, WAKE_UP = SUBMIT_PARTS_US
HOST_CALL, ROWS_INT4 = "host call of rknn_matmul_run", "conversion of int4 rows"
SEVERAL, STREAM = "product on several cores", "stream of several cores"
CHAIN, OPERATOR_CALL, SUMS = "chain of jobs", "rknn_run of one operator", "host work on a sum of a prefill"
"""Names of terms."""

_DRIVER = "[HW 12.5], ftrace of the vendor's driver"
_RUN = f"[HW 12.5], {PRODUCT_RUN_US:g} us in all"

TERMS: dict[str, Term] = {
    term.name: term
    for term in (
        Term(
            SUBMIT,
            "us",
            "the driver's part of a submit, to the write that starts the job",
            "",
            SUBMIT_PARTS_US[SUBMIT],
            _DRIVER,
        ),
        Term(
            INTERRUPT,
            "us",
            "the handler of the interrupt",
            "the latency of the interrupt",
            SUBMIT_PARTS_US[INTERRUPT],
            _DRIVER,
        ),
        Term(
            WAKE_UP,
            "us",
            "the threaded part of the handler, until the waiting program runs",
            "the wake-up of the thread and of the program",
            SUBMIT_PARTS_US[WAKE_UP],
            _DRIVER,
        ),
        Term(
            HOST_CALL,
            "us",
            "what else a run of a product takes beside its stream of weights",
            "the call, the ioctl, the start of the job, its first access to memory, the flush of caches",
            round(PRODUCT_RUN_US - SUBMIT_US, 1),
            _RUN,
        ),
        Term(
            ROWS_INT4,
            "us/MOP",
            "the library converts A and C between rows and the native layout on one thread: 44 GOPS, two "
            "operations a MAC",
            "",
            round(1000 / INT4_ROWS_GOPS, 2),
            "[HW 12.3], in rows",
        ),
        Term(
            SEVERAL,
            "us",
            "a product that is divided among cores, each with a thread and a run of its own",
            "three host calls, submits, interrupts and wake-ups that overlap, and the wait for the last one",
        ),
        Term(STREAM, "GB/s", "what three cores read together", "the DRAM and the bus in front of it"),
        Term(
            CHAIN,
            "us",
            "a chain of jobs by the library ork-driver",
            "its copies, the ioctl, the start of the jobs and its wait for the result",
        ),
        Term(
            OPERATOR_CALL,
            "us",
            "rknn_run of a model of one operator",
            "the call, copies of input and output, the submit, the interrupt, the wake-up, tables of the LUT",
        ),
        Term(
            SUMS,
            "ns",
            "what the runtime of language models does with each result of a product of a prefill",
            "conversion of sums, quantisation of inputs, attention, norms and activations",
        ),
        *(
            Term(
                profiling(series),
                "us",
                f"what the toolkit adds to each layer: {what}",
                "the submit of a layer of its own, the interrupt, the wake-up and the reading of clocks",
            )
            for series, what in PROFILES.items()
        ),
    )
}
"""Name of a term -> the term."""


@dataclass(frozen=True)
class Fitted:
    """Value of a fitted term, and the rows that it was fitted to."""

    value: float
    rows: tuple[str, ...]


@cache
def fitted() -> Mapping[str, Fitted]:
    """Return the checked-in values of the fitted terms by name.

    Raises
    ------
    ValueError
        If the file is damaged or has another version.
    """
    from rkcosim.measure.perf.page import read_stored

    stored = read_stored(CALIBRATION, CALIBRATION_VERSION)["terms"]
    return {name: Fitted(entry["value"], tuple(entry["rows"])) for name, entry in stored.items()}


def value(name: str) -> float:
    """Return the value of a term, in its unit."""
    published = TERMS[name].published
    return fitted()[name].value if published is None else published


RUN_TERMS = (HOST_CALL, SUBMIT, INTERRUPT, WAKE_UP)
"""Terms of a run of a product on one core."""


def outside(row: BoardRow, submits: int = 1) -> dict[str, float]:
    """Return the microseconds of each term that a row's time includes.

    Parameters
    ----------
    row : the row.
    submits : number of jobs of a model.
    """
    if row.series in PROFILES:
        name = profiling(row.series)
        return {name: value(name)}
    if row.operation == "model":
        return {name: submits * value(name) for name in (SUBMIT, INTERRUPT, WAKE_UP)}
    return {name: times * value(name) for name, times in _calls(row).items()}


def _calls(row: BoardRow) -> dict[str, float]:
    """Return how often the time of a product, an operator or a language model includes each term."""
    if row.series == RKLLM:
        model, tokens = LanguageModel(*row.input), row.output[0]
        calls = {SEVERAL: float(model.products(tokens).total())}
        return calls | ({SUMS: model.sums(tokens) / 1000} if tokens > 1 else {})
    if row.series in (RUN, RUN_ROWS):
        (m, k), (_, n) = row.input, row.output
        rows = {ROWS_INT4: 2 * m * k * n / 1e6} if row.series == RUN_ROWS else {}
        return dict.fromkeys(RUN_TERMS, 1.0) | rows
    single = {RUN_SEVERAL: SEVERAL, CHAINED: CHAIN, OPERATOR: OPERATOR_CALL}.get(row.series)
    return {single: 1.0} if single else {}


def stream(row: BoardRow) -> float | None:
    """Return the GB/s that all cores of a row's board read together; None: as the vendor's formula says."""
    return value(STREAM) if row.series in (RUN_SEVERAL, RKLLM) else None
