"""Pages of the Python interface, docs/api: each name with its signature and the text of its docstring.

A page is written by hand, and the description of a name stands between two lines, as in

    <!-- rkcosim.model.Model: begin -->
    <!-- rkcosim.model.Model: end -->

The name of a module stands for all of its public names.  Headings of names are one level below the heading
that stands before the lines.  A name is described in one place: at its own lines if there are any, otherwise
on the first page with a module that has it; other modules link it.
"""

from __future__ import annotations

API = ("model", "run", "engines", "driver", "rknn_api", "compiler", "regcmd", "tnn", "waves", "cocotb")
"""Pages with descriptions of names, in the order of the navigation."""
