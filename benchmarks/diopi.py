"""DIOPI's conformance suite on the simulated NPU: `python -m benchmarks.diopi CHECKOUT`.

    python -m benchmarks.diopi CHECKOUT [--functions conv2d,relu] [--results FILE] [--page FILE]

CHECKOUT is a checkout of DeepLink-org/DIOPI, whose suite is run unmodified, as `rkcosim diopi` runs programs.
It needs PyTorch for the CPU (the extra `diopi`), which computes its expected outputs.  Functions of the
suite are run in groups, because the data of all takes tens of gigabytes; the results of each group are kept
in a file, and a run that was stopped goes on after the last group.  Each result of the NPU is also compared
with the host's operator (`RKCOSIM_DIOPI_COMPARE`).
"""

from __future__ import annotations

import argparse
import json
import os
import re
import shutil
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

from rkcosim.apis.diopi.npu import COMPARE_VARIABLE
from rkcosim.waves.whole_file import whole_file

NPU_FUNCTIONS = (
    *("conv2d", "conv_transpose2d", "linear", "matmul", "mm", "bmm", "addmm", "baddbmm"),
    *("avg_pool2d", "max_pool2d", "adaptive_avg_pool2d", "adaptive_max_pool2d", "batch_norm", "interpolate"),
    *("relu", "hardtanh", "hardswish", "threshold", "gelu", "leaky_relu", "tanh", "sigmoid", "silu"),
    *("add", "sub", "mul", "maximum", "minimum", "clamp", "clamp_max", "clamp_min", "mean", "sum"),
)
"""Functions of the suite with operators of which the NPU has a form."""

HOST_FUNCTIONS = (
    *("conv3d", "conv_transpose3d", "slice_op", "cat", "split", "stack", "transpose", "permute", "pad"),
    *("unfold", "fill_", "zero_", "ones", "zeros", "copy_", "cast_dtype", "expand", "repeat", "flip", "roll"),
    *("select", "index_select", "gather", "where", "masked_fill", "tril", "triu", "abs", "neg", "floor"),
    *("ceil", "sign", "isnan", "sin", "cos", "tan", "asin", "acos", "atan", "sinh", "cosh", "asinh", "acosh"),
    *("atanh", "exp", "expm1", "log", "log2", "log10", "log1p", "sqrt", "rsqrt", "erf", "reciprocal"),
    *("eq", "ne", "ge", "gt", "le", "lt", "logical_and", "logical_or", "logical_not", "bitwise_and"),
    *("bitwise_or", "bitwise_not", "div", "softmax", "log_softmax"),
)
"""Functions of the suite whose operators are the host's."""

GROUP = 6
"""Functions whose data exist at the same time."""

COLUMNS = ("passed", "forward", "skipped", "no reference", "failed")


def verdict(case: ElementTree.Element) -> str:
    """Return how a case of pytest's XML report ended.

    "forward" is a case whose operator passed and whose backward operator, of training, is not implemented;
    "no reference" is one for which PyTorch computed no expected output.
    """
    skipped, failed = case.find("skipped"), case.find("failure")
    if failed is None:
        failed = case.find("error")
    if failed is not None:
        text = failed.get("message", "") + (failed.text or "")
        return "no reference" if "FileNotFoundError" in text and "outputs" in text else "failed"
    if skipped is not None:
        return "forward" if "Backward" in skipped.get("message", "") else "skipped"
    return "passed"


def run_group(checkout: Path, names: Sequence[str], engine: str | None) -> dict[str, Any]:
    """Run some functions of the suite; returns counts, failures and the operators' accounts."""
    suite = checkout / "diopi_test" / "python"
    report = suite / "rkcosim.xml"
    document = suite / "rkcosim.json"
    chosen = ["--engine", engine] if engine else []
    command = [sys.executable, "-m", "rkcosim", "diopi", *chosen, "--json", str(document), "--"]
    paths = os.pathsep.join(filter(None, (str(Path.cwd()), os.environ.get("PYTHONPATH", ""))))
    environment = {**os.environ, COMPARE_VARIABLE: "1", "PYTHONPATH": paths}
    begun = time.monotonic()
    for mode in ("gen_data", "gen_case", "run_test"):
        more = ["--pytest_args", f"-q --tb=short --junitxml={report}"] if mode == "run_test" else []
        program = [sys.executable, "main.py", "--mode", mode, "--fname", *names, *more]
        done = subprocess.run(
            [*command, *program], cwd=suite, env=environment, capture_output=True, text=True
        )
        if mode == "gen_case" and done.returncode:
            raise RuntimeError(f"{mode} of {', '.join(names)} failed:\n{done.stdout}{done.stderr}")
    counts: dict[str, Counter[str]] = {name: Counter() for name in names}
    failures = []
    for case in ElementTree.parse(report).iter("testcase"):
        found = re.search(r"F([a-z_0-9]+)$", case.get("classname", ""))
        name, how = found[1] if found else "", verdict(case)
        counts.setdefault(name, Counter())[how] += 1
        if how == "failed":
            failure = next(iter(case))
            failures.append(f"{case.get('name')}: {failure.get('message', '')[:600]}")
    shutil.rmtree(suite / "cache" / "diopi", ignore_errors=True)
    operators: dict[str, dict[str, Any]] = {}
    for process in json.loads(document.read_text())["diopi"]:
        for operator, account in process.items():
            if operator != "process":
                operators[operator] = account
    return {
        "counts": {name: dict(count) for name, count in counts.items()},
        "failures": failures,
        "operators": operators,
        "seconds": round(time.monotonic() - begun, 1),
    }


