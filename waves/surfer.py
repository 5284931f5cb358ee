"""Files for the Surfer viewer: a state (`.surf.ron`) and mapping translators (`.surfer/mappings/`).

A mapping is a text file: `Name = ...`, `Bits = ...`, then lines `VALUE text` (Surfer's book, "Mapping
Translators").  The state is what Surfer saves itself, in RON; fields as of versions 0.4 to 0.7, of which
each leaves unread those it does not know.  Surfer finds variables again by path and name, so their ids
in the state may be anything.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from waves.files import WRITTEN_BY, ours
from waves.layout import COLOURS, Group, Mark, Row, layout, marks, translations
from waves.translate import Translation

if TYPE_CHECKING:
    from waves.reader import Wave

MOST_MARKS = 250
"""Markers that a state holds: their numbers are bytes."""

_COLOURS = {
    "green": "Green",
    "orange": "Orange",
    "red": "Red",
    "blue": "Blue",
    "violet": "Violet",
    "yellow": "Yellow",
}
_BASES = {"hex": "Hexadecimal", "dec": "Unsigned", "bin": "Binary", "text": "String"}
_VIEW = (
    "(curr_left: (0.0), curr_right: (1.0), target_left: (0.0), target_right: (1.0), "
    "move_start_left: (0.0), move_start_right: (1.0), move_duration: None, move_strategy: Instant)"
)


def write_surfer(wave: Wave, state: Path | None = None) -> tuple[Path, list[Path]]:
    """Write a state and its mappings; by default beside the waveform, never over a user's own.

    Surfer reads mappings from `.surfer/mappings/` of the folder it is started in, which therefore must be
    that of the state.

    Returns
    -------
    The state, and the mappings.
    """
    state = state or ours(wave.file.with_suffix(".surf.ron"))
    groups = layout(wave)
    folder = state.resolve().parent / ".surfer" / "mappings"
    folder.mkdir(parents=True, exist_ok=True)
    written = []
    for texts in translations(groups):
        name = mapping_name(wave, texts)
        path = folder / f"{name}.txt"
        path.write_text(mapping_text(texts, name))
        written.append(path)
    state.write_text(state_text(wave, groups, marks(wave)[:MOST_MARKS]))
    return state, sorted(written)


def mapping_name(wave: Wave, texts: Translation) -> str:
    """Name under which Surfer knows a table; that of the words is the waveform's own."""
    name = re.sub(r"[^\w.]+", "_", texts.name)
    return (
        name
        if not texts.name.startswith("command_word")
        else name + "_" + re.sub(r"\W+", "_", wave.file.stem)
    )


