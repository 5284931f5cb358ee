// Functions that npu_dpu_cell_cpp.sv and npu_dpu_float_cell_cpp.sv import.
#include "npu_dpu_cell_dpi.h"

#include "svdpi.h"

namespace {

NpuDpuCells default_cells;
NpuDpuFloatCells default_float_cells;
thread_local NpuDpuCells *current = &default_cells;
thread_local NpuDpuFloatCells *current_floats = &default_float_cells;

npu::DpuCell &at(unsigned cell) { return *current->cells[cell]; }
npu::DpuFloatCell &float_at(unsigned cell) { return *current_floats->cells[cell]; }

// Takes numbers from the bits of a word, lowest first.
class Word {
public:
    explicit Word(uint32_t word) : word_(word) {}
    uint8_t u8(int width) { return static_cast<uint8_t>(take(width)); }
    uint32_t take(int width) {
        const uint32_t value = word_ & ((1u << width) - 1);
        word_ >>= width;
        return value;
    }

private:
    uint32_t word_;
};

// SystemVerilog packs the members of DpuIn into one word, lowest first.
npu::DpuIn unpack(uint32_t scalars) {
    Word word(scalars);
    npu::DpuIn in;
    in.load = word.take(10) << 1;
    in.look_up = word.u8(1);
    in.first = word.u8(1);
    in.step = word.u8(3);
    in.coming = word.u8(1);
    in.came = word.u8(2);
    in.advance = word.u8(1);
    in.live = word.u8(4);
    in.floats = word.u8(1);
    in.late_floats = word.u8(1);
    return in;
}

// The same for DpuFloatIn.
npu::DpuFloatIn unpack_float(uint32_t scalars) {
    Word word(scalars);
    npu::DpuFloatIn in;
    in.last = word.u8(1);
    in.step = word.u8(6);
    in.add = word.u8(1);
    in.mul = word.u8(1);
    in.other = word.u8(1);
    in.cut = word.u8(1);
    in.minus = word.u8(1);
    in.half = word.u8(1);
    in.ew = word.u8(1);
    in.prelu = word.u8(1);
    in.relu = word.u8(1);
    in.relux = word.u8(1);
    in.algo = word.u8(4);
    in.binary = word.u8(1);
    in.brain = word.u8(1);
    in.bs_source = word.u8(2);
    in.bn_source = word.u8(2);
    return in;
}

}  // namespace

void npu_dpu_cells_use(NpuDpuCells *cells, NpuDpuFloatCells *float_cells) {
    current = cells ? cells : &default_cells;
    current_floats = float_cells ? float_cells : &default_float_cells;
}

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

unsigned npu_dpu_float_cell_new() { return current_floats->add(); }

void npu_dpu_float_cell_settings(unsigned cell, const svBitVecVal *settings) { float_at(cell).settings(settings); }

void npu_dpu_float_cell_bs(unsigned cell, const svBitVecVal *operands) { float_at(cell).bs_operands(operands); }

void npu_dpu_float_cell_bn(unsigned cell, const svBitVecVal *operands) { float_at(cell).bn_operands(operands); }

void npu_dpu_float_cell_ew(unsigned cell, const svBitVecVal *operand) { float_at(cell).ew_operand(operand); }

void npu_dpu_float_cell_step(unsigned cell, unsigned scalars) { float_at(cell).step(unpack_float(scalars)); }

void npu_dpu_float_cell_result(unsigned cell, svBitVecVal *result) {
    std::memcpy(result, float_at(cell).result(), 32);
}

void npu_dpu_float_cell_take(unsigned cell, const svBitVecVal *main) { float_at(cell).take(main); }

}  // extern "C"
