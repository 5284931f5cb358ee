"""Networks that people run on the RK3588, each measured once: `python -m benchmarks.zoo`."""
