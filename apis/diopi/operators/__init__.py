"""DIOPI's operators; importing this package fills the table `registry.OPERATORS`."""

from __future__ import annotations

from rkcosim.apis.diopi.operators import activations, arithmetic, elements, moves, pools, products
from rkcosim.apis.diopi.operators.registry import OPERATORS

__all__ = ["OPERATORS", "activations", "arithmetic", "elements", "moves", "pools", "products"]
