"""Does `make test` find what `make test-all` finds? Plants faults and runs the tests of their modules.

    python -m tools.mutation.suite --page docs/verification.md

For each fault the tests of the module that stay in `make test` run first; only if they pass, those that
`make test` leaves out run as well. A fault is found by the first test that fails. The record
(build/suite.jsonl) keeps the verdicts of these sources, so that a run that was stopped goes on where it was.
The exit code is 1 if `make test` finds less than 95 % of what both find.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np

from rkcosim.measure.perf.page import write_section
from rkcosim.waves.whole_file import whole_file
from tools.mutation.operators import Mutant, mutants
from tools.mutation.planted import NOT_IMPORTED, VARIABLE

ROOT = Path(__file__).resolve().parents[2]
RECORD = Path("build/suite.jsonl")
SHARE = 0.95
SECONDS = 900
"""Bound of one run of tests; a fault that makes them take longer is found."""

SHORT, LEFT_OUT, NEITHER, VOID = "make test", "make test-all", "neither", "void"

BLOCK, UNIT, SYSTEM = "tests/block/test_", "tests/unit/test_", "tests/system/test_"
AREAS: dict[str, dict[str, tuple[str, ...]]] = {
    "software, commands, waves": {
        "sw/compiler/memory.py": (UNIT + "compiler_memory", UNIT + "compiler"),
        "sw/compiler/requant.py": (UNIT + "compiler", UNIT + "quantization"),
        "sw/driver/kernel/rknpu_jobs.py": (UNIT + "kernel_jobs", UNIT + "kernel_rknpu"),
        "sw/rknn_api/dynamic.py": (UNIT + "rknn_dynamic",),
        "cosim/cli/moments.py": (UNIT + "trace_spec", UNIT + "waves_viewers"),
        "waves/decode.py": (UNIT + "waves_decode", UNIT + "waves"),
        "waves/timeline.py": (UNIT + "timeline",),
        "sw/regcmd/diff.py": (SYSTEM + "planted_bug", UNIT + "regcmd"),
        "sw/running/settings.py": (UNIT + "plugin_messages", SYSTEM + "delegates"),
        "sw/compiler/quantization/mixed.py": (UNIT + "quantization", SYSTEM + "toolkit"),
    },
    "golden model, specification, engines": {
        "cosim/golden/graph/ops.py": (UNIT + "golden_graph", UNIT + "golden_fast"),
        "cosim/golden/task/arith.py": (UNIT + "golden_arith", UNIT + "golden_conv"),
        "cosim/golden/task/core.py": (UNIT + "golden_conv", UNIT + "golden_fast"),
        "cosim/golden/task/dpu_stages.py": (UNIT + "golden_dpu", UNIT + "golden_dpu_twin"),
        "cosim/golden/task/packed_weights.py": (UNIT + "golden_packed_weights",),
        "cosim/golden/task/ppu.py": (UNIT + "golden_ppu",),
        "cosim/engines/timing/cpp.py": (UNIT + "timing",),
        "cosim/measure/perf/estimator/features.py": (UNIT + "estimator",),
        "cosim/measure/perf/estimator/tasks.py": (UNIT + "estimator",),
        "spec/layouts/features.py": (UNIT + "layouts", UNIT + "golden_cna"),
    },
    "RTL": {
        "rtl/npu/cna_decompress.py": (BLOCK + "cna_decompress",),
        "rtl/npu/cna_feature.py": (BLOCK + "cna_feature",),
        "rtl/npu/cna_weight.py": (BLOCK + "cna_weight",),
        "rtl/npu/core_block.py": (BLOCK + "core_block",),
        "rtl/npu/dpu_ew.py": (BLOCK + "dpu_pipe", BLOCK + "dpu"),
        "rtl/npu/dpu_rdma_operands.py": (BLOCK + "dpu_rdma_types", BLOCK + "dpu_rdma"),
        "rtl/npu/dpu_scale.py": (BLOCK + "dpu_pipe", BLOCK + "dpu"),
        "rtl/npu/dpu_writer.py": (BLOCK + "dpu_writer",),
        "rtl/npu/array_float.py": (BLOCK + "array",),
        "rtl/npu/array_integer.py": (BLOCK + "array",),
    },
}
"""Modules of each area, and the files of tests that look at each."""

FAULTS = 2
"""Faults in each module."""


@dataclass(frozen=True)
class Result:
    """The verdict on one fault: what found it, the test that failed, and the seconds it took."""

    area: str
    fault: str
    found_by: str
    test: str
    seconds: float


def drawn(seed: int) -> list[tuple[str, Mutant, tuple[str, ...]]]:
    """Return area, fault and files of tests of all faults: one of each module, then the second ones."""
    rng, found = np.random.default_rng(seed), []
    for area, modules in AREAS.items():
        for path, tests in modules.items():
            known = mutants(path, (ROOT / path).read_text())
            chosen = rng.permutation(len(known))[:FAULTS]
            found += [(turn, area, known[number], tests) for turn, number in enumerate(chosen)]
    found.sort(key=lambda row: row[0])
    return [(area, fault, tests) for _, area, fault, tests in found]


def module_name(path: str) -> str:
    """Return the name under which a source is imported."""
    inside = path.removesuffix(".py").partition("/")[2] if path.startswith(("cosim/", "sw/")) else path[:-3]
    return "rkcosim." + inside.replace("/", ".")


def _run(fault: Path, tests: Sequence[str], everything: bool) -> tuple[int, str]:
    """Run files of tests with a fault; return pytest's exit code and the first test that failed."""
    environment = {**os.environ, VARIABLE: str(fault), "PYTHONHASHSEED": "0"}
    environment |= {"RKCOSIM_TESTS": "all"} if everything else {}
    marks = "not shared" if everything else "not heavy and not shared"
    command = [sys.executable, "-m", "pytest", "-q", "-x", "-p", "tools.mutation.planted", "-m", marks]
    command += ["-p", "no:cacheprovider", "--no-header", "--tb=no", *(f"{test}.py" for test in tests)]
    try:
        done = subprocess.run(
            command,
            cwd=ROOT,
            env=environment,
            capture_output=True,
            text=True,
            timeout=SECONDS,
            check=False,
        )
    except subprocess.TimeoutExpired:
        return 1, "no end"
    failed = re.search(r"^(?:FAILED|ERROR) (\S+)", done.stdout, re.MULTILINE)
    return done.returncode, failed[1] if failed else "the tests cannot be imported"


