#include "npu_dpu_cell.h"

#include "npu_dpu_float32.h"

namespace npu {

namespace {

constexpr int32_t kLowest = INT32_MIN, kHighest = INT32_MAX;

// Codes of AluAlgo in rtl/npu/dpu_frame.py, and of Precision in rtl/npu/dpu_types.py.
enum Algo { kMax = 0, kMin = 1, kAdd = 2, kMinus = 4, kAbs = 5, kNeg = 6 };
enum Kind { kInt16 = 1, kFp16 = 2, kBf16 = 3, kInt32 = 4, kFp32 = 5, kInt4 = 6 };

bool is_float(int kind) { return kind == kFp16 || kind == kBf16 || kind == kFp32; }

void read(Bits &bits, DpuScaleFields &to) {
    to.bypass = bits.u8(1);
    to.alu_bypass = bits.u8(1);
    to.alu_algo = bits.u8(4);
    to.alu_src = bits.u8(1);
    to.mul_bypass = bits.u8(1);
    to.mul_prelu = bits.u8(1);
    to.relu_bypass = bits.u8(1);
    to.relux_en = bits.u8(1);
    to.mul_src = bits.u8(1);
    to.shift = bits.u8(6);
    to.shift_negative = bits.u8(6);
    to.factor = bits.i16();
    to.addend = bits.i32();
    to.relux = bits.i32();
}

void read(Bits &bits, DpuTableFields &to) {
    to.select = bits.u8(8);
    to.start = bits.i32();
    to.end = bits.i32();
    to.under_scale = bits.i16();
    to.over_scale = bits.i16();
    to.under_shift = bits.u8(5);
    to.over_shift = bits.u8(5);
}

inline int64_t clamp(int64_t value, int64_t low, int64_t high) {
    const int64_t least = value < low ? low : value;
    return value > high ? high : least;
}

// Product to value: shifted by the count for its sign or unshifted where `plain`, then limited.
template <int Bits_>
inline void finish(const int64_t *product, const int64_t *plain, const DpuScaleHeld &held, int32_t *value) {
    const DpuShift positive = held.positive, negative = held.negative;
    const int64_t low = held.low, high = held.high, mask = low_bits(Bits_);
    for (int lane = 0; lane < kDpuLanes; ++lane) {
        const int64_t p = product[lane];
        const int64_t up = to_even(p, positive, mask), down = to_even(p, negative, mask);
        const int64_t cut = plain[lane] ? p : p < 0 ? down : up;
        value[lane] = static_cast<int32_t>(clamp(cut, low, high));
    }
}

// `value` with `minus` subtracted from its exponent field, modulo its width.
inline uint32_t less(uint32_t value, uint32_t minus, int mantissa, int exponent) {
    const uint32_t field = ((1u << exponent) - 1) << mantissa;
    return (value & ~field) | ((value - (minus << mantissa)) & field);
}

DpuScaleHeld held_of(const DpuScaleFields &f, bool floats) {
    DpuScaleHeld h = {};
    const bool live = !f.bypass && !floats;
    h.add = live && !f.alu_bypass && (f.alu_algo == kAdd || f.alu_algo == kMinus);
    h.minus = f.alu_algo == kMinus;
    h.alu_src = f.alu_src;
    h.mul = live && !f.mul_bypass;
    h.prelu = f.mul_prelu;
    h.mul_src = f.mul_src;
    h.positive = shift_of(f.shift);
    h.negative = shift_of(f.shift_negative);
    const bool relu = live && !f.relu_bypass, relux = live && f.relux_en;
    h.high = relux ? f.relux : kHighest;
    h.low = relu ? (relux && f.relux < 0 ? f.relux : 0) : kLowest;
    return h;
}

bool wanted(const DpuScaleHeld &h) { return (h.add && h.alu_src) || (h.mul && h.mul_src); }

}  // namespace

void DpuCell::settings(const uint32_t *words) {
    Bits bits(words);
    DpuFields &f = s_.now;
    f.proc_precision = bits.u8(3);
    f.out_precision = bits.u8(3);
    f.flying = bits.u8(1);
    f.od_bypass = bits.u8(1);
    f.ow_src = bits.u8(1);
    f.ow_op = bits.i16();
    read(bits, f.bs);
    read(bits, f.bn);
    f.ew_bypass = bits.u8(1);
    f.ew_op_bypass = bits.u8(1);
    f.ew_op_type = bits.u8(1);
    f.ew_algo = bits.u8(4);
    f.ew_prelu = bits.u8(1);
    f.ew_binary = bits.u8(1);
    f.lut_bypass = bits.u8(1);
    f.ew_relu_bypass = bits.u8(1);
    f.ew_relux_en = bits.u8(1);
    f.ew_shift = bits.u16(10);
    f.ew_shift_negative = bits.u16(10);
    f.ew_relux = bits.i32();
    f.under_priority = bits.u8(1);
    f.over_priority = bits.u8(1);
    f.hybrid_priority = bits.u8(1);
    read(bits, f.table[0]);
    read(bits, f.table[1]);
    f.add_first = bits.u8(1);
    f.away = bits.u8(1);
    f.out_shift = bits.u16(12);
    f.minus_exponent = bits.u8(8);
    f.out_offset = bits.i32();
    f.out_scale = bits.i16();
    f.to_half = bits.u8(1);
    f.pend = bits.i16();
}

uint32_t DpuCell::start(bool late_offset) {
    const DpuFields &f = s_.now;
    DpuHeld &h = s_.held;
    const bool floats = is_float(f.proc_precision), lut = !f.ew_bypass && !f.lut_bypass;
    const bool late_floats = floats && !lut;
    h.bs = held_of(f.bs, floats);
    h.bn = held_of(f.bn, floats);
    h.sums = !f.flying && !floats;
    h.cpend = h.sums && !f.od_bypass;
    h.cpend_src = f.ow_src;

    const bool live = !f.ew_bypass && !late_floats, op = live && !f.ew_op_bypass;
    h.ew.mul = op && f.ew_op_type;
    h.ew_alu = op && !f.ew_op_type;
    h.ew.prelu = f.ew_prelu;
    h.ew_binary = f.ew_binary;
    h.ew.positive = shift_of(f.ew_shift);
    h.ew.negative = shift_of(f.ew_shift_negative);
    const bool relu = live && !f.ew_relu_bypass, relux = live && f.ew_relux_en;
    h.ew.high = relux ? f.ew_relux : kHighest;
    h.ew.low = relu ? (relux && f.ew_relux < 0 ? f.ew_relux : 0) : kLowest;

    const int kind = f.out_precision;
    const bool to_float = is_float(kind), shifts = !late_floats && (f.out_shift & 63) != 0;
    h.before = f.add_first ? f.out_offset : 0;
    h.after = f.add_first || late_floats ? 0 : f.out_offset;
    h.pend = f.pend;
    h.shift = shift_of(late_floats ? 0 : f.out_shift);
    h.high = kHighest, h.low = kLowest;
    switch (kind) {
        case kInt4: h.high = 7, h.low = -8; break;
        case kInt16: h.high = 0x7FFF, h.low = -0x8000; break;
        case kInt32: case kFp16: case kBf16: case kFp32: break;
        default: h.high = 0x7F, h.low = -0x80;
    }
    h.minus = floats ? f.minus_exponent : 0;
    h.away = f.away;
    h.some = shifts;
    h.odd = shifts && !f.add_first && !late_offset && (f.out_offset & 1);
    h.late = late_offset;
    h.wide = to_float;
    h.make = to_float && !late_floats;
    h.half = kind == kFp16;
    h.brain = kind == kBf16;
    h.raw = late_floats && !f.to_half;

    const bool cpend_wanted = !f.od_bypass && !floats && f.ow_src;
    return (cpend_wanted || wanted(h.bs) ? 1u : 0) | (wanted(h.bn) ? 2u : 0) | (lut ? 4u : 0) |
           (h.ew.mul || h.ew_alu ? 8u : 0) | (h.sums ? 16u : 0);
}

void DpuCell::enter_sums(const void *high, const void *sum, uint32_t clip) {
    std::memcpy(s_.high, high, sizeof s_.high);
    if (s_.held.cpend) std::memcpy(s_.sum, sum, sizeof s_.sum);
    const int shift = clip & 31;
    s_.cut_shift = shift;
    s_.cut_to_even = !(clip >> 5 & 1);
    s_.cut_half = int64_t((uint64_t{1} << shift) >> 1);
    s_.cut_dropped = int64_t((uint64_t{1} << shift) - 1);
}

// From the last stage to the first, so that each one reads the registers from before the edge.
void DpuCell::step(const DpuIn &in) {
    const auto loads = [&in](int stage) { return in.load >> stage & 1; };
    if (loads(10)) out_finish(in.live);
    if (loads(9)) out_multiply(in.late_floats);
    if (loads(8)) ew_finish();
    if (loads(7)) {
        alignas(32) int32_t main[kDpuLanes];
        std::memcpy(main, s_.lut_value, sizeof main);
        if (in.coming)
            for (int k = 0; k < kLutWidth; ++k) main[kDpuLanes - kLutWidth + k] = s_.lut_result[k];
        ew_operate(main);
    }
    alignas(32) int32_t entering[kDpuLanes];
    if (loads(6)) bn_finish(entering);
    if (in.coming && !in.advance)
        for (int k = 0; k < kLutWidth; ++k) s_.lut_value[kLutWidth * in.came + k] = s_.lut_result[k];
    if (in.look_up) {
        const int32_t nothing[kLutWidth] = {};
        const bool rest = in.step && in.step < kDpuLanes / kLutWidth;
        const int32_t *x = in.first ? entering : rest ? s_.lut_value + kLutWidth * in.step : nothing;
        look_up(x, in.floats);
    }
    if (loads(6)) std::memcpy(s_.lut_value, entering, sizeof entering);
    if (loads(5)) bn_multiply();
    if (loads(4)) bs_finish();
    if (loads(3)) bs_multiply();
    if (loads(2)) add();
}

void DpuCell::add() {
    const DpuHeld &h = s_.held;
    int64_t before[kDpuLanes];
    if (h.sums) {
        int64_t whole[kDpuLanes];
        for (int lane = 0; lane < kDpuLanes; ++lane)
            whole[lane] = int64_t(uint64_t(int64_t{s_.high[lane]}) << 32) | uint32_t(s_.main[lane]);
        if (h.cpend)
            for (int lane = 0; lane < kDpuLanes; ++lane) {
                const int64_t factor = h.cpend_src ? s_.bs.cpend[lane] : s_.now.ow_op;
                whole[lane] += int64_t{s_.sum[lane]} * factor;
            }
        if (s_.cut_shift)
            for (int lane = 0; lane < kDpuLanes; ++lane) {
                const int64_t biased = whole[lane] + s_.cut_half;
                const int64_t tie = s_.cut_to_even && (biased & s_.cut_dropped) == 0;
                whole[lane] = (biased >> s_.cut_shift) & ~tie;
            }
        for (int lane = 0; lane < kDpuLanes; ++lane) before[lane] = clamp(whole[lane], kLowest, kHighest);
    } else {
        for (int lane = 0; lane < kDpuLanes; ++lane) before[lane] = s_.main[lane];
    }
    if (h.bs.add)
        for (int lane = 0; lane < kDpuLanes; ++lane) {
            const int64_t operand = h.bs.alu_src ? s_.bs.alu[lane] : s_.now.bs.addend;
            before[lane] += h.bs.minus ? -operand : operand;
        }
    std::memcpy(s_.total, before, sizeof before);
    for (int lane = 0; lane < kDpuLanes; ++lane)
        s_.factor[lane] = !h.bs.mul ? 1 : h.bs.mul_src ? s_.bs.mul[lane] : s_.now.bs.factor;
}

void DpuCell::bs_multiply() {
    const bool mul = s_.held.bs.mul, prelu = s_.held.bs.prelu;
    for (int lane = 0; lane < kDpuLanes; ++lane) {
        const int64_t total = s_.total[lane];
        const bool skip = !mul || (prelu && total >= 0);
        s_.bs_product[lane] = skip ? total : total * s_.factor[lane];
        s_.bs_plain[lane] = skip;
    }
}

void DpuCell::bs_finish() { finish<49>(s_.bs_product, s_.bs_plain, s_.held.bs, s_.bs_value); }

void DpuCell::bn_multiply() {
    const DpuScaleHeld &h = s_.held.bn;
    for (int lane = 0; lane < kDpuLanes; ++lane) {
        const int64_t main = s_.bs_value[lane];
        const int64_t factor = h.mul_src ? s_.bn.mul[lane] : s_.now.bn.factor;
        const bool skip = !h.mul || (h.prelu && main >= 0);
        s_.bn_product[lane] = skip ? main : main * factor;
        s_.bn_plain[lane] = skip;
    }
    for (int lane = 0; lane < kDpuLanes; ++lane) {
        const int64_t term = h.alu_src ? s_.bn.alu[lane] : s_.now.bn.addend;
        s_.bn_addend[lane] = !h.add ? 0 : h.minus ? -term : term;
    }
}

void DpuCell::bn_finish(int32_t *value) const {
    int64_t total[kDpuLanes];
    for (int lane = 0; lane < kDpuLanes; ++lane) total[lane] = s_.bn_product[lane] + s_.bn_addend[lane];
    finish<49>(total, s_.bn_plain, s_.held.bn, value);
}

void DpuCell::look_up(const int32_t *elements, bool floats) {
    const DpuFields &f = s_.now;
    for (int k = 0; k < kLutWidth; ++k) {
        const int32_t x = floats ? to_int32(static_cast<uint32_t>(elements[k])) : elements[k];
        bool under[2], over[2];
        int64_t distance[2], slope[2];
        uint32_t entry[2];
        int shift[2];
        for (int n = 0; n < 2; ++n) {
            const DpuTableFields &t = f.table[n];
            const int step = t.select > kLutLargestStep ? kLutLargestStep : t.select;
            const int64_t inside = int64_t{x} - t.start;
            const uint32_t offset = static_cast<uint32_t>(inside);
            const uint32_t past = offset >> step, rest = offset & ((1u << step) - 1);
            const bool beyond = x > t.end, far = past > kLutSegments || (past == kLutSegments && rest);
            under[n] = x < t.start;
            over[n] = !under[n] && (beyond || far);
            if (under[n]) {
                entry[n] = 0, distance[n] = inside, shift[n] = t.under_shift, slope[n] = t.under_scale;
            } else if (over[n]) {
                entry[n] = kLutSegments, distance[n] = beyond ? int64_t{x} - t.end : 0;
                shift[n] = t.over_shift, slope[n] = t.over_scale;
            } else {
                entry[n] = past, distance[n] = rest, shift[n] = step, slope[n] = 0;
            }
        }
        const bool hit[2] = {!(under[0] || over[0]), !(under[1] || over[1])};
        bool lo;
        if (under[0] && under[1]) lo = f.under_priority;
        else if (over[0] && over[1]) lo = f.over_priority;
        else if (hit[0] != hit[1]) lo = hit[1];
        else lo = f.hybrid_priority;
        const uint16_t *table = s_.tables + 1024 * lo;
        const int64_t base = static_cast<int16_t>(table[entry[lo]]);
        const int64_t next = static_cast<int16_t>(table[(entry[lo] + 1) & 1023]);
        const int64_t product = distance[lo] * (hit[lo] ? next - base : slope[lo]);
        s_.lut_result[k] = static_cast<int32_t>(clamp(base + (product >> shift[lo]), kLowest, kHighest));
    }
}

void DpuCell::ew_operate(const int32_t *main) {
    const DpuHeld &h = s_.held;
    const int32_t *operand = s_.ew_operand;
    const auto each = [&](auto function) {
        for (int lane = 0; lane < kDpuLanes; ++lane) {
            s_.ew_product[lane] = function(main[lane], operand[lane]);
            s_.ew_plain[lane] = 1;
        }
    };
    const auto negated = [](int32_t x) { return static_cast<int32_t>(0u - static_cast<uint32_t>(x)); };
    if (h.ew.mul) {
        const bool prelu = h.ew.prelu;
        for (int lane = 0; lane < kDpuLanes; ++lane) {
            const bool skip = prelu && main[lane] >= 0;
            const int64_t v = main[lane];
            s_.ew_product[lane] = skip ? v : v * static_cast<int16_t>(operand[lane]);
            s_.ew_plain[lane] = skip;
        }
        return;
    }
    const bool binary = h.ew_binary;
    switch (h.ew_alu ? s_.now.ew_algo : -1) {
        case kMax:
            return each([=](int32_t v, int32_t e) -> int64_t { return binary ? v > e : v > e ? v : e; });
        case kMin:
            return each([=](int32_t v, int32_t e) -> int64_t { return binary ? v < e : v < e ? v : e; });
        case kAdd: return each([](int32_t v, int32_t e) { return int64_t{v} + e; });
        case kMinus: return each([=](int32_t v, int32_t e) { return int64_t{v} + negated(e); });
        case kAbs: return each([=](int32_t v, int32_t) -> int64_t { return v < 0 ? negated(v) : v; });
        case kNeg: return each([=](int32_t v, int32_t) -> int64_t { return negated(v); });
        default: return each([](int32_t v, int32_t) { return int64_t{v}; });
    }
}

void DpuCell::ew_finish() { finish<48>(s_.ew_product, s_.ew_plain, s_.held.ew, s_.ew_value); }

void DpuCell::out_multiply(bool late_floats) {
    const DpuHeld &h = s_.held;
    if (!late_floats) {
        const int64_t before = h.before, scale = s_.now.out_scale;
        for (int lane = 0; lane < kDpuLanes; ++lane) s_.out_product[lane] = (s_.ew_value[lane] + before) * scale;
    } else if (h.wide) {
        for (int lane = 0; lane < kDpuLanes; ++lane) s_.out_product[lane] = s_.ew_value[lane];
    } else {
        for (int lane = 0; lane < kDpuLanes; ++lane)
            s_.out_product[lane] = to_int32(static_cast<uint32_t>(s_.ew_value[lane]));
    }
}

void DpuCell::out_finish(int live) {
    const DpuHeld &h = s_.held;
    const DpuShift shift = h.shift;
    const int64_t after = h.after, low = h.low, high = h.high, mask = low_bits(49);
    int32_t number[kDpuLanes];
    if (h.away) {
        for (int lane = 0; lane < kDpuLanes; ++lane) {
            const int64_t product = s_.out_product[lane];
            const int64_t sign = h.late ? product : (product >> shift.count) + after;
            const int64_t rounded = shifted(product, shift, h.some && sign >= 0);
            number[lane] = static_cast<int32_t>(clamp(rounded + after, low, high));
        }
    } else {
        const int64_t odd = h.odd;
        for (int lane = 0; lane < kDpuLanes; ++lane) {
            const int64_t product = s_.out_product[lane];
            const int64_t up = ((product & shift.unit & mask) != 0) ^ odd;
            number[lane] = static_cast<int32_t>(clamp(shifted(product, shift, up) + after, low, high));
        }
    }
    uint32_t *value = s_.value;
    std::memcpy(value, number, sizeof number);
    if (h.wide) {
        if (h.make)
            for (int lane = 0; lane < kDpuLanes; ++lane) value[lane] = bits_of(static_cast<float>(number[lane]));
        const uint32_t minus = h.minus;
        if (h.half) {
            for (int lane = 0; lane < kDpuLanes; ++lane) {
                const uint32_t nan = 0x7C01 | (value[lane] >> 31) << 15;
                const uint32_t half = h.raw ? value[lane] & 0xFFFF : narrow_fp16(value[lane], nan);
                value[lane] = less(half, minus & 31, 10, 5);
            }
        } else if (h.brain) {
            for (int lane = 0; lane < kDpuLanes; ++lane) value[lane] = less(narrow_bf16(value[lane]), minus, 7, 8);
        } else {
            for (int lane = 0; lane < kDpuLanes; ++lane) value[lane] = less(value[lane], minus, 23, 8);
        }
    }
    for (int lane = live; lane < kDpuLanes; ++lane) value[lane] = static_cast<uint32_t>(h.pend);
}

}  // namespace npu
