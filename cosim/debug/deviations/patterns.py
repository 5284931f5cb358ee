"""How a wrong tensor differs from the right one: the pattern of its differences, in words."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

NEARLY = 0.98
"""Share of the wrong elements that a pattern must explain."""

AXES = ("channels", "rows", "columns")


@dataclass(frozen=True)
class Pattern:
    """One way in which the differences can be described.

    Members
    -------
    kind : "stale", "offset", "channel offset", "shift", "scale", "saturation", "relu", "clipped", "order of
        channels", "order of surfaces", "order of rows", "order of columns", "moved rows", "moved columns",
        "border", "part" or "scattered".
    text : a description.
    number : the offset, the factor, or the distance; None if there is none.
    """

    kind: str
    text: str
    number: float | None = None


def patterns(
    got: NDArray[np.generic],
    want: NDArray[np.generic],
    compared: NDArray[np.bool_],
    wrong: NDArray[np.bool_],
    before: NDArray[np.generic] | None = None,
    per_atom: int = 16,
) -> list[Pattern]:
    """Describe the differences of a cube, the most specific description first.

    Parameters
    ----------
    got, want : elements (channels, rows, columns), of one type.
    compared, wrong : which elements were compared, and which differ.
    before : the elements as they were before the task that wrote them; None: unknown.
    per_atom : channels of a surface.

    Returns
    -------
    At least one description if any element is wrong, none otherwise.
    """
    if not wrong.any():
        return []
    given = _Given(got, want, compared, wrong, before, per_atom)
    found = [
        pattern
        for look in (_stale, _order, _moved, _offset, _linear, _relu, _channel_offset, _limits, _border)
        for pattern in look(given)
    ]
    return [*found, _where(given)]


class _Given:
    def __init__(
        self,
        got: NDArray[np.generic],
        want: NDArray[np.generic],
        compared: NDArray[np.bool_],
        wrong: NDArray[np.bool_],
        before: NDArray[np.generic] | None,
        per_atom: int,
    ) -> None:
        self.raw_got, self.raw_want, self.raw_before = got, want, before
        self.compared, self.wrong, self.per_atom = compared, wrong, per_atom
        with np.errstate(invalid="ignore"):
            self.got, self.want = got.astype(np.float64), want.astype(np.float64)
        self.low, self.high = -np.inf, np.inf
        if got.dtype.kind in "iu":
            bits = 8 * got.dtype.itemsize
            signed = got.dtype.kind == "i"
            self.low = -(2.0 ** (bits - 1)) if signed else 0.0
            self.high = 2.0 ** (bits - signed) - 1
        finite = np.isfinite(self.got) & np.isfinite(self.want)
        inside = (self.got > self.low) & (self.got < self.high) & (self.want > self.low)
        self.free = compared & finite & inside & (self.want < self.high)
        """Elements that are at no limit of their type on either side."""


def _stale(given: _Given) -> Iterator[Pattern]:
    if given.raw_before is None:
        return
    same = given.raw_before[given.wrong] == given.raw_got[given.wrong]
    if same.mean() >= NEARLY:
        yield Pattern(
            "stale", "the wrong elements still have the values from before the task: nothing wrote them"
        )


def _order(given: _Given) -> Iterator[Pattern]:
    if not given.compared.all():
        return
    for axis, name in enumerate(AXES):
        count = given.got.shape[axis]
        if count < 2:
            continue
        ours, theirs = np.moveaxis(given.raw_got, axis, 0), np.moveaxis(given.raw_want, axis, 0)
        places: dict[bytes, list[int]] = {}
        for number in range(count):
            places.setdefault(np.ascontiguousarray(theirs[number]).tobytes(), []).append(number)
        order = []
        for number in range(count):
            held = places.get(np.ascontiguousarray(ours[number]).tobytes(), [])
            order.append(number if number in held else held[0] if held else -1)
        if -1 in order or len(set(order)) < max(2, len(places)):
            continue
        moved = [number for number, source in enumerate(order) if source != number]
        if not moved:
            continue
        atom = given.per_atom
        if (
            axis == 0
            and count % atom == 0
            and all(source // atom * atom + number % atom == source for number, source in enumerate(order))
        ):
            blocks = [order[number] // atom for number in range(0, count, atom)]
            yield Pattern(
                "order of surfaces", f"surfaces are exchanged: they come in the order {_list(blocks)}"
            )
            continue
        distance = {source - number for number, source in enumerate(order)}
        if len(distance) == 1:
            yield Pattern(f"moved {name}", f"all {name} are moved by {distance.pop()}", 0.0)
            continue
        yield Pattern(
            f"order of {name}",
            f"{name} are exchanged: {name} {_list(moved)} have those of {_list([order[m] for m in moved])}",
        )


def _list(numbers: list[int]) -> str:
    shown = ", ".join(map(str, numbers[:8]))
    return shown + (", ..." if len(numbers) > 8 else "")


def _moved(given: _Given) -> Iterator[Pattern]:
    for axis in (1, 2):
        count = given.got.shape[axis]
        for distance in (1, -1, 2, -2, 3, -3):
            if count <= 2 * abs(distance):
                continue
            low, high = max(0, -distance), count - max(0, distance)
            here = [slice(None)] * 3
            there = list(here)
            here[axis], there[axis] = slice(low, high), slice(low + distance, high + distance)
            ours, theirs = given.raw_got[tuple(here)], given.raw_want[tuple(there)]
            held = given.compared[tuple(here)] & given.compared[tuple(there)]
            if held.any() and (ours == theirs)[held].all() and given.wrong[tuple(here)].any():
                text = f"{AXES[axis]} are moved by {distance}: each has the values of the one {distance:+d}"
                yield Pattern(f"moved {AXES[axis]}", text, float(distance))
                return


def _offset(given: _Given) -> Iterator[Pattern]:
    held = given.free & given.wrong
    if held.sum() < 2:
        held = given.wrong
    difference = (given.got - given.want)[held]
    values, counts = np.unique(difference, return_counts=True)
    best = int(np.argmax(counts))
    share = counts[best] / difference.size
    if share >= NEARLY and difference.size > 1 and np.isfinite(values[best]):
        number = float(values[best])
        text = f"the reference {'plus' if number > 0 else 'minus'} {abs(number):g}"
        all_wrong = given.wrong[given.free].all()
        where = "everywhere" if all_wrong else "where it differs"
        yield Pattern("offset", f"{text} {where}", number)


def _linear(given: _Given) -> Iterator[Pattern]:
    """Look for a factor, with an offset that is found along with it."""
    held = given.free
    x, y = given.want[held], given.got[held]
    if x.size < 8 or np.ptp(x) < 4:
        return
    factor, offset = _line(x, y)
    if not np.isfinite(factor) or abs(factor) < 1e-3 or abs(factor - 1) < 0.02:
        return
    # The rounding of both sides, and that of the reference enlarged by the factor.
    room = 1.0 + 0.5 * abs(factor) if given.raw_got.dtype.kind in "iu" else 0.02 * np.abs(y).max()
    if (np.abs(y - (factor * x + offset)) <= room).mean() < NEARLY:
        return
    power = np.log2(abs(factor))
    if factor > 0 and abs(power - round(power)) < 0.07 and round(power):
        places = round(power)
        way = "left" if places > 0 else "right"
        text = f"{2.0**places:g} times the reference: a shift by {abs(places)} to the {way}"
        yield Pattern("shift", text, float(places))
    else:
        yield Pattern(
            "scale", f"about {factor:.4g} times the reference, with an offset of {offset:.4g}", factor
        )


def _line(x: NDArray[np.float64], y: NDArray[np.float64]) -> tuple[float, float]:
    spread = x - x.mean()
    factor = float((spread * (y - y.mean())).sum() / (spread * spread).sum())
    return factor, float(y.mean() - factor * x.mean())


def _relu(given: _Given) -> Iterator[Pattern]:
    got, want = given.got[given.wrong], given.want[given.wrong]
    floor = float(np.nanmin(given.want[given.compared]))
    if got.size and (want == floor).all() and (got < floor).all():
        yield Pattern(
            "relu",
            f"values below {floor:g} pass, which the reference replaces by {floor:g}: a ReLU is missing",
        )
    floor = float(np.nanmin(given.got[given.compared]))
    if got.size and (got == floor).all() and (want < floor).all():
        yield Pattern(
            "relu",
            f"values below {floor:g} are replaced by {floor:g}, which the reference has: a ReLU too much",
        )
    ceiling = float(np.nanmax(given.want[given.compared]))
    if got.size and ceiling < given.high and (want == ceiling).all() and (got > ceiling).all():
        yield Pattern("clipped", f"values above {ceiling:g} pass, which the reference limits to {ceiling:g}")
    ceiling = float(np.nanmax(given.got[given.compared]))
    if got.size and ceiling < given.high and (got == ceiling).all() and (want > ceiling).all():
        yield Pattern(
            "clipped", f"values above {ceiling:g} are limited to {ceiling:g}, which the reference does not do"
        )


def _channel_offset(given: _Given) -> Iterator[Pattern]:
    channels = given.got.shape[0]
    if channels < 2 or given.got[0].size < 2:
        return
    offsets, explained, total = {}, 0, 0
    for channel in range(channels):
        held = given.free[channel]
        if not held.any():
            continue
        values, counts = np.unique((given.got - given.want)[channel][held], return_counts=True)
        best = int(np.argmax(counts))
        explained, total = explained + int(counts[best]), total + int(held.sum())
        offsets[channel] = float(values[best])
    if not total or explained / total < 0.9 or len(set(offsets.values())) < 2:
        return
    shown = ", ".join(f"{c}: {v:+g}" for c, v in list(offsets.items())[:6])
    more = ", ..." if len(offsets) > 6 else ""
    yield Pattern("channel offset", f"a constant difference in each channel ({shown}{more})")


def _limits(given: _Given) -> Iterator[Pattern]:
    got, want = given.got[given.wrong], given.want[given.wrong]
    if not np.isfinite(given.low):
        return
    if ((got == given.low) | (got == given.high)).mean() >= NEARLY:
        yield Pattern(
            "saturation", "the wrong elements are at the limits of their type: a result is too large"
        )
    elif ((want == given.low) | (want == given.high)).mean() >= NEARLY and got.size > 1:
        yield Pattern(
            "saturation",
            "the reference is at the limits of its type where they differ: a result is too small",
        )


def _border(given: _Given) -> Iterator[Pattern]:
    _, rows, columns = given.got.shape
    wrong: NDArray[np.bool_] = np.logical_or.reduce(given.wrong, axis=0)
    if not wrong.any():
        return
    # The narrowest frame of which the inside is right.
    for depth in (1, 2, 3):
        if rows <= 2 * depth or columns <= 2 * depth:
            break
        inside = wrong.copy()
        for part in _sides(depth).values():
            inside[part] = False
        if not inside.any():
            needed = _needed(wrong, depth)
            lines = "row or column" if depth == 1 else f"{depth} rows or columns"
            yield Pattern(
                "border", f"only the border is wrong ({', '.join(needed)}, {lines} deep)", float(depth)
            )
            return


def _sides(depth: int) -> dict[str, tuple[slice, slice]]:
    every = slice(None)
    return {
        "top": (slice(0, depth), every),
        "bottom": (slice(-depth, None), every),
        "left": (every, slice(0, depth)),
        "right": (every, slice(-depth, None)),
    }


def _needed(wrong: NDArray[np.bool_], depth: int) -> list[str]:
    """Return the fewest sides that have all wrong elements, in the order of how many they have."""
    left, needed = wrong.copy(), []
    while left.any():
        sides = _sides(depth)
        name = max(sides, key=lambda side: int(left[sides[side]].sum()))
        needed.append(name)
        left[sides[name]] = False
    return needed


def _where(given: _Given) -> Pattern:
    """Say where the wrong elements are."""
    parts = []
    for axis, name in enumerate(AXES):
        others = tuple(n for n in range(3) if n != axis)
        lines = np.flatnonzero(given.wrong.any(axis=others))
        if lines.size < given.wrong.shape[axis]:
            whole = lines.size == lines[-1] - lines[0] + 1
            parts.append(
                f"{name} {lines[0]}" + (f" to {lines[-1]}" if lines.size > 1 else "")
                if whole
                else f"{name} {_list(lines.tolist())}"
            )
    if parts:
        return Pattern("part", f"the wrong elements are in {', '.join(parts)}")
    return Pattern("scattered", "wrong elements are in every channel, row and column")
