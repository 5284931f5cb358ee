"""Files for the Surfer viewer: a state (`.surf.ron`) and mapping translators (`.surfer/mappings/`).

A mapping is a text file: `Name = ...`, `Bits = ...`, then lines `VALUE text` (Surfer's book, "Mapping
Translators"). The state is in Surfer's RON format with the fields of versions 0.4 to 0.7; each version
ignores unknown fields. Surfer finds variables again by path and name, so their ids in the state may have any
value.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from rkcosim.waves.decode import Wave
from rkcosim.waves.files import WRITTEN_BY, ours
from rkcosim.waves.layout import (
    COLOURS,
    Group,
    Mark,
    ViewerLine,
    in_file,
    layout,
    marks,
    opening,
    translations,
)
from rkcosim.waves.translate import Translation, plain
from rkcosim.waves.whole_file import make_folder, named

MOST_MARKS = 250
"""Maximum number of markers in a state: their numbers are bytes."""

_BASES = {"hex": "Hexadecimal", "dec": "Unsigned", "bin": "Binary", "text": "String"}
_VIEW = (
    "(curr_left: ({left}), curr_right: ({right}), target_left: ({left}), target_right: ({right}), "
    "move_start_left: ({left}), move_start_right: ({right}), move_duration: None, move_strategy: Instant)"
)
"""The visible part, as fractions of the whole waveform."""


def write_surfer(wave: Wave, state: Path | None = None) -> tuple[Path, list[Path]]:
    """Write a state and its mappings, by default next to the waveform, never over a user's file.

    Surfer reads mappings from `.surfer/mappings/` of the folder in which it is started, which must therefore
    be that of the state.

    Returns
    -------
    The state, and the mappings.
    """
    state = state or ours(wave.file.with_suffix(".surf.ron"))
    groups = layout(wave)
    folder = state.resolve().parent / ".surfer" / "mappings"
    make_folder(folder / "mapping")
    written = []
    for texts in translations(groups):
        name = mapping_name(wave, texts)
        path = folder / f"{name}.txt"
        with named(path):
            path.write_text(mapping_text(texts, name))
        written.append(path)
    with named(state):
        state.write_text(state_text(wave, groups, marks(wave)[:MOST_MARKS]))
    return state, sorted(written)


def mapping_name(wave: Wave, texts: Translation) -> str:
    """Return the name under which Surfer knows a translation; that of the words depends on the waveform."""
    own = "_" + re.sub(r"\W+", "_", wave.file.stem) if texts.name.startswith("command_word") else ""
    return plain(texts.name) + own


def mapping_text(texts: Translation, name: str) -> str:
    """Return a mapping translator's file. `#` begins a comment there and is removed from texts."""
    digits = -(-texts.width // 4)
    lines = [f"Name = {name}", f"Bits = {texts.width}"]
    lines += [f"0x{value:0{digits}x} {text.replace('#', '')}" for value, text in sorted(texts.texts.items())]
    return "\n".join(lines) + "\n"


def state_text(wave: Wave, groups: list[Group], found: list[Mark]) -> str:
    """Return the state as RON."""
    writer = _State(wave, opening(wave, groups))
    for group in groups:
        writer.group(group, 0)
    for number, mark in enumerate(found):
        writer.mark(number, mark)
    return writer.text()


def _in_file(item: ViewerLine | Group) -> Sequence[ViewerLine | Group]:
    return [item] if isinstance(item, Group) else in_file(item)


class _State:
    """Collects the items of a state."""

    def __init__(self, wave: Wave, shown: tuple[int, int]) -> None:
        self.wave, self.shown = wave, shown
        self.tree: list[str] = []
        self.items: list[str] = []
        self.marks: list[str] = []
        self._variables = 0

    def group(self, group: Group, level: int) -> None:
        name = _text(group.name)
        content = f"Group((name: {name}, color: None, background_color: None, content: [], is_open: "
        self._item(f"{content}{_bool(not group.closed)}))", level, unfolded=not group.closed)
        bits: set[str] = set()
        for item in [shown for given in group.items for shown in _in_file(given)]:
            if isinstance(item, Group):
                self.group(item, level + 1)
            elif item.bit is None:
                self._row(item, level + 1)
            # Surfer has no rows for single bits, so the whole signal is shown in binary
            elif item.signal.name not in bits:
                bits.add(item.signal.name)
                self._row(replace(item, label=item.signal.leaf, bit=None), level + 1)

    def _row(self, row: ViewerLine, level: int) -> None:
        self._variables += 1
        scopes = ", ".join(_text(part) for part in row.signal.scope.split("."))
        form = mapping_name(self.wave, row.texts) if row.texts else _BASES[row.base]
        if row.width == 1 and not row.texts:
            form = "Bit"
        leaf = _text(row.signal.leaf)
        self._item(
            f"Variable((variable_ref: (path: (strs: [{scopes}], id: Wellen((1))), name: {leaf}, "
            f"id: Wellen(({self._variables})), index: None), "
            f"color: Some({_text(COLOURS[row.kind].title())}), background_color: None, "
            f"display_name: {leaf}, display_name_type: Unique, manual_name: Some({_text(row.label)}), "
            f"format: Some({_text(form)}), field_formats: [], height_scaling_factor: None, analog: None))",
            level,
        )

    def mark(self, number: int, mark: Mark) -> None:
        colour = _text(COLOURS[mark.kind].title())
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
            f"viewports: [{self._view()}]",
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

    def _view(self) -> str:
        """Return the part of the waveform that is initially shown, as fractions of its duration."""
        left, right = 0.0, 1.0
        if self.shown != (self.wave.first, self.wave.last):
            left, right = (cycle / (self.wave.last + 1) for cycle in self.shown)
        return _VIEW.format(left=f"{left:.6f}", right=f"{right:.6f}")

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
"""The parts of a state that do not depend on the waveform, as in Surfer's initial state."""


def _lines(items: list[str]) -> str:
    return "".join(f"    {item},\n" for item in items)


def _text(text: str) -> str:
    escaped = text.replace("\\", "\\\\").replace('"', '\\"')
    return f'"{escaped}"'


def _bool(value: bool) -> str:
    return "true" if value else "false"


def _big(value: int) -> str:
    """Return a large integer as Surfer stores it: sign, and digits of 32 bits, the lowest first."""
    sign, digits = int(value > 0), []
    while value:
        digits.append(value & 0xFFFFFFFF)
        value >>= 32
    return f"({sign}, {digits})"