def _has_more(tests: Sequence[str]) -> bool:
    """Return whether `make test` leaves out something of these files."""
    table = (ROOT / "tests/heavy.toml").read_text()
    texts = [(ROOT / f"{test}.py").read_text() for test in tests]
    return any(f"{test}.py" in table for test in tests) or any(
        word in text for text in texts for word in ("extent(", "mark.heavy")
    )


def attempt(area: str, mutant: Mutant, tests: Sequence[str]) -> Result:
    """Plant a fault and return what finds it."""
    begin = time.monotonic()
    found_by, test = NEITHER, ""
    with tempfile.TemporaryDirectory() as folder:
        fault = Path(folder) / "fault.json"
        words = {"module": module_name(mutant.path), "path": mutant.path, "text": mutant.source}
        fault.write_text(json.dumps(words))
        for everything, name in ((False, SHORT), (True, LEFT_OUT))[: 2 if _has_more(tests) else 1]:
            code, failed = _run(fault, tests, everything)
            if code == NOT_IMPORTED:
                found_by, test = VOID, "no test imports the module"
                break
            if code:
                found_by, test = name, failed
                break
    return Result(area, str(mutant), found_by, test, round(time.monotonic() - begin, 1))


def _sources(seed: int) -> str:
    digest = hashlib.sha256(f"{seed} {FAULTS} {AREAS}".encode())
    for path in ("tests/heavy.toml", *(path for area in AREAS.values() for path in area)):
        digest.update((ROOT / path).read_bytes())
    return digest.hexdigest()[:16]


