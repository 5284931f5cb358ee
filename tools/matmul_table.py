"""Write the table of matrix products into docs/rknn_api.md: `python -m tools.matmul_table`."""

from __future__ import annotations

from pathlib import Path

from rkcosim.rknn_api.matmul_support import markdown

PAGE = Path(__file__).parents[1] / "docs" / "rknn_api.md"
BEGIN, END = "<!-- matmul: begin -->", "<!-- matmul: end -->"


def with_table(text: str) -> str:
    """Return the page with the current table between its two markers; ValueError without markers."""
    before, rest = text.split(BEGIN)
    _, after = rest.split(END)
    return f"{before}{BEGIN}\n{markdown()}\n{END}{after}"


if __name__ == "__main__":
    PAGE.write_text(with_table(PAGE.read_text()))
