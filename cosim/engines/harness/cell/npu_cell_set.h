// The C++ cells of one kind that a Verilated model works on.
//
// The model holds a small number per cell, not a pointer, so that its saved state may be restored in another
// process. The numbers count from 0 in the order in which the model's first eval() creates its cells.
#ifndef NPU_CELL_SET_H
#define NPU_CELL_SET_H

#include <cstddef>
#include <memory>
#include <vector>

// The cells of one model; saved and restored together with the model's state.
template <class Cell> struct NpuCellSet {
    std::vector<std::unique_ptr<Cell>> cells;

    unsigned add() {
        cells.push_back(std::unique_ptr<Cell>(new Cell));
        return static_cast<unsigned>(cells.size() - 1);
    }
    size_t state_bytes() const { return cells.size() * Cell::state_bytes(); }
    void save(void *to) const {
        char *at = static_cast<char *>(to);
        for (const auto &cell : cells) {
            cell->save(at);
            at += Cell::state_bytes();
        }
    }
    void restore(const void *from) {
        const char *at = static_cast<const char *>(from);
        for (const auto &cell : cells) {
            cell->restore(at);
            at += Cell::state_bytes();
        }
    }
};

#endif
