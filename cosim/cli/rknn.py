"""`rkcosim rknn info` and `rkcosim rknn test`: contents of `.rknn` files, and checked runs of folders."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from rkcosim.base import BAD_INPUT
from rkcosim.cli.app import Options, argument, command, option
from rkcosim.cli.exits import MISMATCH, OK
from rkcosim.cli.options import Csv, DramOptions

if TYPE_CHECKING:
    from rkcosim.measure.models.rknn_folder import FolderRow


@dataclass(frozen=True, kw_only=True)
class InfoOptions(Options):
    """Options of `rkcosim rknn info`."""

    file: Path = argument("A .rknn file.")
    words: bool = option("Also list each command word that holds an address, by task.", default=False)


@command(
    "rkcosim rknn info model.rknn",
    "rkcosim rknn info model.rknn --words",
    "rkcosim rknn info model.rknn --json - | jq '.nodes[].tasks'",
)
def info_command(asked: InfoOptions) -> None:
    """Show the contents of a .rknn file.

    The report has the nodes with shapes, types and tasks for one, two and three cores, the memory, and with
    --words the tensor and offset of every address.
    """
    from rkcosim.base.files import read_given, wrong
    from rkcosim.compiler.model import naming_model
    from rkcosim.rknn_file import is_rknn, read_rknn
    from rkcosim.rknn_file.info import info_json, info_lines

    data = read_given(asked.file)
    if not is_rknn(data):
        raise wrong(asked.file, data, "a .rknn file")
    with naming_model(asked.file):
        file = read_rknn(data)
    asked.write({"file": asked.file.name, **info_json(file)})
    for line in info_lines(file, asked.words):
        print("".join(c if c.isprintable() else "?" for c in line))
    raise SystemExit(OK)


@dataclass(frozen=True, kw_only=True)
class TestOptions(DramOptions):
    """Options of `rkcosim rknn test`."""

    files: tuple[Path, ...] = argument("Folders, or .rknn files.", metavar="DIR...")
    cores: tuple[int, ...] = option("Only on this many cores; repeatable.", default=(), low=1, high=3)
    jobs_by: Literal["chain", "node", "both"] = option(
        "Run each linked chain of a file as a job (chain), each node (node), or both in turn.", default="both"
    )
    seed: int = option("Seed of the random inputs.", default=0)
    csv: Csv = None


@command(
    "rkcosim rknn test model.rknn",
    "rkcosim rknn test vendor/scrfd.rknn vendor/yolo.rknn --cores 1 --jobs-by chain --csv table.csv",
)
def test_command(asked: TestOptions) -> None:
    """Run all .rknn files of folders and check every node.

    A table has verdict, reason, nodes right and judged of all nodes, and time of each file and plan. The exit
    code is 0 if all are right, 1 if a byte differs from the golden model, a node from its mathematical value,
    or a run failed, and 2 if nothing is wrong but a file is refused.
    """
    from rkcosim.cli import results
    from rkcosim.measure.models.rknn_folder import files_of, run_folder

    files = [file for folder in asked.files for file in files_of(folder)]
    if not files:
        raise ValueError(f"no .rknn file in {', '.join(map(str, asked.files))}")
    console = results.console()
    rows = []
    for row in run_folder(
        files,
        engine=asked.engine,
        exact=asked.exact,
        cores=asked.cores or (1, 2, 3),
        jobs=("node", "chain") if asked.jobs_by == "both" else (asked.jobs_by,),
        seed=asked.seed,
        dram=asked.memory,
    ):
        rows.append(row)
        if row.cores or len(files) > 1:
            console.print(_said(row), markup=False)
    print_table(console, rows)
    print_files(console, rows)
    if asked.csv:
        results.write_csv(asked.csv, [{**row.as_json(), "nodes": _by_type(row.nodes)} for row in rows])
    asked.write({"rows": [row.as_json() for row in rows]}, say=True)
    verdicts = {row.verdict for row in rows}
    if verdicts == {"refused"}:
        several = f"all {len(rows)} files are refused, the first one because: " if len(rows) > 1 else ""
        raise ValueError(f"{several}{rows[0].file}: {rows[0].problem}")
    raise SystemExit(MISMATCH if "wrong" in verdicts else BAD_INPUT if "refused" in verdicts else OK)


def _said(row: FolderRow) -> str:
    """Return a line about one run."""
    if not row.cores:
        return f"{row.file}: {row.problem}"
    right, every = row.right
    cycles = "-" if row.cycles is None else f"{row.cycles:,} cycles, {row.cycles / 1e6:.3f} ms"
    verdict = row.problem or ("bytes equal" if row.equal else "BYTES DIFFER from the golden model's")
    text = (
        f"{row.file}, {row.cores} core{'s' * (row.cores > 1)} by {row.jobs}: {right} of {every} nodes right"
    )
    return f"{text}, {verdict}, {row.submits} jobs, {cycles}, {row.seconds:.0f} s"


def _by_type(nodes: Mapping[str, tuple[int, int]]) -> str:
    return ", ".join(f"{kind} {right}/{every}" for kind, (right, every) in nodes.items())


def print_files(console: Any, rows: Sequence[FolderRow]) -> None:
    """Print verdict, reason, shares of right and judged nodes, and time of each file and plan."""
    from rich.markup import escape

    from rkcosim.cli import results

    lines = []
    for row in rows:
        right, every = row.right
        plan = f"{row.cores} by {row.jobs}" if row.cores else "-"
        share = f"{row.judged / every:.0%}" if every else "-"
        counts = (f"{right}/{every}", f"{row.judged}/{every} {share}") if every else ("-", "-")
        time = "-" if row.refused else f"{row.seconds:.1f}"
        lines.append((escape(row.file), plan, row.verdict, *counts, time, escape(row.reason)))
    heads = ("file", "plan", "verdict", "right|", "judged|", "s|", "reason")
    console.print(results.table("files", heads, lines))


def print_table(console: Any, rows: Sequence[FolderRow]) -> None:
    """Print the numbers of right nodes by type, with a column for each number of cores and kind of job."""
    from rkcosim.cli import results

    columns = sorted(
        {(row.cores, row.jobs) for row in rows if row.cores}, key=lambda c: (c[0], c[1] != "node")
    )
    kinds = sorted({kind for row in rows for kind in row.nodes})
    lines = []
    for kind in [*kinds, "all"]:
        cells = [kind]
        for column in columns:
            own = [row.nodes for row in rows if (row.cores, row.jobs) == column]
            pairs = [pair for nodes in own for k, pair in nodes.items() if kind in (k, "all")]
            cells.append(f"{sum(a for a, _ in pairs)}/{sum(b for _, b in pairs)}" if pairs else "-")
        lines.append(tuple(cells))
    heads = ("nodes right", *(f"{cores} by {jobs}|" for cores, jobs in columns))
    console.print(results.table("nodes right of all, by cores and kind of job", heads, lines))
