"""A window of a waveform as an SVG picture: groups, values as text, marks at tasks and interrupts.

The picture needs no external resources and follows the reader's choice of light or dark
(`prefers-color-scheme`).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import pairwise

from markupsafe import Markup

from rkcosim.waves.decode import Wave
from rkcosim.waves.drawing import clip, colours, el, line, number, rect, round_step, text, title, written_out
from rkcosim.waves.files import WaveError
from rkcosim.waves.layout import Group, Mark, ViewerLine, chosen, layout, marks

_ROW, _HEADING, _AXIS, _MARKS = 24, 28, 26, 18  # heights of the parts of a picture
_HIGH, _LOW = 4, 19  # upper and lower line of a row, from its top
_SIZE, _CHAR = 11.5, 6.95  # the fixed-width font: height, and width of a character
_PAD, _SLANT, _DENSE = 12, 3.0, 2.5
_MOST_ROWS = 40
_LEAST_TAIL = 20  # cycles that are drawn of a quiet end
_KINDS = ("task", "write", "irq", "axi", "block", "field")

_LIGHT = colours(
    "--paper: #ffffff; --ink: #1f2328; --faint: #656d76; --rule: #d8dee4; --band: #f6f8fa; --task: #1a7f37;"
    "--write: #bc4c00; --irq: #cf222e; --axi: #0969da; --block: #8250df; --field: #7d5a00;"
)
_DARK = colours(
    "--paper: #0d1117; --ink: #e6edf3; --faint: #8d96a0; --rule: #30363d; --band: #161b22; --task: #3fb950;"
    "--write: #f0883e; --irq: #ff7b72; --axi: #58a6ff; --block: #bc8cff; --field: #d4a72c;"
)
_STYLE = written_out(
    "".join(f".{kind} {{ stroke: var(--{kind}); fill: var(--{kind}); }}\n" for kind in _KINDS)
    + """text { font: 11.5px ui-monospace, SFMono-Regular, Menlo, Consolas, "DejaVu Sans Mono", monospace;
  stroke: none !important; }