def mapping_text(texts: Translation, name: str) -> str:
    """A mapping translator's file.  `#` begins a comment there and is left out of texts."""
    digits = -(-texts.width // 4)
    lines = [f"Name = {name}", f"Bits = {texts.width}"]
    lines += [f"0x{value:0{digits}x} {text.replace('#', '')}" for value, text in sorted(texts.texts.items())]
    return "\n".join(lines) + "\n"


def state_text(wave: Wave, groups: list[Group], found: list[Mark]) -> str:
    """The state as RON."""
    writer = _State(wave)
    for group in groups:
        writer.group(group, 0)
    for number, mark in enumerate(found):
        writer.mark(number, mark)
    return writer.text()


class _State:
    """Collects the items of a state."""

    def __init__(self, wave: Wave) -> None:
        self.wave = wave
        self.tree: list[str] = []
        self.items: list[str] = []
        self.marks: list[str] = []
        self._variables = 0

    def group(self, group: Group, level: int) -> None:
        name = _text(group.name)
        content = f"Group((name: {name}, color: None, background_color: None, content: [], is_open: "
        self._item(f"{content}{_bool(not group.closed)}))", level, unfolded=not group.closed)
        bits: set[str] = set()
        for item in group.items:
            if isinstance(item, Group):
                self.group(item, level + 1)
            elif item.bit is None:
                self._row(item, level + 1)
            elif item.signal.name not in bits:  # Surfer has no rows for single bits: the whole, in binary
                bits.add(item.signal.name)
                self._row(replace(item, label=item.signal.leaf, bit=None), level + 1)

    def _row(self, row: Row, level: int) -> None:
        self._variables += 1
        scopes = ", ".join(_text(part) for part in row.signal.scope.split("."))
        form = mapping_name(self.wave, row.texts) if row.texts else _BASES[row.base]
        if row.width == 1 and not row.texts:
            form = "Bit"
        leaf = _text(row.signal.leaf)
        self._item(
            f"Variable((variable_ref: (path: (strs: [{scopes}], id: Wellen((1))), name: {leaf}, "
            f"id: Wellen(({self._variables})), index: None), "
            f"color: Some({_text(_COLOURS[COLOURS[row.kind]])}), background_color: None, "
            f"display_name: {leaf}, display_name_type: Unique, manual_name: Some({_text(row.label)}), "
            f"format: Some({_text(form)}), field_formats: [], height_scaling_factor: None, analog: None))",
            level,
        )

    def mark(self, number: int, mark: Mark) -> None:
        colour = _text(_COLOURS[COLOURS[mark.kind]])
        self._item(
            f"Marker((color: Some({colour}), background_color: None, name: Some({_text(mark.name)}), "
            f"idx: {number}))",
            0,
        )
        time = int(self.wave.seconds(mark.cycle) / self.wave.unit)
        self.marks.append(f"{number}: {_big(time)}")

    def text(self) -> str:
        path = _text(str(self.wave.file.resolve()))
        kind = {"vcd": "Vcd", "fst": "Fst"}[self.wave.format]
        waves = [
            f"source: File({path})",
            f"format: {kind}",
            "active_scope: None",
            f"items_tree: (items: [\n{_lines(self.tree)}    ])",
            f"displayed_items: {{\n{_lines(self.items)}    }}",
            f"display_item_ref_counter: {len(self.items)}",
            f"viewports: [{_VIEW}]",
            "cursor: None",
            f"markers: {{{', '.join(self.marks)}}}",
            "annotation_groups: []",
            "annotation_list_visible: false",
            "last_active_viewport_idx: 0",
            "focused_item: None",
            "focused_transaction: (None, None)",
            "default_variable_name_type: Unique",
            "scroll_offset: 0.0",
            "display_variable_indices: false",
            "graphics: {}",
        ]
        rest = "".join(f"  {line},\n" for line in _REST)
        return f"// {WRITTEN_BY}\n(\n  waves: Some((\n{_lines(waves)}  )),\n{rest})\n"

    def _item(self, content: str, level: int, *, unfolded: bool = True) -> None:
        number = len(self.items) + 1
        self.items.append(f"({number}): {content}")
        self.tree.append(
            f"(item_ref: ({number}), level: {level}, unfolded: {_bool(unfolded)}, selected: false)"
        )


_REST = (
    *("drag_started: false", "drag_source_idx: None", "drag_target_idx: None", "previous_waves: None"),
    *("count: None", "blacklisted_translators: []", "show_about: false", "show_keys: false"),
    *("show_gestures: false", "show_quick_start: false", "show_license: false", "show_performance: false"),
    *("show_logs: false", "show_cursor_window: false", "wanted_timeunit: NanoSeconds"),
    *("time_string_format: None", "show_url_entry: false", "variable_name_filter_focused: false"),
    'variable_filter: (name_filter_type: Contain, name_filter_str: "", name_filter_case_insensitive: true, '
    "include_inputs: true, include_outputs: true, include_inouts: true, include_others: true, "
    "group_by_direction: false)",
    *("rename_target: None", "sidepanel_width: Some(250.0)", "ui_zoom_factor: None"),
)
"""The parts of a state that are not about a waveform, as Surfer starts with."""


def _lines(items: list[str]) -> str:
    return "".join(f"    {item},\n" for item in items)


def _text(text: str) -> str:
    escaped = text.replace("\\", "\\\\").replace('"', '\\"')
    return f'"{escaped}"'


def _bool(value: bool) -> str:
    return "true" if value else "false"


def _big(value: int) -> str:
    """A large integer as Surfer keeps it: sign, and digits of 32 bits, the lowest first."""
    return f"({1 if value else 0}, [{', '.join(str(digit) for digit in _digits(value))}])"


def _digits(value: int) -> Iterator[int]:
    while value:
        yield value & 0xFFFFFFFF
        value >>= 32
