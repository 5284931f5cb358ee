// The array cells that a Verilated model works on.
#ifndef NPU_CELL_DPI_H
#define NPU_CELL_DPI_H

#include "npu_cell.h"
#include "npu_cell_set.h"

using NpuCells = NpuCellSet<npu::Cell>;

// Makes this thread's models use `cells`; must be called before eval() whenever several models share a
// thread. nullptr selects one common set, which is enough for a single model.
void npu_cells_use(NpuCells *cells);

#endif
