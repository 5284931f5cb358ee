#include "npu_cell.h"

#if defined(__AVX2__)
#include <immintrin.h>
#endif

namespace npu {

namespace {

// 32 kernels: acc[k] = sum of pairs[p][k][0] * f[2p] + pairs[p][k][1] * f[2p + 1].
// Products of int8 values in int16 pairs: no step can overflow 32 bits.
#if defined(__AVX512BW__)
void dot(const int16_t (*pairs)[kKernels][2], const int16_t *features, int32_t *acc) {
    __m512i low = _mm512_setzero_si512(), high = low;
    for (int p = 0; p < kChannels / 2; ++p) {
        int32_t both;
        std::memcpy(&both, features + 2 * p, sizeof both);
        const __m512i f = _mm512_set1_epi32(both);
        low = _mm512_add_epi32(low, _mm512_madd_epi16(f, _mm512_load_si512(&pairs[p][0])));
        high = _mm512_add_epi32(high, _mm512_madd_epi16(f, _mm512_load_si512(&pairs[p][16])));
    }
    _mm512_storeu_si512(acc, low);
    _mm512_storeu_si512(acc + 16, high);
}
#elif defined(__AVX2__)
void dot(const int16_t (*pairs)[kKernels][2], const int16_t *features, int32_t *acc) {
    __m256i sum[4] = {};
    for (int p = 0; p < kChannels / 2; ++p) {
        int32_t both;
        std::memcpy(&both, features + 2 * p, sizeof both);
        const __m256i f = _mm256_set1_epi32(both);
        for (int n = 0; n < 4; ++n) {
            const __m256i w = _mm256_load_si256(reinterpret_cast<const __m256i *>(&pairs[p][8 * n]));
            sum[n] = _mm256_add_epi32(sum[n], _mm256_madd_epi16(f, w));
        }
    }
    for (int n = 0; n < 4; ++n) _mm256_storeu_si256(reinterpret_cast<__m256i *>(acc + 8 * n), sum[n]);
}
#else
void dot(const int16_t (*pairs)[kKernels][2], const int16_t *features, int32_t *acc) {
    for (int k = 0; k < kKernels; ++k) acc[k] = 0;
    for (int p = 0; p < kChannels / 2; ++p) {
        const int32_t even = features[2 * p], odd = features[2 * p + 1];
        for (int k = 0; k < kKernels; ++k) acc[k] += pairs[p][k][0] * even + pairs[p][k][1] * odd;
    }
}
#endif

int64_t wrap40(int64_t value) { return static_cast<int64_t>(static_cast<uint64_t>(value) << 24) >> 24; }

}  // namespace

void Cell::drain(const CellIn &in) {
    const int64_t *acc = &s_.acc[in.d_bank][in.d_slot][kLanes * in.d_octet];
    const uint32_t *sum = &s_.sum[in.d_bank][in.d_slot][kLanes * in.d_octet];
    for (int lane = 0; lane < kLanes; ++lane) {
        s_.o_acc[lane] = wrap40(acc[lane]);
        s_.o_sum[lane] = sum[lane];
    }
}

void Cell::accumulate() {
    int64_t *acc = s_.acc[s_.b_bank][s_.b_slot];
    uint32_t *sum = s_.sum[s_.b_bank][s_.b_slot];
    const int lanes = s_.b_depthwise ? kWide : kKernels;
    if (s_.b_first) {
        for (int n = 0; n < lanes; ++n) acc[n] = s_.b_acc[n];
        for (int n = 0; n < lanes; ++n) sum[n] = static_cast<uint32_t>(s_.b_sum[n]);
    } else {
        for (int n = 0; n < lanes; ++n) acc[n] += s_.b_acc[n];
        for (int n = 0; n < lanes; ++n) sum[n] += static_cast<uint32_t>(s_.b_sum[n]);
    }
}

void Cell::multiply() {
    s_.b_depthwise = s_.a_depthwise;
    s_.b_first = s_.a_first;
    s_.b_bank = s_.a_bank;
    s_.b_slot = s_.a_slot;
    if (s_.a_depthwise) {
        for (int n = 0; n < kWide; ++n) s_.b_acc[n] = s_.a_data[n] * s_.active[n];
        for (int n = 0; n < kWide; ++n) s_.b_sum[n] = s_.a_data[n];
        return;
    }
    if (s_.pairs_stale) widen();
    alignas(64) int16_t features[kChannels];
    int32_t window = 0;
    for (int c = 0; c < kChannels; ++c) features[c] = s_.a_data[c];
    for (int c = 0; c < kChannels; ++c) window += s_.a_data[c];
    dot(s_.pairs, features, s_.b_acc);
    for (int k = 0; k < kKernels; ++k) s_.b_sum[k] = window;
}

void Cell::latch(const CellIn &in, const uint8_t *features) {
    s_.a_depthwise = in.depthwise;
    s_.a_first = in.f_first;
    s_.a_bank = in.f_bank;
    s_.a_slot = in.f_slot;
    std::memcpy(s_.a_data, features, sizeof s_.a_data);
    if (in.f_swap) {
        std::memcpy(s_.active, s_.shadow, sizeof s_.active);
        s_.pairs_stale = 1;
    }
}

void Cell::write(const CellIn &in, const uint8_t *weights) {
    if (in.w_stride) {
        std::memcpy(s_.shadow + 64 * in.w_index, weights, 64);
        return;
    }
    uint8_t *row = s_.shadow + 128 * (in.w_index % 8);
    for (int k = 0; k < 4; ++k) std::memcpy(row + 32 * k, weights + 16 * k, 16);
}

void Cell::widen() {
    s_.pairs_stale = 0;
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
    int16_t *wide = &s_.pairs[0][0][0];
    for (size_t n = 0; n < sizeof bytes; ++n) wide[n] = bytes[n];
}

void Cell::pack_acc(uint32_t *words) const {
    uint8_t bytes[5 * kLanes];
    for (int lane = 0; lane < kLanes; ++lane) {
        const uint64_t value = static_cast<uint64_t>(s_.o_acc[lane]);
        for (int n = 0; n < 5; ++n) bytes[5 * lane + n] = static_cast<uint8_t>(value >> (8 * n));
    }
    std::memcpy(words, bytes, sizeof bytes);
}

}  // namespace npu
