"""Programming interfaces of other vendors and projects, each in a package of its own with the same parts.

`calls.py` has the calls of the interface, `command.py` its commands, `library.py` the build of its C library
(`native/`), and `worker.py` the process in which models run.  `rkcosim.apis.link` is what they have in
common.  Everything here uses the core of the package, which never imports it: commands, interpreters,
references and custom operators are entry points of `pyproject.toml`.
"""

if not __name__.startswith("rkcosim."):
    raise ImportError(f"{__name__} is a folder of the checkout; its modules are imported as rkcosim.apis")