def page(groups: Mapping[str, Mapping[str, Any]], commit: str) -> str:
    """Return the page of the results (Markdown)."""
    counts = {name: found for group in groups.values() for name, found in group["counts"].items()}
    operators: dict[str, dict[str, Any]] = {}
    for group in groups.values():
        for name, account in group["operators"].items():
            kept = operators.setdefault(name, {"npu": 0, "host": 0, "cycles": 0, "reasons": Counter()})
            for member in ("npu", "host", "cycles"):
                kept[member] += account[member]
            kept["reasons"].update(account["reasons"])
    total = Counter[str]()
    for found in counts.values():
        total.update(found)
    lines = [
        "# DIOPI's conformance suite",
        "",
        f"The suite of DeepLink-org/DIOPI ({commit}), unmodified, through `rkcosim diopi` on the RTL; "
        "written by `python -m benchmarks.diopi`. Operators of float16 are the NPU's where it has a form of "
        "them: each of its results was also compared with the host's operator, within 4 units in the last "
        "place of fp16 of the largest partial sum. PyTorch computed the expected outputs.",
        "",
        f"{sum(total.values()):,} cases: {total['passed']:,} passed; {total['forward']:,} passed and were "
        "then ended by the suite, because the backward operator (training) is not implemented; "
        f"{total['skipped']:,} skipped, because an operator is not implemented; {total['no reference']:,} "
        f"have no expected output, because PyTorch refuses them; {total['failed']:,} failed.",
        "",
        "| function | cases | passed | passed, without backward | skipped | no expected output | failed |",
        "| --- | ---: | ---: | ---: | ---: | ---: | ---: |",
    ]
    for name in (*NPU_FUNCTIONS, *HOST_FUNCTIONS):
        if name in counts:
            found = Counter(counts[name])
            cells = " | ".join(str(found[column]) for column in COLUMNS)
            lines.append(f"| {name} | {sum(found.values())} | {cells} |")
    lines += ["", "## Operators", "", "Calls of operators of which the NPU has a form, and their cycles.", ""]
    lines += ["| operator | on the NPU | cycles | on the host | reasons, with calls |"]
    lines += ["| --- | ---: | ---: | ---: | --- |"]
    for name, account in sorted(operators.items()):
        reasons = Counter(account["reasons"])
        text = "; ".join(f"{_short(reason)} ({count})" for reason, count in reasons.most_common(4))
        lines.append(f"| {name} | {account['npu']} | {account['cycles']:,} | {account['host']} | {text} |")
    failures = [failure for group in groups.values() for failure in group["failures"]]
    if failures:
        lines += ["", "## Failures", "", *(f"- {_short(failure, 300)}" for failure in failures)]
    return "\n".join(lines) + "\n"


def _short(text: str, length: int = 90) -> str:
    plain = " ".join(text.split()).replace("|", "/")
    return plain if len(plain) <= length else f"{plain[:length]}..."


def main() -> None:
    """Run the suite."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("checkout", type=Path, help="checkout of DeepLink-org/DIOPI")
    parser.add_argument("--functions", help="functions of the suite, with commas between them; default: all")
    parser.add_argument("--results", type=Path, default=Path("build/diopi_suite.json"))
    parser.add_argument("--page", type=Path, help="write the page to this file")
    parser.add_argument("--engine", help="engine that simulates")
    parser.add_argument("--commit", default="b179d617", help="commit of the checkout, for the page")
    asked = parser.parse_args()
    names = asked.functions.split(",") if asked.functions else [*NPU_FUNCTIONS, *HOST_FUNCTIONS]
    groups = json.loads(asked.results.read_text()) if asked.results.is_file() else {}
    done = {name for group in groups.values() for name in group["counts"]}
    left = [name for name in names if name not in done]
    asked.results.parent.mkdir(parents=True, exist_ok=True)
    for first in range(0, len(left), GROUP):
        chosen = left[first : first + GROUP]
        found = run_group(asked.checkout, chosen, asked.engine)
        groups[",".join(chosen)] = found
        with whole_file(asked.results) as part:
            part.write_text(json.dumps(groups, indent=1))
        print(f"{found['seconds']:7.1f} s  {found['counts']}", flush=True)
        for failure in found["failures"]:
            print(f"    failed: {_short(failure, 200)}", flush=True)
    if asked.page is not None:
        asked.page.write_text(page(groups, asked.commit))


if __name__ == "__main__":
    main()
