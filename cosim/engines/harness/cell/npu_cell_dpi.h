// The cells that a Verilated model works on.
//
// The model holds a small number per cell, not a pointer, so that its saved state may be restored in another
// process. The numbers count from 0 in the order in which the model's first eval() creates its cells.
#ifndef NPU_CELL_DPI_H
#define NPU_CELL_DPI_H

#include <cstddef>
#include <memory>
#include <vector>

#include "npu_cell.h"

// The cells of one model; saved and restored together with the model's state.
struct NpuCells {
    std::vector<std::unique_ptr<npu::Cell>> cells;
    size_t state_bytes() const { return cells.size() * npu::Cell::state_bytes(); }
    void save(void *to) const;
    void restore(const void *from);
};

// Makes this thread's models use `cells`; must be called before eval() whenever several models share a
// thread. nullptr selects one common set, which is enough for a single model.
void npu_cells_use(NpuCells *cells);

#endif
