"""The estimator's section of docs/results/performance.md."""

from __future__ import annotations

from typing import Any

from rkcosim.measure.perf.estimator.coefficients import DELAYS, Fit, stored_fit
from rkcosim.measure.perf.page import table


def section(result: dict[str, Any], fit: Fit | None = None) -> str:
    """Return Markdown with the delays, the errors, and one estimate in the form of `rkcosim estimate`."""
    fit = fit or stored_fit()
    delays = [(f"`{name}`", f"{fit.coefficients[name]:.1f}", of.meaning) for name, of in DELAYS.items()]
    halves = {**fit.errors, **{f"held out: {kind}": errors for kind, errors in fit.kinds.items()}}
    cores = f"{result['cores']} core{'s' if result['cores'] > 1 else ''}"
    lines = [
        *table(("delay", "cycles", ""), delays),
        "",
        "Errors against the RTL, `|estimate / RTL - 1|` by layer:",
        "",
        *table(
            ("layers", "number", "median", "mean", "95th percentile", "worst"),
            [
                (name, e["n"], *(f"{e[part]:.2%}" for part in ("median", "mean", "p95", "worst")))
                for name, e in halves.items()
            ],
        ),
        "",
        "The held-out layers with the largest errors:",
        "",
        *table(
            ("layer", "memory", "RTL", "estimated", "error"),
            [
                (
                    row["layer"],
                    row["setting"],
                    f"{row['cycles']:,}",
                    f"{row['estimate']:,}",
                    f"{row['error']:+.1%}",
                )
                for row in fit.worst
            ],
        ),
        "",
        f"`{result['model']}` on {cores} at {result['clock_mhz']:g} MHz with "
        f"{result['dram']['gigabytes_per_second']:.4g} GB/s: {result['cycles']:,} cycles, "
        f"{result['milliseconds']:.3f} ms.",
    ]
    if result["what_if"]:
        rows = [
            (
                row["group"],
                row["name"],
                f"{row['cycles']:,}",
                f"{row['milliseconds']:.3f}",
                f"{row['milliseconds'] / result['milliseconds']:.1%}",
                row["note"],
            )
            for row in result["what_if"]
        ]
        lines += ["", *table(("what if", "", "cycles", "ms", "time", ""), rows)]
    return "\n".join(lines)
