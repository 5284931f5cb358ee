// Functions that npu_dpu_cell_cpp.sv imports.
#include "npu_dpu_cell_dpi.h"

#include "svdpi.h"

namespace {

NpuDpuCells default_cells;
thread_local NpuDpuCells *current = &default_cells;

npu::DpuCell &at(unsigned cell) { return *current->cells[cell]; }

// SystemVerilog packs the members of DpuIn into one word, lowest first.
npu::DpuIn unpack(uint32_t word) {
    npu::DpuIn in;
    const auto take = [&word](int width) {
        const uint32_t value = word & ((1u << width) - 1);
        word >>= width;
        return value;
    };
    in.load = take(10) << 1;
    in.look_up = static_cast<uint8_t>(take(1));
    in.first = static_cast<uint8_t>(take(1));
    in.step = static_cast<uint8_t>(take(3));
    in.coming = static_cast<uint8_t>(take(1));
    in.came = static_cast<uint8_t>(take(2));
    in.advance = static_cast<uint8_t>(take(1));
    in.live = static_cast<uint8_t>(take(4));
    in.floats = static_cast<uint8_t>(take(1));
    in.late_floats = static_cast<uint8_t>(take(1));
    return in;
}

}  // namespace

void npu_dpu_cells_use(NpuDpuCells *cells) { current = cells ? cells : &default_cells; }

extern "C" {

unsigned npu_dpu_cell_new() { return current->add(); }

void npu_dpu_cell_settings(unsigned cell, const svBitVecVal *settings) { at(cell).settings(settings); }

unsigned npu_dpu_cell_start(unsigned cell, unsigned late_offset) { return at(cell).start(late_offset); }

void npu_dpu_cell_bs(unsigned cell, const svBitVecVal *operands) { at(cell).bs_operands(operands); }

void npu_dpu_cell_bn(unsigned cell, const svBitVecVal *operands) { at(cell).bn_operands(operands); }

void npu_dpu_cell_ew(unsigned cell, const svBitVecVal *operand) { at(cell).ew_operand(operand); }

void npu_dpu_cell_step(unsigned cell, unsigned scalars) { at(cell).step(unpack(scalars)); }

void npu_dpu_cell_enter(unsigned cell, const svBitVecVal *main) { at(cell).enter(main); }

void npu_dpu_cell_enter_sums(unsigned cell, const svBitVecVal *high, const svBitVecVal *sum, unsigned clip) {
    at(cell).enter_sums(high, sum, clip);
}

void npu_dpu_cell_value(unsigned cell, svBitVecVal *value) { std::memcpy(value, at(cell).value(), 32); }

void npu_dpu_cell_lut_write(unsigned cell, unsigned entry, unsigned data) { at(cell).lut_write(entry, data); }

unsigned npu_dpu_cell_lut_read(unsigned cell, unsigned entry) { return at(cell).lut_read(entry); }

}  // extern "C"