text:not([class]), .name, .head { fill: var(--ink); }
.paper { fill: var(--paper); }
.band { fill: var(--band); }
.head { font-weight: 600; }
.faint { fill: var(--faint); }
.name { text-anchor: end; }
.tick { text-anchor: middle; fill: var(--faint); }
.grid { stroke: var(--rule); stroke-width: 1; }
.mark { stroke-width: 1.2; stroke-dasharray: 4 3; }
.wire { fill: none; stroke-width: 1.4; stroke-linejoin: round; }
.bus { stroke-width: 1.2; fill-opacity: .1; }
.dense { fill-opacity: .45; stroke: none; }
.up { fill-opacity: .14; stroke: none; }
.unknown { stroke: var(--irq); fill: var(--irq); stroke-width: 1.2; fill-opacity: .15; }
""",
    _LIGHT,
    _DARK,
)


def draw(
    wave: Wave,
    *,
    first: int | None = None,
    last: int | None = None,
    signals: Sequence[str] = (),
    width: int = 1200,
    name: str = "",
) -> str:
    """Draw cycles `first` to `last` (both included; default: all).

    Parameters
    ----------
    signals : patterns of signals to show, in this order; none: an overview of the activity in the window.
    width : width of the picture in pixels.
    name : description for readers who cannot see it; default: the file's name and the cycles.

    Raises
    ------
    WaveError
        if the window is empty or outside of the waveform, the width is too small, or a pattern matches
        nothing.
    """
    low = wave.first if first is None else first
    high = wave.last if last is None else last
    if low > high or high < wave.first or low > wave.last:
        raise WaveError(
            f"{wave.file}: no cycles {low} to {high}; the waveform has {wave.first} to {wave.last}"
        )
    low, high = max(low, wave.first), min(high, wave.last)
    groups = chosen(wave, signals) if signals else overview(wave, low, high)
    if not groups:
        raise WaveError(f"{wave.file}: nothing to draw; name signals (--signals)")
    name = name or f"{wave.file.name}, cycles {low} to {high}"
    return str(_Picture(wave, groups, marks(wave, low, high), low, high, width).drawn(name)) + "\n"


def end_of_activity(wave: Wave, first: int | None = None, signals: Sequence[str] = ()) -> int | None:
    """Return the cycle at which a picture from `first` on ends better than at the waveform's end, or None.

    If nothing that would be drawn changes in more than half of it at a stretch, as in a run that hangs, it
    ends shortly after this stretch begins.
    """
    low, high = max(wave.first, wave.first if first is None else first), wave.last
    groups = chosen(wave, signals) if signals else overview(wave, low, high)
    changes = {
        begin for group in groups for row in group.rows() for begin, _, _ in _runs(wave, row, low, high)
    }
    times = sorted({low, *changes, high})
    gap, begin = max(((b - a, a) for a, b in pairwise(times)), default=(0, high))
    if 2 * gap <= high - low:
        return None
    end = begin + max(_LEAST_TAIL, (begin - low) // 20)
    return end if end < high else None


def overview(wave: Wave, first: int, last: int) -> list[Group]:
    """Return what changes in a window, without the register files and without folded groups."""
    wanted = layout(wave)
    wave.load(*{row.signal.name for group in wanted for row in group.rows()})
    found: list[Group] = []

    def walk(group: Group, above: str) -> None:
        name = f"{above} · {group.name}" if above else group.name
        rows = [
            item
            for item in group.items
            if isinstance(item, ViewerLine)
            and item.kind != "field"
            and len(_runs(wave, item, first, last)) > 1
        ]
        if rows and not group.closed:
            found.append(Group(name, list(rows)))
        for item in group.items:
            if isinstance(item, Group) and not group.closed:
                walk(item, name)

    for group in wanted:
        walk(group, "")
    left = _MOST_ROWS
    for group in found:
        group.items = group.items[:left]
        left -= len(group.items)
    return [group for group in found if group.items]


def _runs(wave: Wave, row: ViewerLine, first: int, last: int) -> list[tuple[int, int, int | str | None]]:
    """Return (first cycle, cycle after the last, value) of a row; neighbours with equal values are joined."""
    found: list[tuple[int, int, int | str | None]] = []
    for begin, end, (value,) in wave.steps([row.signal.name], first, last):
        now = row.value(value)
        if found and found[-1][2] == now:
            begin = found.pop()[0]
        found.append((begin, end, now))
    return found


Piece = tuple[float, float, int | str | None, bool]
"""Left and right end, value, and whether it stands for many changes."""


class _Picture:
    """Lays out and writes one picture."""

    def __init__(
        self, wave: Wave, groups: list[Group], found: list[Mark], first: int, last: int, width: int
    ) -> None:
        self.wave, self.groups, self.marks = wave, groups, found
        self.first, self.last, self.width = first, last, width
        names = [row.label for group in groups for row in group.rows()]
        most = max(160.0, width * 0.35)
        self.left = min(most, max(len(name) for name in names) * _CHAR + 2 * _PAD)
        self.right = float(width - _PAD)
        if self.right - self.left < 100:
            raise WaveError(f"a picture of {width} pixels has no room for waves; use at least 400")
        self.scale = (self.right - self.left) / (last + 1 - first)
        self.top = _AXIS + (_MARKS if found else 0) + 4.0

    def x(self, cycle: float) -> float:
        return self.left + (cycle - self.first) * self.scale

    def drawn(self, name: str) -> Markup:
        body: list[Markup] = []
        place = self.top
        for group in self.groups:
            body.append(rect(0, place, self.width, _HEADING - 4, class_="band"))
            body.append(text(_PAD, place + 16, group.name, class_="head"))
            place += _HEADING
            for row in group.rows():
                body += self._row(row, place)
                place += _ROW
            place += 4
        height = place + 4
        return el(
            "svg",
            title(name),
            el("style", Markup(_STYLE)),
            rect(0, 0, self.width, height, class_="paper"),
            *self._axis(height),
            *body,
            *self._marks(height),
            xmlns="http://www.w3.org/2000/svg",
            viewBox=f"0 0 {self.width} {number(height)}",
            width=self.width,
            height=height,
            role="img",
        )

    def _axis(self, height: float) -> Iterator[Markup]:
        room = max(2, int((self.right - self.left) / 90))
        step = max(1, int(round_step((self.last + 1 - self.first) / room)))
        yield text(_PAD, 15, "cycle", class_="faint")
        for cycle in range(-(-self.first // step) * step, self.last + 2, step):
            x = self.x(cycle)
            yield line(x, 20, x, height - 4, class_="grid")
            if self.left + 10 < x < self.right - 10:
                yield text(x, 15, cycle, class_="tick")
        yield line(0, self.top - 4, self.width, self.top - 4, class_="grid")

    def _marks(self, height: float) -> Iterator[Markup]:
        free = self.left
        drawn: dict[str, float] = {}
        for mark in self.marks:
            x = self.x(mark.cycle)
            if x - drawn.get(mark.kind, -_DENSE) < _DENSE:
                continue  # several marks at one place are one line
            drawn[mark.kind] = x
            said = title(f"{mark.name}, cycle {mark.cycle}")
            yield line(x, _AXIS, x, height - 4, said, class_=f"mark {mark.kind}")
            long = len(mark.name) * _CHAR
            at = x + 4 if x + 4 + long <= self.right else x - 4 - long
            if at >= free:  # a name that would overlap another one is only in the line's title
                yield text(at, _AXIS + 11, mark.name, class_=mark.kind)
                free = at + long + 6

    def _row(self, row: ViewerLine, top: float) -> Iterator[Markup]:
        label = _fitted(row.label, self.left - _PAD)
        yield text(self.left - 8, top + 16, label, title(row.signal.name), class_="name")
        pieces = self._dense(_runs(self.wave, row, self.first, self.last))
        wire = row.width == 1 and row.texts is None
        yield from (self._wire if wire else self._bus)(row, pieces, top + _HIGH, top + _LOW)

    def _dense(self, runs: list[tuple[int, int, int | str | None]]) -> list[Piece]:
        """Convert runs to pieces: neighbours too narrow to be distinguished become one dense piece."""
        pieces: list[Piece] = []
        for begin, end, value in runs:
            left, right = self.x(begin), self.x(end)
            narrow = right - left < _DENSE
            if narrow and pieces and pieces[-1][3]:
                left = pieces.pop()[0]
            pieces.append((left, right, value, narrow))
        # A single narrow run is drawn unchanged.
        return [(a, b, v, n and b - a >= _DENSE) for a, b, v, n in pieces]

    def _wire(self, row: ViewerLine, pieces: list[Piece], high: float, low: float) -> Iterator[Markup]:
        data: list[str] = []
        filled: list[Markup] = []
        for left, right, value, dense in pieces:
            box = left, high, right - left, low - high
            if dense or value is None:
                yield rect(*box, class_=f"dense {row.kind}" if dense else "unknown")
                data.append(f"M{number(right)} {low:g}")
                continue
            data.append(f"{'L' if data else 'M'}{number(left)} {high if value else low:g}H{number(right)}")
            if value:
                filled.append(rect(*box, class_=f"up {row.kind}"))
        yield from filled
        yield el("path", class_=f"wire {row.kind}", d="".join(data))

    def _bus(self, row: ViewerLine, pieces: list[Piece], high: float, low: float) -> Iterator[Markup]:
        middle = (high + low) / 2
        for left, right, value, dense in pieces:
            if dense:
                yield rect(left, high, right - left, low - high, class_=f"dense {row.kind}")
                continue
            slant = min(_SLANT, (right - left) / 2)
            inner = left + slant, right - slant
            corners = [(left, middle), (inner[0], high), (inner[1], high)]
            corners += [(right, middle), (inner[1], low), (inner[0], low)]
            words = row.text(value)
            kind = "unknown" if value is None else f"bus {row.kind}"
            yield el(
                "polygon", title(words), class_=kind, points=" ".join(f"{x:.1f},{y:g}" for x, y in corners)
            )
            if shown := _fitted(words, right - left - 2 * _SLANT - 3):
                yield text(left + _SLANT + 2.5, high + 11.5, shown)


def _fitted(words: str, room: float) -> str:
    """Shorten a text to a width in pixels, "" if not even two characters fit."""
    count = int(room / _CHAR)
    return clip(words, count) if len(words) <= count or count >= 3 else ""
