"""`rkcosim validate`: rows of boards run or estimated, tables, sections of the page."""

from __future__ import annotations

import textwrap
from pathlib import Path
from typing import Any

from cosim import progress
from cosim.cli.exits import write_json
from cosim.perf.boards import table as boards
from cosim.perf.boards import text as validate_text
from cosim.perf.boards.validate import SCHEMA_VERSION, Choice, Memory, Result, Setting, families, validate
from cosim.perf.page import write_section

CONSTANTS_VERSION = 1


def validate_command(
    chosen_families: list[str],
    ids: list[str],
    choice: Choice,
    memory: Memory,
    page: Path | None,
    json: Path | None,
) -> None:
    """Run or estimate, print, write."""
    chosen = _chosen(chosen_families, ids)
    if page and len(chosen) < len(boards.rows()):
        raise ValueError("--page needs all rows: leave --family and --rows out")
    setting = Setting(choice, memory)
    print(validate_text.heading())
    with progress.step("rows of boards", len(chosen)) as step:

        def each(result: Result) -> None:
            print(validate_text.line(result), flush=True)
            step.advance()

        results = validate(chosen, each, setting)
    found = families(results)
    print()
    print("\n".join(validate_text.family_lines(found)))
    for line in validate_text.findings(results):
        print(textwrap.fill(line, 110, subsequent_indent="  "))
    if page:
        plain = families(validate(chosen, setting=Setting("estimate", "default")))
        write_section("validate", validate_text.section(results, found, setting, plain), page)
        write_section("errors", validate_text.errors_section(results), page)
        print(f"page: {page}")
    if json:
        write_json(json, _document(results, found, setting))


def list_command(chosen_families: list[str], ids: list[str], json: Path | None) -> None:
    """The published rows, and what counts."""
    chosen = _chosen(chosen_families, ids)
    for row in chosen:
        counts = row.excluded or f"counts, {row.half}"
        print(f"{row.id:26} {row.family:10} {row.measured_us:10.1f} us  {counts:28} {row.source}")
    if json:
        write_json(json, {"schema_version": SCHEMA_VERSION, "rows": [_published(row) for row in chosen]})


def constants_command(page: Path | None, json: Path | None) -> None:
    """The registry of timing constants."""
    from cosim.perf.constants import registry as constants
    from cosim.perf.constants import text as constants_text

    print("\n".join(constants_text.lines()))
    if page:
        write_section("constants", constants_text.section(), page)
        print(f"page: {page}")
    if json:
        entries = [entry.as_json() for entry in constants.CONSTANTS]
        write_json(json, {"schema_version": CONSTANTS_VERSION, "constants": entries})


def _chosen(chosen_families: list[str], ids: list[str]) -> list[boards.Row]:
    """Rows by family and id.

    Raises
    ------
    ValueError
        for an unknown id.
    """
    every = boards.rows()
    unknown = set(ids) - {row.id for row in every}
    if unknown:
        raise ValueError(f"no row {', '.join(sorted(unknown))} (rkcosim validate --list shows all)")
    return [
        row
        for row in every
        if (not chosen_families or row.family in chosen_families) and (not ids or row.id in ids)
    ]


def _published(row: boards.Row) -> dict[str, Any]:
    return {
        **row.__dict__,
        "measured_us": row.measured_us,
        "excluded": row.excluded,
        "half": row.half,
    }


def _document(results: list[Result], found: list[dict[str, Any]], setting: Setting) -> dict[str, Any]:
    return {
        "schema_version": SCHEMA_VERSION,
        "memory": setting.memory,
        "core_bytes_per_ns": setting.dram(results[0].row).peak_bytes_per_cycle
        * results[0].row.clock_mhz
        / 1000
        if results
        else None,
        "families": found,
        "rows": [result.as_json() for result in results],
        "violations": validate_text.violations(results),
        "left_out": [entry.as_json() for entry in boards_left_out()],
    }


def boards_left_out() -> list[Any]:
    """Published rows that are not in the table."""
    from cosim.perf.boards.left_out import LEFT_OUT

    return list(LEFT_OUT)
