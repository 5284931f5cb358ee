"""Running models on a simulated device: the one way, for the command line, the library and every interface.

A `Machine` (`rkcosim.running.machine`) is an engine with a driver.  `Machine.load` puts a compiled model
into its memory; `RunningModel.run` runs one inference and returns arrays.  Listeners (`Listener`) do the
rest: they compare results, write reports, or write the parts of a graph as files.  The machine calls them
after it has loaded a model, after each inference, before it frees a model, and at the end.  Listeners belong
to rooms above this one.  This room imports nothing that measures or verifies, so a program that only runs
models loads neither.
"""
