"""Array kernels that the host computes: numbers in, numbers out, with numpy alone.

Kernels know neither models nor graphs: shapes, rounding and coordinates are parameters.  The golden models
and the checks (`rkcosim.golden`, `rkcosim.verify`) have their own arithmetic and use nothing of this.
Reductions over whole axes have no module: numpy's functions are their kernels.
"""
