"""Networks of TNN: readers and writers of `.tnnproto` and `.tnnmodel` files, shapes, and their ONNX form."""

from __future__ import annotations

from rkcosim.apis.tnn.loader.convert import to_onnx
from rkcosim.apis.tnn.loader.network import (
    TnnNetwork,
    join,
    layer_types,
    read_network,
    write_network,
)

__all__ = ["TnnNetwork", "join", "layer_types", "read_network", "to_onnx", "write_network"]
