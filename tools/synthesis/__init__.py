"""Synthesis of the NPU core with Yosys and OpenSTA, which writes docs/results/synthesis.md."""
