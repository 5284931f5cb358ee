"""Waveforms of the compiled engines: names, tables of signals, orders to the harness."""
