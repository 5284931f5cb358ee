"""A window of a waveform as an SVG picture: groups, values as text, marks at tasks and interrupts.

The picture needs nothing from outside and follows the reader's choice of light or dark
(`prefers-color-scheme`).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from html import escape
from typing import TYPE_CHECKING

from waves.errors import WaveError
from waves.layout import Group, Mark, Row, chosen, layout, marks

if TYPE_CHECKING:
    from waves.reader import Wave

_ROW, _HEADING, _AXIS, _MARKS = 24, 28, 26, 18  # heights of the parts of a picture
_HIGH, _LOW = 4, 19  # a row's lines, from its top
_SIZE, _CHAR = 11.5, 6.95  # of the fixed-width font: height, and width of a character
_PAD, _SLANT, _DENSE = 12, 3.0, 2.5
_MOST_ROWS = 40
_KINDS = ("task", "write", "irq", "axi", "block", "field")

_STYLE = (
    """
svg { --paper: #ffffff; --ink: #1f2328; --faint: #656d76; --rule: #d8dee4; --band: #f6f8fa;
  --task: #1a7f37; --write: #bc4c00; --irq: #cf222e; --axi: #0969da; --block: #8250df; --field: #7d5a00; }
@media (prefers-color-scheme: dark) {
  svg { --paper: #0d1117; --ink: #e6edf3; --faint: #8d96a0; --rule: #30363d; --band: #161b22;
    --task: #3fb950; --write: #f0883e; --irq: #ff7b72; --axi: #58a6ff; --block: #bc8cff; --field: #d4a72c; }
}
"""
    + "".join(f".{kind} {{ stroke: var(--{kind}); fill: var(--{kind}); }}\n" for kind in _KINDS)
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
"""
)


def draw(
    wave: Wave,
    *,
    first: int | None = None,
    last: int | None = None,
    signals: Sequence[str] = (),
    width: int = 1200,
    title: str = "",
) -> str:
    """Draw cycles `first` to `last` (both included; default: all there are).

    Parameters
    ----------
    signals : patterns of signals to show, in this order; none: an overview of what happens in the window.
    width : of the picture, in pixels.
    title : for readers who cannot see it; default: the file's name and the cycles.

    Raises
    ------
    WaveError
        if the window is empty or outside the waveform, the width too small, or a pattern fits nothing.
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
    name = title or f"{wave.file.name}, cycles {low} to {high}"
    return _Picture(wave, groups, marks(wave, low, high), low, high, width, name).text()


def overview(wave: Wave, first: int, last: int) -> list[Group]:
    """What changes in a window, without the register files and what a viewer folds."""
    wanted = layout(wave)
    wave.load(*{row.signal.name for group in wanted for row in group.rows()})
    found: list[Group] = []

    def walk(group: Group, above: str) -> None:
        name = f"{above} · {group.name}" if above else group.name
        rows = [
            item
            for item in group.items
            if isinstance(item, Row) and item.kind != "field" and len(_runs(wave, item, first, last)) > 1
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


def _runs(wave: Wave, row: Row, first: int, last: int) -> list[tuple[int, int, int | str | None]]:
    """(first cycle, cycle after the last, value) of a row, neighbours with equal values joined."""
    found: list[tuple[int, int, int | str | None]] = []
    for begin, end, (value,) in wave.steps([row.signal.name], first, last):
        now = row.value(value)
        if found and found[-1][2] == now:
            begin = found.pop()[0]
        found.append((begin, end, now))
    return found


class _Picture:
    """Lays out and writes one picture."""

    def __init__(
        self,
        wave: Wave,
        groups: list[Group],
        found: list[Mark],
        first: int,
        last: int,
        width: int,
        title: str,
    ) -> None:
        self.wave, self.groups, self.marks = wave, groups, found
        self.first, self.last, self.width, self.title = first, last, width, title
        names = [row.label for group in groups for row in group.rows()]
        most = max(160.0, width * 0.35)
        self.left = min(most, max(len(name) for name in names) * _CHAR + 2 * _PAD)
        self.right = float(width - _PAD)
        if self.right - self.left < 100:
            raise WaveError(f"a picture of {width} pixels has no room for waves; take at least 400")
        self.scale = (self.right - self.left) / (last + 1 - first)
        self.top = _AXIS + (_MARKS if found else 0) + 4.0

    def x(self, cycle: float) -> float:
        return self.left + (cycle - self.first) * self.scale

    def text(self) -> str:
        body: list[str] = []
        place = self.top
        for group in self.groups:
            body.append(
                f'<rect class="band" x="0" y="{place:g}" width="{self.width}" height="{_HEADING - 4}"/>'
            )
            body.append(f'<text class="head" x="{_PAD}" y="{place + 16:g}">{escape(group.name)}</text>')
            place += _HEADING
            for row in group.rows():
                body += self._row(row, place)
                place += _ROW
            place += 4
        height = place + 4
        return "\n".join(
            [
                f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {self.width} {height:g}" '
                f'width="{self.width}" height="{height:g}" role="img">',
                f"<title>{escape(self.title)}</title>",
                f"<style>{_STYLE}</style>",
                f'<rect class="paper" width="{self.width}" height="{height:g}"/>',
                *self._axis(height),
                *body,
                *self._marks(height),
                "</svg>\n",
            ]
        )

    def _axis(self, height: float) -> Iterator[str]:
        room = max(2, int((self.right - self.left) / 90))
        step = _nice((self.last + 1 - self.first) / room)
        y = self.top - 4
        yield f'<text class="faint" x="{_PAD}" y="15">cycle</text>'
        for cycle in range(-(-self.first // step) * step, self.last + 2, step):
            x = self.x(cycle)
            yield f'<line class="grid" x1="{x:.1f}" x2="{x:.1f}" y1="20" y2="{height - 4:g}"/>'
            if self.left + 10 < x < self.right - 10:
                yield f'<text class="tick" x="{x:.1f}" y="15">{cycle}</text>'
        yield f'<line class="grid" x1="0" x2="{self.width}" y1="{y:g}" y2="{y:g}"/>'

    def _marks(self, height: float) -> Iterator[str]:
        free = self.left
        drawn: dict[str, float] = {}
        for mark in self.marks:
            x = self.x(mark.cycle)
            if x - drawn.get(mark.kind, -_DENSE) < _DENSE:
                continue  # a crowd of them is one line
            drawn[mark.kind] = x
            yield (
                f'<line class="mark {mark.kind}" x1="{x:.1f}" x2="{x:.1f}" y1="{_AXIS}" y2="{height - 4:g}">'
                f"<title>{escape(mark.name)}, cycle {mark.cycle}</title></line>"
            )
            long = len(mark.name) * _CHAR
            at = x + 4 if x + 4 + long <= self.right else x - 4 - long
            if at >= free:  # names that would lie upon another are left to the line's title
                yield f'<text class="{mark.kind}" x="{at:.1f}" y="{_AXIS + 11}">{escape(mark.name)}</text>'
                free = at + long + 6

    def _row(self, row: Row, top: float) -> Iterator[str]:
        label = _fitted(row.label, self.left - _PAD)
        title = f"<title>{escape(row.signal.name)}</title>"
        yield f'<text class="name" x="{self.left - 8:.1f}" y="{top + 16:g}">{escape(label)}{title}</text>'
        runs = _runs(self.wave, row, self.first, self.last)
        pieces = self._dense(runs)
        yield from (
            self._wire(row, pieces, top)
            if row.width == 1 and row.texts is None
            else self._bus(row, pieces, top)
        )

    def _dense(
        self, runs: list[tuple[int, int, int | str | None]]
    ) -> list[tuple[float, float, int | str | None, bool]]:
        """Runs as (x, x, value, dense): neighbours too narrow to tell apart become one dense piece."""
        pieces: list[tuple[float, float, int | str | None, bool]] = []
        for begin, end, value in runs:
            left, right = self.x(begin), self.x(end)
            narrow = right - left < _DENSE
            if narrow and pieces and pieces[-1][3]:
                left = pieces.pop()[0]
            pieces.append((left, right, value, narrow))
        # One narrow run by itself is no crowd: it is drawn as it is.
        return [(a, b, v, n and b - a >= _DENSE) for a, b, v, n in pieces]

    def _wire(
        self, row: Row, pieces: list[tuple[float, float, int | str | None, bool]], top: float
    ) -> Iterator[str]:
        high, low = top + _HIGH, top + _LOW
        path: list[str] = []
        filled: list[str] = []
        for left, right, value, dense in pieces:
            if dense:
                yield _box("dense " + row.kind, left, right, high, low)
                path.append(f"M{right:.1f} {low:g}")
            elif value is None:
                yield _box("unknown", left, right, high, low)
                path.append(f"M{right:.1f} {low:g}")
            else:
                y = high if value else low
                path.append(f"{'L' if path else 'M'}{left:.1f} {y:g}H{right:.1f}")
                if value:
                    filled.append(_box("up " + row.kind, left, right, high, low))
        yield from filled
        yield f'<path class="wire {row.kind}" d="{"".join(path)}"/>'

    def _bus(
        self, row: Row, pieces: list[tuple[float, float, int | str | None, bool]], top: float
    ) -> Iterator[str]:
        high, low, middle = top + _HIGH, top + _LOW, top + (_HIGH + _LOW) / 2
        for left, right, value, dense in pieces:
            if dense:
                yield _box("dense " + row.kind, left, right, high, low)
                continue
            slant = min(_SLANT, (right - left) / 2)
            kind = "unknown" if value is None else f"bus {row.kind}"
            points = (
                f"{left:.1f},{middle:g} {left + slant:.1f},{high:g} {right - slant:.1f},{high:g} "
                f"{right:.1f},{middle:g} {right - slant:.1f},{low:g} {left + slant:.1f},{low:g}"
            )
            text = row.text(value)
            yield f'<polygon class="{kind}" points="{points}"><title>{escape(text)}</title></polygon>'
            shown = _fitted(text, right - left - 2 * _SLANT - 3)
            if shown:
                yield f'<text x="{left + _SLANT + 2.5:.1f}" y="{top + 15.5:g}">{escape(shown)}</text>'


def _box(kind: str, left: float, right: float, high: float, low: float) -> str:
    size = f'width="{right - left:.1f}" height="{low - high:g}"'
    return f'<rect class="{kind}" x="{left:.1f}" y="{high:g}" {size}/>'


def _fitted(text: str, room: float) -> str:
    """A text cut to a room of some pixels, "" if not even two characters fit."""
    count = int(room / _CHAR)
    if len(text) <= count:
        return text
    return text[: count - 1] + "…" if count >= 3 else ""


def _nice(step: float) -> int:
    """The next of 1, 2, 5, 10, 20, ... from a number up."""
    power = 1
    while True:
        for factor in (1, 2, 5):
            if factor * power >= step:
                return factor * power
        power *= 10
