"""Checks: comparison of devices and runs, random tasks, command streams as files, first differences."""
