"""The page of what can be changed in the RTL: its lines are in the sources, and it is that of its record."""

from __future__ import annotations

import json

import pytest

pytest.importorskip("onnx", reason="needs the extra onnx")

from benchmarks import divisions, rtl_changes
from rkcosim.measure.perf.estimator.whatif import said_judgement


def test_each_line_that_is_changed_is_in_the_sources_once():
    for change in rtl_changes.CHANGES:
        for name, old, new in change.edits:
            text = (rtl_changes.ROOT / name).read_text(encoding="utf-8")
            assert text.count(old) == 1 and old != new, f"{change.what}: {name}"


def test_the_page_is_that_of_the_record():
    record = json.loads(rtl_changes.RECORD.read_text(encoding="utf-8"))["changes"]
    assert rtl_changes.PAGE.read_text(encoding="utf-8") == rtl_changes.page(record)
    count, largest = rtl_changes.worst(record)
    assert count >= 16 and f"at most {largest:.2%} apart in {count} runs" in said_judgement()


def test_the_page_of_divisions_is_that_of_its_record():
    record = json.loads(divisions.RECORD.read_text(encoding="utf-8"))["networks"]
    assert divisions.PAGE.read_text(encoding="utf-8") == divisions.page(record)
