"""`rkcosim validate`: run or estimate published measurements of boards; tables and sections of the page."""

from __future__ import annotations

import textwrap
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any, Literal

from rkcosim.base import progress
from rkcosim.cli.app import Options, command, option
from rkcosim.cli.options import Page, Plan
from rkcosim.measure.perf.boards.table import Family

if TYPE_CHECKING:
    from rkcosim.measure.perf.boards import table as boards
    from rkcosim.measure.perf.boards.validate import FamilyErrors, Result, Setting


@dataclass(frozen=True, kw_only=True)
class ValidateOptions(Options):
    """Options of `rkcosim validate`."""

    family: tuple[Family, ...] = option(
        "Select the rows of this family; repeatable. The family concat includes splits, slices and paddings.",
        default=(),
    )
    rows: tuple[str, ...] = option(
        "Select these rows (--list prints all); repeatable, or separated by commas.", metavar="ID", default=()
    )
    rtl: bool = option(
        "Run every row on the RTL, regardless of the time it takes; default: estimate rows of more than "
        "3,000,000 cycles.",
        default=False,
    )
    estimate: bool = option("Estimate every row instead of running it.", default=False)
    memory: Literal["fitted", "default"] = option(
        "Memory timing: fitted to boards, or the default of `rkcosim run`.", default="fitted"
    )
    plan: Plan = "ours"
    constants: bool = option("Print the timing constants and their sources, and run nothing.", default=False)
    list_: bool = option("Print the published rows, and run nothing.", default=False)
    page: Page = None


@command(
    "rkcosim validate --rows UNET-22,UNET-64x34",
    "rkcosim validate --family pooling --memory default",
    "rkcosim validate --estimate --family resize --json -",
    "rkcosim validate --plan rknn --rows UNET-9,MM-256x1024x1024",
)
def validate_command(asked: ValidateOptions) -> None:
    """Compare with published measurements of boards.

    The published workloads are run on the RTL or estimated. The table has the measured and the simulated time
    and the error. For each family, the number of rows, the median and the 90th percentile of the error and
    the bias follow, over all rows and over those that no constant is fitted to.
    """
    if asked.rtl and asked.estimate:
        raise ValueError("--rtl and --estimate exclude each other")
    if asked.constants:
        _constants(asked)
    elif asked.list_:
        _list(asked)
    else:
        _run(asked)


def _run(asked: ValidateOptions) -> None:
    """Run or estimate the rows, print and write the results."""
    from rkcosim.measure.perf.boards import table as boards
    from rkcosim.measure.perf.boards import text as validate_text
    from rkcosim.measure.perf.boards.expected import FILES, write_errors
    from rkcosim.measure.perf.boards.validate import Setting, families, validate
    from rkcosim.measure.perf.page import write_section

    chosen = _chosen(asked)
    if asked.page and len(chosen) < len(boards.rows()):
        raise ValueError("--page needs all rows: leave out --family and --rows")
    choice: Literal["rtl", "estimate", "auto"] = (
        "rtl" if asked.rtl else "estimate" if asked.estimate else "auto"
    )
    setting = Setting(choice, asked.memory, plan=asked.plan)
    print(validate_text.heading())
    with progress.step("rows of boards", len(chosen)) as step:

        def each(result: Result) -> None:
            print(validate_text.line(result), flush=True)
            step.advance()

        results = validate(chosen, each, setting)
    found = families(results)
    print()
    print("\n".join(validate_text.family_lines(found)))
    for line in validate_text.findings(results) if asked.plan == "ours" else ():
        print(textwrap.fill(line, 110, subsequent_indent="  "))
    if asked.page and asked.plan != "ours":
        write_section("rknn", validate_text.plan_section(results, found), asked.page)
        write_errors(results, found, FILES[asked.plan])
        print(f"page: {asked.page}")
    elif asked.page:
        plain = families(validate(chosen, setting=Setting("estimate", "default")))
        write_section("validate", validate_text.section(results, found, setting, plain), asked.page)
        write_section("errors", validate_text.errors_section(results), asked.page)
        write_errors(results, found)
        print(f"page: {asked.page}")
    asked.write(_document(results, found, setting))


def _list(asked: ValidateOptions) -> None:
    """Print the published rows, and to which half each one belongs."""
    from rkcosim.measure.perf.boards.validate import SCHEMA_VERSION

    chosen = _chosen(asked)
    for row in chosen:
        print(f"{row.id:26} {row.family:13} {row.measured_us:10.1f} us  {row.half:10} {row.source}")
    names = ("measured_us", "half")
    published = [row.__dict__ | {name: getattr(row, name) for name in names} for row in chosen]
    asked.write({"schema_version": SCHEMA_VERSION, "rows": published})


def _constants(asked: ValidateOptions) -> None:
    """Print the table of timing constants."""
    from rkcosim.measure.perf import constants
    from rkcosim.measure.perf.page import write_section

    print("\n".join(constants.lines()))
    if asked.page:
        write_section("constants", constants.section(), asked.page)
        print(f"page: {asked.page}")
    entries = [entry.as_json() for entry in constants.CONSTANTS]
    asked.write({"constants": entries})


def _chosen(asked: ValidateOptions) -> list[boards.BoardRow]:
    """Return the rows selected by family and id.

    Raises
    ------
    ValueError
        for an unknown id.
    """
    from rkcosim.measure.perf.boards import table as boards

    ids = {id.strip() for given in asked.rows for id in given.split(",") if id.strip()}
    every = boards.rows()
    unknown = ids - {row.id for row in every}
    if unknown:
        raise ValueError(f"no row {', '.join(sorted(unknown))} (rkcosim validate --list prints all)")
    return [
        row
        for row in every
        if (not asked.family or row.family in asked.family) and (not ids or row.id in ids)
    ]


def _document(results: list[Result], found: list[FamilyErrors], setting: Setting) -> dict[str, Any]:
    from rkcosim.measure.perf.boards import text as validate_text
    from rkcosim.measure.perf.boards.left_out import LEFT_OUT
    from rkcosim.measure.perf.boards.validate import SCHEMA_VERSION

    row = results[0].row if results else None
    speed = None if row is None else setting.dram(row).core_bytes_per_cycle * row.clock_mhz / 1000
    return {
        "schema_version": SCHEMA_VERSION,
        "memory": setting.memory,
        "plan": setting.plan,
        "core_bytes_per_ns": speed,
        "families": [asdict(entry) for entry in found],
        "rows": [result.as_json() for result in results],
        "violations": validate_text.violations(results),
        "left_out": [entry.as_json() for entry in LEFT_OUT],
    }
