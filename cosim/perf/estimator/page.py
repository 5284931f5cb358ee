"""The estimator's section of docs/performance.md."""

from __future__ import annotations

from typing import Any

from cosim.perf.estimator.coefficients import MEANINGS, Fit, stored_fit

FORMULA = """\
A task's time is put together from sizes that stand in its registers: no cycle is simulated, and no \
coefficient stands for a rate. Stripe after stripe of each kernel group passes the array, the DPU and the \
writer, each of which has two places. The array takes 16 cycles a weight tile, the DPU one cycle (or four \
with tables, or one for each float operation) for eight channels. What they wait for are rows, weight tiles, \
tables and operands; those and the results take turns at DRAM, of which a beat of 32 bytes takes `32 / peak` \
cycles. Each core's reads and each core's writes that wait get the same share; those who read for a core \
take turns burst by burst, the lists of commands among them; a loader reads ahead while there is room. \
From one such event to the next everything goes at a constant pace. A port takes in some beats that DRAM \
writes later, 15 write bursts are under way at most, and a burst is asked for when the one before has left. \
The PPU's rows take as long as windows are open. Cores that share a layer are worked out together: there is \
nothing to fit about their contention. A job is its fetch of commands, its tasks, and the gaps between them. \
Fitted are only the fixed delays:"""


REFIT = """\
The data set is 45 million cycles of single layers with drawn shapes (dense, depthwise, first layers, fully \
connected, products, additions, poolings, moves; int8 and fp16; seven memory timings; one to three cores), \
of float products whose K is computed in parts, and of whole networks. Half of the layers, by a hash of \
their names, are held out. After a change of the RTL that moves cycles, `rkcosim estimate` says so, and \
`python -m cosim.perf.estimator.collect` and `python -m cosim.perf.estimator.fit` make the data and the fit \
anew (`--check 8` compares a few layers, `--sizes` is enough after a change of what is read off the \
registers)."""


def section(result: dict[str, Any], fit: Fit | None = None) -> str:
    """Markdown of the formula, the errors, and one model's estimate as `rkcosim estimate` has it."""
    fit = fit or stored_fit()
    lines = [FORMULA, "", "| delay | cycles | |", "| --- | --- | --- |"]
    lines += [f"| `{name}` | {fit.coefficients[name]:.1f} | {words} |" for name, words in MEANINGS.items()]
    lines += ["", "Errors against the RTL, `|estimate / RTL - 1|` by layer:", ""]
    lines += ["| layers | number | median | mean | 95th percentile | worst |", "| --- " * 6 + "|"]
    for name, errors in {**fit.errors, **{f"held out: {k}": v for k, v in fit.kinds.items()}}.items():
        lines.append(
            f"| {name} | {errors['n']} | {errors['median']:.2%} | {errors['mean']:.2%} "
            f"| {errors['p95']:.2%} | {errors['worst']:.2%} |"
        )
    lines += ["", "The worst of the layers held out:", "", "| layer | memory | RTL | estimated | error |"]
    lines += ["| --- " * 5 + "|"]
    lines += [
        f"| {row['layer']} | {row['setting']} | {row['cycles']:,} | {row['estimate']:,} "
        f"| {row['error']:+.1%} |"
        for row in fit.worst
    ]
    lines += ["", _model(result), "", REFIT]
    return "\n".join(lines)


def _model(result: dict[str, Any]) -> str:
    cores = f"{result['cores']} core{'s' if result['cores'] > 1 else ''}"
    lines = [
        f"`{result['model']}` on {cores} at {result['clock_mhz']:g} MHz with "
        f"{result['dram']['gigabytes_per_second']:.4g} GB/s: {result['cycles']:,} cycles, "
        f"{result['milliseconds']:.3f} ms."
    ]
    if result["what_if"]:
        lines += ["", "| what if | | cycles | ms | time | |", "| --- " * 6 + "|"]
        lines += [
            f"| {row['group']} | {row['name']} | {row['cycles']:,} | {row['milliseconds']:.3f} "
            f"| {row['milliseconds'] / result['milliseconds']:.1%} | {row['note']} |"
            for row in result["what_if"]
        ]
    return "\n".join(lines)
