"""Files that are there as a whole or not at all, and stored figures in them."""

from __future__ import annotations

from pathlib import Path

import pytest

from cosim.perf.stored import read_stored, write_stored
from waves.whole_file import whole_file


def test_a_file_gets_its_name_when_it_is_whole(tmp_path: Path):
    path = tmp_path / "new" / "file.txt"
    with whole_file(path) as part:
        part.write_text("half")
        assert not path.exists() and part.parent == path.parent
    assert path.read_text() == "half" and list(path.parent.iterdir()) == [path]


def test_a_failure_leaves_what_was_there(tmp_path: Path):
    path = tmp_path / "file.txt"
    path.write_text("before")
    with pytest.raises(KeyboardInterrupt), whole_file(path) as part:
        part.write_text("half")
        raise KeyboardInterrupt
    assert path.read_text() == "before" and list(tmp_path.iterdir()) == [path]


def test_stored_figures_come_back(tmp_path: Path):
    path = tmp_path / "figures.json"
    write_stored(path, 3, {"rows": {"a": 1}})
    assert read_stored(path, 3) == {"schema_version": 3, "rows": {"a": 1}}


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("{", "no JSON"),
        ("[]", "schema_version must be 3; ask Ann"),
        ('{"schema_version": 2}', "schema_version must be 3"),
    ],
)
def test_damaged_figures_are_refused(tmp_path: Path, text: str, said: str):
    path = tmp_path / "figures.json"
    path.write_text(text)
    with pytest.raises(ValueError, match=said) as raised:
        read_stored(path, 3, "ask Ann")
    assert str(path) in str(raised.value)
