// The stages of the DPU's pipe (rtl/npu/dpu_scale.py, dpu_lut.py, dpu_ew.py, dpu_cvt.py) as plain C++.
//
// One object per DPU. `step` is one rising clock edge; it may be skipped at an edge at which no register
// loads. Which registers load is decided outside (npu_dpu_cell_cpp.sv): the cell has the values of eight
// lanes, the settings of the task, and the memory of the look-up tables. The floating-point environment must
// have its default settings: round to nearest, subnormals kept.
#ifndef NPU_DPU_CELL_H
#define NPU_DPU_CELL_H

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <type_traits>

#include "npu_dpu_shift.h"

namespace npu {

constexpr int kDpuLanes = 8;
constexpr int kDpuSettingBits = 615;  // port `settings`; SETTINGS in rtl/npu/dpu_cell.py
constexpr int kLutWidth = 2;          // elements that are looked up in a cycle
constexpr int kLutSegments = 512;
constexpr int kLutLargestStep = 22;

// Fields of BS or BN, in the order of the port.
struct DpuScaleFields {
    uint8_t bypass, alu_bypass, alu_algo, alu_src, mul_bypass, mul_prelu, relu_bypass, relux_en, mul_src, shift,
        shift_negative;
    int16_t factor;
    int32_t addend, relux;
};

struct DpuTableFields {
    uint8_t select;
    int32_t start, end;
    int16_t under_scale, over_scale;
    uint8_t under_shift, over_shift;
};

// All fields of the port `settings`, in its order.
struct DpuFields {
    uint8_t proc_precision, out_precision, flying, od_bypass, ow_src;
    int16_t ow_op;
    DpuScaleFields bs, bn;
    uint8_t ew_bypass, ew_op_bypass, ew_op_type, ew_algo, ew_prelu, ew_binary, lut_bypass, ew_relu_bypass,
        ew_relux_en;
    uint16_t ew_shift, ew_shift_negative;
    int32_t ew_relux;
    uint8_t under_priority, over_priority, hybrid_priority;
    DpuTableFields table[2];  // LE, LO
    uint8_t add_first, away;
    uint16_t out_shift;
    uint8_t minus_exponent;
    int32_t out_offset;
    int16_t out_scale;
    uint8_t to_half;
    int16_t pend;
};

// Settings of BS, BN or EW that hold from the start of a task on.
struct DpuScaleHeld {
    uint8_t add, minus, alu_src, mul, prelu, mul_src;
    DpuShift positive, negative;
    int32_t low, high;
};

struct DpuHeld {
    DpuScaleHeld bs, bn, ew;
    uint8_t sums, cpend, cpend_src;
    uint8_t ew_alu, ew_binary;
    int32_t before, after, pend, low, high;
    DpuShift shift;
    uint8_t minus, away, some, odd, late, wide, make, half, brain, raw;
};

// Operands of eight channels; BsOctet in rtl/layouts.py.
struct DpuOperands {
    int32_t alu[kDpuLanes];
    int16_t cpend[kDpuLanes], mul[kDpuLanes];
};

// Inputs of one edge. `load` has a bit for each stage, 1 to 10, whose registers load.
struct DpuIn {
    uint32_t load;
    uint8_t look_up, first, step;   // the LUT: look up; those that enter stage 6, or group `step` of it
    uint8_t coming, came;           // results of group `came` are there, and stage 6 keeps its octet
    uint8_t advance, live, floats, late_floats;
};

// The whole state of the cell: copy it to save, copy it back to restore.
struct alignas(64) DpuCellState {
    DpuFields now;
    DpuHeld held;
    DpuOperands bs, bn;
    int32_t ew_operand[kDpuLanes];
    // stage 1
    int32_t main[kDpuLanes];
    int16_t high[kDpuLanes];
    int32_t sum[kDpuLanes];
    int32_t cut_shift, cut_to_even;
    int64_t cut_half, cut_dropped;
    // stages 2 to 4
    int64_t total[kDpuLanes], factor[kDpuLanes], bs_product[kDpuLanes], bs_plain[kDpuLanes];
    int32_t bs_value[kDpuLanes];
    // stage 5
    int64_t bn_product[kDpuLanes], bn_plain[kDpuLanes], bn_addend[kDpuLanes];
    // stage 6
    int32_t lut_value[kDpuLanes], lut_result[kLutWidth];
    // stages 7 and 8
    int64_t ew_product[kDpuLanes], ew_plain[kDpuLanes];
    int32_t ew_value[kDpuLanes];
    // stages 9 and 10
    int64_t out_product[kDpuLanes];
    uint32_t value[kDpuLanes];
    uint16_t tables[2048], answer;
};
static_assert(std::is_trivially_copyable<DpuCellState>::value, "saved as bytes");

class DpuCell {
public:
    DpuCell() { std::memset(&s_, 0, sizeof s_); }

    // The settings change: the port's words, lowest first.
    void settings(const uint32_t *words);

    // An edge with `start`: the settings hold for the task. Bits of the result: BS and BN use operands of
    // memory (1, 2), the LUT is in use (4), the EW operation has an operand (8), main data are sums (16).
    uint32_t start(bool late_offset);

    // Operands for the next `step`; unused ones need not be given.
    void bs_operands(const void *words) { std::memcpy(&s_.bs, words, sizeof s_.bs); }
    void bn_operands(const void *words) { std::memcpy(&s_.bn, words, sizeof s_.bn); }
    void ew_operand(const void *words) { std::memcpy(s_.ew_operand, words, sizeof s_.ew_operand); }

    // One rising edge, for all stages but the first.
    void step(const DpuIn &in);

    // The octet that enters stage 1 at the same edge, after `step`.
    void enter(const void *main) { std::memcpy(s_.main, main, sizeof s_.main); }
    void enter_sums(const void *high, const void *sum, uint32_t clip);

    // The edge writes or reads an entry of the tables, after `step`: a read sees the value before a write.
    void lut_write(uint32_t entry, uint32_t data) { s_.tables[entry & 2047] = static_cast<uint16_t>(data); }
    uint32_t lut_read(uint32_t entry) const { return s_.tables[entry & 2047]; }

    const uint32_t *value() const { return s_.value; }

    static constexpr size_t state_bytes() { return sizeof(DpuCellState); }
    void save(void *to) const { std::memcpy(to, &s_, sizeof s_); }
    void restore(const void *from) { std::memcpy(&s_, from, sizeof s_); }

private:
    void add();
    void bs_multiply();
    void bs_finish();
    void bn_multiply();
    void bn_finish(int32_t *value) const;
    void look_up(const int32_t *x, bool floats);
    void ew_operate(const int32_t *main);
    void ew_finish();
    void out_multiply(bool late_floats);
    void out_finish(int live);

    DpuCellState s_;
};

}  // namespace npu

#endif
