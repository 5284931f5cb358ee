#include "npu_dpu_float_cell.h"

#include <initializer_list>

#include "npu_dpu_float32.h"

namespace npu {

namespace {

enum Algo { kMax = 0, kMin = 1, kDivide = 3, kAbs = 5, kNeg = 6, kFloor = 7, kCeil = 8 };

// a + b; in the EW stage two negative zeros give +0, and of a difference of infinities those of opposite signs
// +infinity, those of the same sign NaN.
inline uint32_t sum(uint32_t a, uint32_t b, bool no_minus_zero, bool turned_infinities) {
    const uint32_t z = one_nan(float_of(a) + float_of(b));
    if (no_minus_zero && z == 0x80000000) return 0;
    if (turned_infinities && (a & kMagnitude) == kInfinity && (b & kMagnitude) == kInfinity)
        return (a ^ b) >> 31 ? kInfinity : kNan;
    return z;
}

// a / b of fp16 bits with the special values of rtl/npu/dpu_divide.py.
inline uint32_t divided(uint32_t a, uint32_t b) {
    constexpr uint32_t kInfinity16 = 0x7C00, kNan16 = 0x7C01;
    const uint32_t x = a & 0x7FFF, y = b & 0x7FFF;
    if (x > kInfinity16 || y > kInfinity16 || (a | b) == 0) return kNan16;
    if (x == kInfinity16 || y == 0) return (a & 0x8000) | kInfinity16;
    if (x == 0 || y == kInfinity16) return a & 0x8000;
    return narrow_fp16(bits_of(float_of(widen_fp16(a)) / float_of(widen_fp16(b))), kNan16);
}

uint32_t other(uint32_t v, uint32_t e, int algo, bool binary) {
    switch (algo) {
        case kMax:
        case kMin: {
            const bool chosen = algo == kMin ? above(e, v) : above(v, e);
            return binary ? chosen : chosen ? v : e;
        }
        case kDivide: return divided(v & 0xFFFF, e & 0xFFFF);
        case kAbs: return v & kMagnitude;
        case kNeg: return v ^ 0x80000000;
        case kFloor: return is_nan(v) ? kNan : bits_of(std::floor(float_of(v)));
        case kCeil: return is_nan(v) ? kNan : bits_of(std::ceil(float_of(v)));
        default: return v;
    }
}

}  // namespace

void DpuFloatCell::settings(const uint32_t *words) {
    Bits bits(words);
    for (DpuFloatScale *registers : {&s_.bs_registers, &s_.bn_registers}) {
        registers->addend = bits.take(32);
        registers->factor = bits.u16(16);
    }
    s_.bs_limit = bits.take(32);
    s_.bn_limit = bits.take(32);
    s_.ew_limit = bits.take(32);
    s_.positive = shift_of(static_cast<int>(bits.take(6)));
    s_.negative = shift_of(static_cast<int>(bits.take(6)));
}

void DpuFloatCell::operand_of(const DpuFloatIn &in, uint32_t *operand) const {
    if (in.step & 16) {
        std::memcpy(operand, s_.ew, sizeof s_.ew);
    } else {
        const bool bs = in.step & 3, alu = bs ? in.step & 1 : !(in.step & 4);
        const DpuOperands &table = bs ? s_.bs : s_.bn;
        const DpuFloatScale &registers = bs ? s_.bs_registers : s_.bn_registers;
        const bool memory = (bs ? in.bs_source : in.bn_source) & (alu ? 1 : 2);
        for (int lane = 0; lane < kDpuLanes; ++lane) {
            if (alu) operand[lane] = memory ? static_cast<uint32_t>(table.alu[lane]) : registers.addend;
            else operand[lane] = memory ? static_cast<uint16_t>(table.mul[lane]) : registers.factor;
        }
    }
    if (in.half)
        for (int lane = 0; lane < kDpuLanes; ++lane)
            operand[lane] = in.brain ? operand[lane] << 16 : widen_fp16(operand[lane] & 0xFFFF);
    if (in.minus)
        for (int lane = 0; lane < kDpuLanes; ++lane) operand[lane] ^= 0x80000000;
}

void DpuFloatCell::step(const DpuFloatIn &in) {
    alignas(32) uint32_t operand[kDpuLanes], made[kDpuLanes];
    uint32_t *value = s_.value;
    operand_of(in, operand);
    if (in.cut) {
        const DpuShift positive = s_.positive, negative = s_.negative;
        const int64_t mask = low_bits(34);
        for (int lane = 0; lane < kDpuLanes; ++lane) {
            const int64_t number = static_cast<int32_t>(value[lane]);
            const int64_t down = number < 0 ? to_even(number, negative, mask) : to_even(number, positive, mask);
            made[lane] = s_.passed[lane] ? value[lane] : static_cast<uint32_t>(down);
        }
    } else if (in.other) {
        for (int lane = 0; lane < kDpuLanes; ++lane)
            made[lane] = other(value[lane], operand[lane], in.algo, in.binary);
    } else if (in.mul) {
        for (int lane = 0; lane < kDpuLanes; ++lane)
            made[lane] = one_nan(float_of(value[lane]) * float_of(operand[lane]));
    } else if (in.add) {
        const bool no_minus_zero = in.ew && !in.minus, turned = in.ew && in.minus;
        for (int lane = 0; lane < kDpuLanes; ++lane)
            made[lane] = sum(value[lane], operand[lane], no_minus_zero, turned);
    } else {
        std::memcpy(made, value, sizeof made);
    }
    if (in.prelu)
        for (int lane = 0; lane < kDpuLanes; ++lane)
            if (!(value[lane] >> 31)) made[lane] = value[lane];
    if (in.step & 16)
        for (int lane = 0; lane < kDpuLanes; ++lane) s_.passed[lane] = in.prelu && !(value[lane] >> 31);
    if (in.relu)
        for (int lane = 0; lane < kDpuLanes; ++lane)
            if (made[lane] >> 31 && !is_nan(made[lane])) made[lane] = 0;
    if (in.relux) {
        const uint32_t limit = in.step & 3 ? s_.bs_limit : in.step & 0x30 ? s_.ew_limit : s_.bn_limit;
        for (int lane = 0; lane < kDpuLanes; ++lane)
            if (above(made[lane], limit)) made[lane] = limit;
    }
    std::memcpy(in.last ? s_.result : value, made, sizeof made);
}

}  // namespace npu