def counted(results: Sequence[Result]) -> list[tuple[str, int, int, int]]:
    """Return for each area and for all: name, found by `make test`, only by `make test-all`, by neither."""
    rows = []
    for area in (*AREAS, "all"):
        own = [result for result in results if area in (result.area, "all")]
        number = [sum(result.found_by == name for result in own) for name in (SHORT, LEFT_OUT, NEITHER)]
        rows.append((area, number[0], number[1], number[2]))
    return rows


SECTION = "planted faults"
"""Name of the section of the page."""


def section(results: Sequence[Result], command: str, of: int) -> str:
    """Return the part of the page with counts and the faults that `make test` does not find."""
    *_, (_, short, only, _) = counted(results)
    tried = "" if len(results) == of else f"{len(results)} of them have been tried; of these "
    lines = [
        f"`{command}` draws {of} faults and runs the tests of their modules. {tried}`make test` finds "
        f"{short} of the {short + only} that `make test-all` finds ({short / max(1, short + only):.0%}).",
        "",
        "| area | found by `make test` | only by `make test-all` | by neither |",
        "| --- | ---: | ---: | ---: |",
        *(f"| {area} | {a} | {b} | {c} |" for area, a, b, c in counted(results)),
    ]
    for name, words in ((LEFT_OUT, "Only `make test-all` finds"), (NEITHER, "Neither finds")):
        rows = [result for result in results if result.found_by == name]
        if rows:
            lines += ["", f"{words}:", ""]
            lines += [f"- `{r.fault}`" + (f", by `{r.test}`" if r.test else "") for r in rows]
    return "\n".join(lines)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the program and return its exit code."""
    parser = argparse.ArgumentParser(
        prog="python -m tools.mutation.suite", description=(__doc__ or "").splitlines()[0]
    )
    parser.add_argument("--seed", type=int, default=57, help="seed that draws the faults (default: 57)")
    parser.add_argument("--record", type=Path, default=RECORD, help=f"verdicts so far (default: {RECORD})")
    parser.add_argument("--most", type=int, help="try at most this many faults now")
    parser.add_argument("--only", default="", help="try faults of the sources with this in their path now")
    parser.add_argument("--page", type=Path, help="write counts and faults into this page")
    given = parser.parse_args(arguments)
    faults, sources = drawn(given.seed), _sources(given.seed)
    known: dict[str, Result] = {}
    if given.record.is_file():
        head, *lines = given.record.read_text().splitlines()
        if head == sources:
            known = {row["fault"]: Result(**row) for row in map(json.loads, lines)}
    given.record.parent.mkdir(parents=True, exist_ok=True)
    missing = [fault for fault in faults if str(fault[1]) not in known and given.only in fault[1].path]
    missing = missing[: given.most]
    for area, mutant, tests in missing:
        result = known[str(mutant)] = attempt(area, mutant, tests)
        print(f"{result.found_by:14} {result.seconds:6.1f} s  {result.fault}  {result.test}", flush=True)
        with whole_file(given.record) as part:
            part.write_text("\n".join([sources, *(json.dumps(asdict(one)) for one in known.values()), ""]))
    results = [known[str(mutant)] for _, mutant, _ in faults if str(mutant) in known]
    for area, short, only, neither in counted(results):
        print(f"{area}: {short} found by make test, {only} only by make test-all, {neither} by neither")
    if given.page:
        command = "python -m tools.mutation.suite" + (f" --seed {given.seed}" if given.seed != 57 else "")
        write_section(SECTION, section(results, command, len(faults)), given.page)
    *_, (_, short, only, _) = counted(results)
    return 0 if short >= SHARE * (short + only) else 1


if __name__ == "__main__":
    raise SystemExit(main())
