"""The time that a board needs in addition to the NPU's, and the errors against published boards."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import asdict, dataclass, field
from functools import cache
from pathlib import Path
from typing import Any, Literal

from rkcosim.spec.submit import SUBMIT_US

Plan = Literal["ours", "rknn"]
"""The plan of a time: this compiler's on the RTL, or RKNN's with the order in which boards load."""

FILE = Path(__file__).with_name("errors.json")
FILES: dict[Plan, Path] = {"ours": FILE, "rknn": FILE.with_name("errors_rknn.json")}
SCHEMA_VERSION = 2
COMMAND = "rkcosim validate --page docs/results/performance.md"
PAGES: dict[Plan, str] = {"ours": COMMAND, "rknn": COMMAND.replace("--page", "--plan rknn --page")}

PRODUCT_RUN_US = 32.9
PRODUCT_RUN = "unimatrix099/rk-llama.cpp, RKNPU2-decode-research.md, 1c"
"""Microseconds that librknnrt 2.3.2 and the driver add to each `rknn_matmul_run`, and the source: a line
fitted to the times of M 1, K 2560, N 64 to 3456 in int4 with native layouts on one core (commit 0719a65,
2026-10-05).  The same measurement has 11.1 GB/s on one core and 26.6 GB/s on three."""

INT4_ROWS_GOPS = 44.0
INT4_ROWS = "unimatrix099/rk-llama.cpp, RKNPU2-native-layout-plan.md, 1"
"""Operations (two per MAC) per nanosecond of an int4 product whose A and C are rows, and the source:
librknnrt 2.3.2 converts them on one thread in each run, about 44 GOPS "regardless of shape" for M 128 and
four K and N (24.2 ms for K = N = 2048, 0.30 ms in native layouts; commit 0292a4e).  For M 1 the layout makes
no difference."""


@dataclass(frozen=True)
class NetworkError:
    """A whole network that was measured on a board.

    Members
    -------
    name : name of the row of `rkcosim validate`.
    error : (ours - board) / board.
    fitted : whether the row was used to fit the memory's bandwidth.
    """

    name: str
    error: float
    fitted: bool

    @property
    def longer(self) -> float:
        """By how much the board took longer, relative to our time."""
        return 1 / (1 + self.error) - 1


@dataclass(frozen=True)
class FamilyError:
    """Errors of the rows of a family that no constant is fitted to.

    Members
    -------
    rows : their number.
    median, p90 : median and 90th percentile of the absolute error.
    bias : mean error with its sign.
    """

    rows: int
    median: float
    p90: float
    bias: float


@dataclass(frozen=True)
class BoardErrors:
    """Errors of our times against those of published boards.

    Members
    -------
    networks : whole networks.
    families : family of single layers or products -> its errors; families without rows are missing.
    """

    networks: list[NetworkError] = field(default_factory=list)
    families: dict[str, FamilyError] = field(default_factory=dict)


@cache
def board_errors(plan: Plan = "ours") -> BoardErrors:
    """Return the checked-in errors of a plan's times.

    Raises
    ------
    ValueError
        If the file is damaged or has another version.
    """
    from rkcosim.measure.perf.page import read_stored

    data = read_stored(FILES[plan], SCHEMA_VERSION, f"write it again: {PAGES[plan]}")
    families = {name: FamilyError(**errors) for name, errors in data["families"].items()}
    return BoardErrors([NetworkError(**row) for row in data["networks"]], families)


def write_errors(results: Iterable[Any], families: Iterable[Any], path: Path = FILE) -> None:
    """Store the errors that `rkcosim validate` found over all rows."""
    networks = [
        NetworkError(result.row.id, round(result.error, 6), result.row.half == "fitted")
        for result in results
        if result.row.family == "models" and result.error is not None
    ]
    kept = {
        entry.family: asdict(entry.held_back)
        for entry in families
        if entry.family != "models" and entry.held_back.rows
    }
    members = {"networks": [asdict(network) for network in networks], "families": kept}
    from rkcosim.measure.perf.page import write_stored

    write_stored(path, SCHEMA_VERSION, members)


def board_milliseconds(cycles: int, submits: int, clock_mhz: float = 1000.0) -> float:
    """Return milliseconds of one inference: the NPU's cycles, and the driver's time for each submit."""
    return (cycles / clock_mhz + SUBMIT_US * submits) / 1000


def board_json(cycles: int, submits: int, clock_mhz: float = 1000.0, plan: Plan = "ours") -> dict[str, Any]:
    """Return the member `board` in the JSON of commands that report the time of a model."""
    return {
        "milliseconds": round(board_milliseconds(cycles, submits, clock_mhz), 6),
        "submits": submits,
        "submit_us": SUBMIT_US,
        **asdict(board_errors(plan)),
    }


def time_line(cycles: int, submits: int, clock_mhz: float = 1000.0, hosted: int = 0) -> str:
    """Return a line with the time of one inference and its driver; `hosted` operators are not in it."""
    milliseconds = board_milliseconds(cycles, submits, clock_mhz)
    line = f"time with a driver: {milliseconds:.3f} ms, of which {submits_text(submits)}"
    return f"{line}; {without_host(hosted)}" if hosted else line


def without_host(operators: int) -> str:
    """Return that this number of operators, which the host computes, are not in a time."""
    return f"the host's {operators} operator{'s are' if operators > 1 else ' is'} not in it"


def submits_text(submits: int) -> str:
    """Return the driver's time in words, for example "22.5 us for each of 3 submits"."""
    return f"{SUBMIT_US:g} us for " + ("one submit" if submits == 1 else f"each of {submits} submits")


def published_line(plan: Plan = "ours") -> str:
    """Return a line about how much published boards differ from such figures."""
    longer = sorted(network.longer for network in board_errors(plan).networks)
    command = "rkcosim validate" if plan == "ours" else f"rkcosim validate --plan {plan}"
    least, most = (f"{abs(part):.0%} {'longer' if part >= 0 else 'less'}" for part in (longer[0], longer[-1]))
    return f"published boards took {least} to {most} than such figures ({len(longer)} networks; {command})"


def published_networks(plan: Plan = "ours") -> str:
    """Return how much longer boards took for whole networks, for example "12% longer (MobileNetV2), ..."."""
    return ", ".join(
        f"{abs(network.longer):.0%} {'longer' if network.longer >= 0 else 'less'} ({network.name}"
        f"{', part of the fit' if network.fitted else ''})"
        for network in sorted(
            board_errors(plan).networks,
            key=lambda network: network.longer,
        )
    )
