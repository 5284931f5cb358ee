"""Timing diagrams of the documentation, recorded from the RTL: `python -m tools.timing [NAME...]`.

Each diagram is a run whose waveform is cut to a window of a few signals (`rkcosim.waves.wavedrom`): the
document for WaveDrom and the picture are `docs/pictures/timing-NAME.json` and `.svg`. Nothing is drawn by
hand; `--check` records again and names the documents that are not current.
"""
