// Which cells a Verilated model works on.
//
// The model holds a small number per cell, not a pointer, so its saved state may be restored in another
// process; the numbers count from 0 in the order in which the model's first eval() creates its cells.
#ifndef NPU_CELL_DPI_H
#define NPU_CELL_DPI_H

#include <cstddef>
#include <memory>
#include <vector>

#include "npu_cell.h"

// The cells of one model; saved and restored beside the model's own state.
struct NpuCells {
    std::vector<std::unique_ptr<npu::Cell>> cells;
    size_t state_bytes() const { return cells.size() * npu::Cell::state_bytes(); }
    void save(void *to) const;
    void restore(const void *from);
};

// From now on this thread's models use `cells`: call it before eval() whenever several models share a
// thread. nullptr is one common set, enough for a single model.
void npu_cells_use(NpuCells *cells);

#endif
