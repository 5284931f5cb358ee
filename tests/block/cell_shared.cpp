// The C++ cell as a library of plain functions, for tests that drive it from Python (tests/block/cell_library.py).
#include "npu_cell.h"

extern "C" {

npu::Cell *cell_new() { return new npu::Cell; }

void cell_delete(npu::Cell *cell) { delete cell; }

// One clock edge. `scalars` are the fields of CellIn in their order, then the reset.
void cell_step(npu::Cell *cell, const uint8_t *scalars, const uint8_t *weights, const uint8_t *features,
               int64_t *acc, uint32_t *sum) {
    npu::CellIn in;
    static_assert(sizeof in == 14, "as in cell_library.py");
    std::memcpy(&in, scalars, sizeof in);
    if (in.f_valid || in.w_valid || in.d_valid || cell->busy()) cell->step(in, weights, features);
    if (scalars[sizeof in]) cell->reset();
    for (int n = 0; n < npu::kLanes; ++n) acc[n] = cell->acc(n), sum[n] = cell->sum(n);
}

// `count` tiles of 1 KiB, each with one pixel of 128 bytes, given to the cell as the sequence controller
// would: tile n is added to the contents of a slot, the first one starts it. Returns 64 accumulators and sums
// for each tile.
void cell_tiles(npu::Cell *cell, int precision, int depthwise, int count, const uint8_t *weights,
                const uint8_t *features, const uint8_t *first, int64_t *acc, uint32_t *sum) {
    npu::CellIn in{};
    in.precision = static_cast<uint8_t>(precision);
    in.depthwise = static_cast<uint8_t>(depthwise);
    in.w_stride = 2;
    for (int n = 0; n < count; ++n) {
        in.w_valid = 1;
        for (int chunk = 0; chunk < 16; ++chunk) {
            in.w_index = static_cast<uint8_t>(chunk);
            cell->step(in, weights + 1024 * n + 64 * chunk, features);
        }
        in.w_valid = 0;
        in.f_valid = in.f_swap = 1;
        in.f_first = first[n];
        cell->step(in, weights, features + 128 * n);
        in.f_valid = in.f_swap = 0;
        while (cell->busy()) cell->step(in, weights, features);
        in.d_valid = 1;
        for (int octet = 0; octet < 8; ++octet) {
            in.d_octet = static_cast<uint8_t>(octet);
            cell->step(in, weights, features);
            for (int lane = 0; lane < npu::kLanes; ++lane) {
                acc[64 * n + 8 * octet + lane] = cell->acc(lane);
                sum[64 * n + 8 * octet + lane] = cell->sum(lane);
            }
        }
        in.d_valid = 0;
    }
}

}  // extern "C"
