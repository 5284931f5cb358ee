// Functions that npu_array_cell_cpp.sv imports.
#include "npu_cell_dpi.h"

#include "svdpi.h"

namespace {

NpuCells default_cells;
thread_local NpuCells *current = &default_cells;

// SystemVerilog packs the scalars of CellIn into one word, lowest field first.
npu::CellIn unpack(uint32_t word) {
    npu::CellIn in;
    const auto take = [&word](int width) {
        const uint8_t value = static_cast<uint8_t>(word & ((1u << width) - 1));
        word >>= width;
        return value;
    };
    in.depthwise = take(1);
    in.w_valid = take(1);
    in.w_index = take(4);
    in.w_stride = take(2);
    in.f_valid = take(1);
    in.f_swap = take(1);
    in.f_first = take(1);
    in.f_bank = take(1);
    in.f_slot = take(4);
    in.d_valid = take(1);
    in.d_bank = take(1);
    in.d_slot = take(4);
    in.d_octet = take(3);
    in.precision = take(3);
    return in;
}

}  // namespace

void npu_cells_use(NpuCells *cells) { current = cells ? cells : &default_cells; }

extern "C" {

unsigned npu_cell_new() { return current->add(); }

void npu_cell_step(unsigned cell, unsigned scalars, const svBitVecVal *weights, const svBitVecVal *features) {
    current->cells[cell]->step(unpack(scalars), reinterpret_cast<const uint8_t *>(weights),
                               reinterpret_cast<const uint8_t *>(features));
}

void npu_cell_reset(unsigned cell) { current->cells[cell]->reset(); }

void npu_cell_out(unsigned cell, svBitVecVal *acc, svBitVecVal *sum) {
    current->cells[cell]->pack_acc(acc);
    current->cells[cell]->pack_sum(sum);
}

}  // extern "C"
