"""Running models on a simulated device: the one way, for the command line, the library and every interface.

A `Machine` (`rkcosim.running.machine`) is an engine with a driver.  `Machine.load` puts a compiled model
into its memory; `RunningModel.run` runs one inference and returns arrays.  What else shall happen (checks,
reports, files of parts) is done by listeners (`Listener`), which belong to rooms above this
one and are told when a model is loaded, after each inference, before a model is freed, and at the end.  This
room imports nothing that measures or verifies: a program which only runs models loads neither.
"""
