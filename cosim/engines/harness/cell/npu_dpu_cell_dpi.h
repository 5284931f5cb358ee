// The DPU cells that a Verilated model works on.
#ifndef NPU_DPU_CELL_DPI_H
#define NPU_DPU_CELL_DPI_H

#include "npu_cell_set.h"
#include "npu_dpu_cell.h"
#include "npu_dpu_float_cell.h"

using NpuDpuCells = NpuCellSet<npu::DpuCell>;
using NpuDpuFloatCells = NpuCellSet<npu::DpuFloatCell>;

// As npu_cells_use in npu_cell_dpi.h.
void npu_dpu_cells_use(NpuDpuCells *cells, NpuDpuFloatCells *float_cells);

#endif
