"""The debugger in Neovim with nvim-dap, in a terminal without a screen (`tools/editor.py`)."""

from __future__ import annotations

import html
import re
from pathlib import Path

import numpy as np
import pytest

import rkcosim
from rkcosim.debug.deviations.against import outputs_after_tasks
from rkcosim.debug.opening import open_debugged
from tools import editor

DIGITS = Path(__file__).resolve().parents[2] / "examples" / "streams" / "digits.json"


def test_neovim_shows_the_listing_and_the_cause_of_a_wrong_result(tmp_path: Path):
    if what := editor.missing():
        pytest.skip(f"missing: {what}")
    np.savez(tmp_path / "right.npz", **outputs_after_tasks(open_debugged(DIGITS)))
    tasks = rkcosim.TaskList.load(DIGITS)
    tasks[6]["CNA.PAD_CON0.PAD_TOP"] = 0
    tasks.save(tmp_path / "wrong.json")
    editor.draw(tmp_path / "wrong.json", tmp_path / "right.npz", tmp_path / "screen.svg")
    text = html.unescape(re.sub(r"<[^>]*>", " ", (tmp_path / "screen.svg").read_text()))
    text = " ".join(text.split())
    assert "1. CNA.PAD_CON0.PAD_TOP 0 -> 1 (convolution): every element is right with it" in text
    assert "OP_ENABLE CNA CORE DPU DPU_RDMA" in text and "Thread stopped due to exception" in text
