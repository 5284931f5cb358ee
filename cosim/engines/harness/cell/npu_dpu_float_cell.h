// The lanes of the DPU's float unit (rtl/npu/dpu_float.py) as plain C++.
//
// One object per DPU. The control of the steps is outside: `step` is an edge at which a step ends. The
// floating-point environment must have its default settings: round to nearest, subnormals kept.
#ifndef NPU_DPU_FLOAT_CELL_H
#define NPU_DPU_FLOAT_CELL_H

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <type_traits>

#include "npu_dpu_cell.h"

namespace npu {

// What a step does; Control and Settings in rtl/npu/dpu_float.py.
struct DpuFloatIn {
    uint8_t last, step;  // `step` has one bit set
    uint8_t add, mul, other, cut, minus, half, ew, prelu, relu, relux;
    uint8_t algo, binary, brain, bs_source, bn_source;
};

struct DpuFloatScale {
    uint32_t addend;
    uint16_t factor;
};

// The whole state of the cell: copy it to save, copy it back to restore.
struct alignas(64) DpuFloatState {
    DpuFloatScale bs_registers, bn_registers;
    uint32_t bs_limit, bn_limit, ew_limit;
    DpuShift positive, negative;
    DpuOperands bs, bn;
    uint32_t ew[kDpuLanes];
    uint32_t value[kDpuLanes], passed[kDpuLanes], result[kDpuLanes];
};
static_assert(std::is_trivially_copyable<DpuFloatState>::value, "saved as bytes");

class DpuFloatCell {
public:
    DpuFloatCell() {
        std::memset(&s_, 0, sizeof s_);
        s_.positive = s_.negative = shift_of(0);
    }

    // The settings change: the port's words, lowest first.
    void settings(const uint32_t *words);

    // Operands for the next `step`; unused ones need not be given.
    void bs_operands(const void *words) { std::memcpy(&s_.bs, words, sizeof s_.bs); }
    void bn_operands(const void *words) { std::memcpy(&s_.bn, words, sizeof s_.bn); }
    void ew_operand(const void *words) { std::memcpy(s_.ew, words, sizeof s_.ew); }

    void step(const DpuFloatIn &in);

    // The octet that is taken at the same edge, after `step`.
    void take(const void *main) { std::memcpy(s_.value, main, sizeof s_.value); }

    // The values after a step with `last`.
    const uint32_t *result() const { return s_.result; }

    static constexpr size_t state_bytes() { return sizeof(DpuFloatState); }
    void save(void *to) const { std::memcpy(to, &s_, sizeof s_); }
    void restore(const void *from) { std::memcpy(&s_, from, sizeof s_); }

private:
    void operand_of(const DpuFloatIn &in, uint32_t *operand) const;

    DpuFloatState s_;
};

}  // namespace npu

#endif
