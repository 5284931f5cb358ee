#include "npu_cell.h"

#if defined(__AVX2__)
#include <immintrin.h>
#endif

namespace npu {

namespace {

// acc[k] = sum of pairs[p][k][0] * f[2p] + pairs[p][k][1] * f[2p + 1], for a multiple of 32 kernels. No step
// can overflow 32 bits: the products are int8 by int8 or int16 by a byte, added in pairs of int16.
template <int Kernels>
void dot(const int16_t *pairs, const int16_t *features, int32_t *acc) {
#if defined(__AVX512BW__)
    __m512i sum[Kernels / 16] = {};
    for (int p = 0; p < kChannels / 2; ++p) {
        int32_t both;
        std::memcpy(&both, features + 2 * p, sizeof both);
        const __m512i f = _mm512_set1_epi32(both);
        for (int n = 0; n < Kernels / 16; ++n) {
            const __m512i w = _mm512_load_si512(pairs + 2 * (Kernels * p + 16 * n));
            sum[n] = _mm512_add_epi32(sum[n], _mm512_madd_epi16(f, w));
        }
    }
    for (int n = 0; n < Kernels / 16; ++n) _mm512_storeu_si512(acc + 16 * n, sum[n]);
#elif defined(__AVX2__)
    __m256i sum[Kernels / 8] = {};
    for (int p = 0; p < kChannels / 2; ++p) {
        int32_t both;
        std::memcpy(&both, features + 2 * p, sizeof both);
        const __m256i f = _mm256_set1_epi32(both);
        for (int n = 0; n < Kernels / 8; ++n) {
            const int16_t *at = pairs + 2 * (Kernels * p + 8 * n);
            const __m256i w = _mm256_load_si256(reinterpret_cast<const __m256i *>(at));
            sum[n] = _mm256_add_epi32(sum[n], _mm256_madd_epi16(f, w));
        }
    }
    for (int n = 0; n < Kernels / 8; ++n) _mm256_storeu_si256(reinterpret_cast<__m256i *>(acc + 8 * n), sum[n]);
#else
    for (int k = 0; k < Kernels; ++k) acc[k] = 0;
    for (int p = 0; p < kChannels / 2; ++p) {
        const int32_t even = features[2 * p], odd = features[2 * p + 1];
        const int16_t *w = pairs + 2 * Kernels * p;
        for (int k = 0; k < Kernels; ++k) acc[k] += w[2 * k] * even + w[2 * k + 1] * odd;
    }
#endif
}

constexpr int kCut = 64 - kAccBits;

int64_t wrapped(int64_t value) { return static_cast<int64_t>(static_cast<uint64_t>(value) << kCut) >> kCut; }

int16_t nibble(uint8_t byte, int odd) { return static_cast<int8_t>(static_cast<uint8_t>(odd ? byte : byte << 4)) >> 4; }

// Type codes of [HW 3]; reserved codes count as int8, depthwise int4 and tf32 as direct.
Path path_of(int precision, int depthwise) {
    switch (precision) {
        case 1: return depthwise ? Path::Int16Wide : Path::Int16;
        case 2: return depthwise ? Path::Fp16Wide : Path::Fp16;
        case 3: return depthwise ? Path::Bf16Wide : Path::Bf16;
        case 6: return Path::Int4;
        case 7: return Path::Tf32;
        default: return depthwise ? Path::Int8Wide : Path::Int8;
    }
}

bool is_float(Path path) { return path >= Path::Fp16; }

bool is_wide(Path path) {
    return path == Path::Int8Wide || path == Path::Int16Wide || path == Path::Fp16Wide || path == Path::Bf16Wide;
}

FloatKind kind_of(Path path) {
    if (path == Path::Tf32) return FloatKind::Tf32;
    return path == Path::Fp16 || path == Path::Fp16Wide ? FloatKind::Fp16 : FloatKind::Bf16;
}

// Sum of a and b given as bits; every NaN result has the same bits.
uint32_t added(uint32_t a, uint32_t b) {
    float x, y;
    std::memcpy(&x, &a, sizeof x);
    std::memcpy(&y, &b, sizeof y);
    const float z = x + y;
    uint32_t bits;
    std::memcpy(&bits, &z, sizeof bits);
    return z == z ? bits : 0x7FC00000;
}

}  // namespace

void Cell::drain(const CellIn &in) {
    const int64_t *acc = &s_.acc[in.d_bank][in.d_slot][kLanes * in.d_octet];
    const uint32_t *sum = &s_.sum[in.d_bank][in.d_slot][kLanes * in.d_octet];
    for (int lane = 0; lane < kLanes; ++lane) {
        s_.o_acc[lane] = wrapped(acc[lane]);
        s_.o_sum[lane] = sum[lane];
    }
}

void Cell::accumulate() {
    if (is_float(s_.b.path)) {  // one cycle later
        s_.c = s_.b;
        std::memcpy(s_.c_tile, s_.b_tile, sizeof s_.c_tile);
        return;
    }
    int64_t *acc = s_.acc[s_.b.bank][s_.b.slot];
    uint32_t *sum = s_.sum[s_.b.bank][s_.b.slot];
    const int64_t keep = s_.b.first ? 0 : -1;
    const auto add = [&](int lanes, bool wide) {
        for (int n = 0; n < lanes; ++n) acc[n] = (acc[n] & keep) + s_.b_acc[n];
        for (int n = 0; n < lanes; ++n)
            sum[n] = (sum[n] & static_cast<uint32_t>(keep)) + static_cast<uint32_t>(s_.b_sum[wide ? n : 0]);
    };
    switch (s_.b.path) {
        case Path::Int8: return add(32, false);
        case Path::Int4: return add(64, false);
        case Path::Int16: {
            for (int n = 0; n < 16; ++n)
                acc[n] = (acc[n] & keep) + s_.b_acc[n] + int64_t{256} * s_.b_acc[16 + n];
            for (int n = 0; n < 16; ++n)
                sum[n] = (sum[n] & static_cast<uint32_t>(keep)) + static_cast<uint32_t>(s_.b_sum[0]);
            return;
        }
        default: return add(kWide, true);
    }
}

void Cell::accumulate_floats() {
    int64_t *acc = s_.acc[s_.c.bank][s_.c.slot];
    uint32_t *sum = s_.sum[s_.c.bank][s_.c.slot];
    const uint32_t keep = s_.c.first ? 0 : ~0u;
    const auto add = [&](int lanes) {
        for (int n = 0; n < lanes; ++n) acc[n] = added(static_cast<uint32_t>(acc[n]) & keep, s_.c_tile[n]);
        for (int n = 0; n < lanes; ++n) sum[n] = 0;
    };
    if (is_wide(s_.c.path))
        add(kWide);
    else
        add(FloatTile::kKernels);
}

void Cell::multiply() {
    s_.b = s_.a;
    if (stale_) prepare();
    alignas(64) int16_t features[kChannels];
    int32_t window = 0;
    switch (s_.a.path) {
        case Path::Int8: {
            const int8_t *bytes = reinterpret_cast<const int8_t *>(s_.a_data);
            for (int c = 0; c < kChannels; ++c) features[c] = bytes[c];
            for (int c = 0; c < kChannels; ++c) window += bytes[c];
            dot<32>(pairs_, features, s_.b_acc);
            s_.b_sum[0] = window;
            return;
        }
        case Path::Int16:
            std::memcpy(features, s_.a_data, sizeof features);
            for (int c = 0; c < kChannels; ++c) window += features[c];
            dot<32>(pairs_, features, s_.b_acc);  // low bytes of 16 kernels, then their high bytes
            s_.b_sum[0] = window;
            return;
        case Path::Int4:
            for (int c = 0; c < kChannels; ++c) features[c] = nibble(s_.a_data[c / 2], c % 2);
            for (int c = 0; c < kChannels; ++c) window += features[c];
            dot<64>(pairs_, features, s_.b_acc);
            s_.b_sum[0] = window;
            return;
        case Path::Fp16:
        case Path::Bf16:
        case Path::Tf32: return floats_.sum_direct(s_.a_data, s_.b_tile);
        case Path::Fp16Wide:
        case Path::Bf16Wide: return floats_.sum_depthwise(s_.a_data, s_.b_tile);
        case Path::Int8Wide: {
            const int8_t *f = reinterpret_cast<const int8_t *>(s_.a_data);
            const int8_t *w = reinterpret_cast<const int8_t *>(s_.active);
            for (int n = 0; n < kWide; ++n) s_.b_acc[n] = f[n] * w[n];
            for (int n = 0; n < kWide; ++n) s_.b_sum[n] = f[n];
            return;
        }
        case Path::Int16Wide: {
            int16_t f[kWide], w[kWide];
            std::memcpy(f, s_.a_data, sizeof f);
            std::memcpy(w, s_.active, sizeof w);
            for (int n = 0; n < kWide; ++n) s_.b_acc[n] = f[n] * w[n];
            for (int n = 0; n < kWide; ++n) s_.b_sum[n] = f[n];
            return;
        }
    }
}

void Cell::latch(const CellIn &in, const uint8_t *features) {
    s_.a.path = path_of(in.precision, in.depthwise);
    s_.a.first = in.f_first;
    s_.a.bank = in.f_bank;
    s_.a.slot = in.f_slot;
    std::memcpy(s_.a_data, features, sizeof s_.a_data);
    if (in.f_swap) {
        std::memcpy(s_.active, s_.shadow, sizeof s_.active);
        stale_ = true;
    }
}

void Cell::write(const CellIn &in, const uint8_t *weights) {
    const Path path = path_of(in.precision, 0);
    const int row = path == Path::Int4 ? 16 : path == Path::Int8 ? 32 : 64;
    const int given = 16 << in.w_stride;
    if (given >= row) {
        std::memcpy(s_.shadow + 64 * in.w_index, weights, 64);
        return;
    }
    const int rows = 64 / given, first = rows * in.w_index;
    if (row * first >= kTile) return;
    for (int k = 0; k < rows; ++k) {
        uint8_t *to = s_.shadow + row * (first + k);
        std::memcpy(to, weights + given * k, given);
        std::memset(to + given, 0, row - given);
    }
}

void Cell::prepare() {
    stale_ = false;
    switch (s_.a.path) {
        case Path::Int8: return prepare_int8();
        case Path::Int16:
            for (int k = 0; k < 16; ++k) {
                int16_t row[kChannels];
                std::memcpy(row, s_.active + 64 * k, sizeof row);
                for (int c = 0; c < kChannels; ++c) {
                    int16_t *to = pairs_ + 2 * 32 * (c / 2) + c % 2;
                    to[2 * k] = row[c] & 255;
                    to[2 * (16 + k)] = row[c] >> 8;
                }
            }
            return;
        case Path::Int4:
            for (int k = 0; k < kWide; ++k)
                for (int c = 0; c < kChannels; ++c)
                    pairs_[2 * (kWide * (c / 2) + k) + c % 2] = nibble(s_.active[16 * k + c / 2], c % 2);
            return;
        case Path::Fp16Wide:
        case Path::Bf16Wide: return floats_.depthwise(kind_of(s_.a.path), s_.active);
        case Path::Fp16:
        case Path::Bf16:
        case Path::Tf32: return floats_.direct(kind_of(s_.a.path), s_.active);
        default: return;
    }
}

// Transposes to channel pairs and widens them.
void Cell::prepare_int8() {
    constexpr int kKernels = 32;
    alignas(64) uint16_t turned[kChannels / 2][kKernels];
    alignas(64) uint16_t rows[kKernels][kChannels / 2];
    std::memcpy(rows, s_.active, sizeof rows);
#if defined(__AVX2__)
    // 8 x 8 transposes of byte pairs.
    for (int k = 0; k < kKernels; k += 8) {
        for (int p = 0; p < kChannels / 2; p += 8) {
            __m128i r[8], t[8];
            for (int n = 0; n < 8; ++n) r[n] = _mm_load_si128(reinterpret_cast<__m128i *>(&rows[k + n][p]));
            for (int n = 0; n < 4; ++n) {
                t[2 * n] = _mm_unpacklo_epi16(r[2 * n], r[2 * n + 1]);
                t[2 * n + 1] = _mm_unpackhi_epi16(r[2 * n], r[2 * n + 1]);
            }
            for (int n = 0; n < 2; ++n) {
                r[4 * n] = _mm_unpacklo_epi32(t[4 * n], t[4 * n + 2]);
                r[4 * n + 1] = _mm_unpackhi_epi32(t[4 * n], t[4 * n + 2]);
                r[4 * n + 2] = _mm_unpacklo_epi32(t[4 * n + 1], t[4 * n + 3]);
                r[4 * n + 3] = _mm_unpackhi_epi32(t[4 * n + 1], t[4 * n + 3]);
            }
            for (int n = 0; n < 4; ++n) {
                __m128i *low = reinterpret_cast<__m128i *>(&turned[p + 2 * n][k]);
                __m128i *high = reinterpret_cast<__m128i *>(&turned[p + 2 * n + 1][k]);
                _mm_store_si128(low, _mm_unpacklo_epi64(r[n], r[n + 4]));
                _mm_store_si128(high, _mm_unpackhi_epi64(r[n], r[n + 4]));
            }
        }
    }
#else
    for (int p = 0; p < kChannels / 2; ++p)
        for (int k = 0; k < kKernels; ++k) turned[p][k] = rows[k][p];
#endif
    alignas(64) int8_t bytes[sizeof turned];
    std::memcpy(bytes, turned, sizeof bytes);
    for (size_t n = 0; n < sizeof bytes; ++n) pairs_[n] = bytes[n];
}

void Cell::pack_acc(uint32_t *words) const {
    constexpr int kBytes = kAccBits / 8;
    uint8_t bytes[kBytes * kLanes];
    for (int lane = 0; lane < kLanes; ++lane) {
        const uint64_t value = static_cast<uint64_t>(s_.o_acc[lane]);
        for (int n = 0; n < kBytes; ++n) bytes[kBytes * lane + n] = static_cast<uint8_t>(value >> (8 * n));
    }
    std::memcpy(words, bytes, sizeof bytes);
}

}  // namespace npu
