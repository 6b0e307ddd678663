// The path for AVX-512 with bf16 dot products: a unit is a pair of bf16, two products a lane and instruction.
//
// Keys keep their layout (pairs along the depth, for scores) and are stored a second time with the rows of two
// neighbouring keys interleaved (pairs along the keys, for values). Weights are rounded to bf16 in pairs; their sum is
// taken before rounding.
#include "backends/cpu/config.hpp"
#include "backends/cpu/isa_avx512.hpp"
#include "backends/cpu/rows.hpp"

namespace flashmla::backends::cpu {
namespace {

struct Tag {};

struct Avx512Bf16Ops : Avx512<Tag> {
    using Ops = Avx512Bf16Ops;

    static constexpr int kDepthPerUnit = 2;
    static constexpr int kDepthBlock = 144;   // 32 rows x 144 x 4 B = 18 KB of queries in L1
    static constexpr int kKeyStride = 304;    // 19 cache lines, odd: see Fp32Ops
    static constexpr int kValueStride = 528;  // 33 cache lines
    static constexpr int kKeyFloats = kKeyTile * kKeyStride;
    static constexpr std::uint32_t kSignBits = 0x80008000u;
    static_assert(kKeyStride >= kMaxDepth / 2 && kKeyTile % 2 == 0);
    static_assert(kKeyFloats + kKeyTile / 2 * kValueStride <= kKeyBufferFloats);
    static_assert(2 * kKeyTile * kPanelVectors * kLanes <= kScratchFloats);

    static FLASHMLA_INLINE __m512 broadcast(const float* a) { return _mm512_set1_ps(*a); }
    static FLASHMLA_INLINE __m512 multiply_add(__m512 a, __m512 b, __m512 c) {
        return _mm512_dpbf16_ps(c, reinterpret_cast<__m512bh>(a), reinterpret_cast<__m512bh>(b));
    }

    static FLASHMLA_INLINE __m512 load_units(DType, const std::uint16_t* from) { return load<__m512>(from); }
    static FLASHMLA_INLINE Half<Ops> round_to_16bit(DType, __m512 value) {
        return __builtin_convertvector(round_to_bf16<Ops>(value), Half<Ops>);
    }

    static FLASHMLA_INLINE const float* values(const float* keys) { return keys + kKeyFloats; }
    static FLASHMLA_INLINE float value(const float* keys, int key, int dim) {
        std::uint16_t code;
        __builtin_memcpy(&code, reinterpret_cast<const char*>(keys + key * kKeyStride) + 2 * dim, sizeof(code));
        return __builtin_bit_cast(float, static_cast<std::uint32_t>(code) << 16);
    }

    // [key][row] fp32 to [key / 2][row] pairs. An odd last key is paired with the weight 0.
    static FLASHMLA_INLINE const float* pack_weights(const float* weights, int count, int width, float* packed) {
        for (int k = 0; k < count; k += 2) {
            for (int lane = 0; lane < width; lane += kLanes) {
                const float* from = weights + k * width + lane;
                const Uint<Ops> low = round_to_bf16<Ops>(load<Float<Ops>>(from));
                const Uint<Ops> high = k + 1 < count ? round_to_bf16<Ops>(load<Float<Ops>>(from + width)) : Uint<Ops>{};
                store(packed + k / 2 * width + lane, low | high << 16);
            }
        }
        return packed;
    }

    static void load_keys(const TileShape& shape, const std::uint16_t* const* rows, int count, float* buffer) {
        for (int k = 0; k < count; ++k) {
            for (int d = 0; d < shape.d_qk; d += 2 * kLanes) {
                store(buffer + k * kKeyStride + d / 2, load<Float<Ops>>(rows[k] + d));
            }
        }
        float* values = buffer + kKeyFloats;
        for (int k = 0; k < count; k += 2) {
            // An odd last key is paired with zeros.
            const bool pair = k + 1 < count;
            for (int d = 0; d < shape.d_v; d += kLanes) {
                const Uint<Ops> low = __builtin_convertvector(load<Half<Ops>>(rows[k] + d), Uint<Ops>);
                const Uint<Ops> high =
                    pair ? __builtin_convertvector(load<Half<Ops>>(rows[k + 1] + d), Uint<Ops>) : Uint<Ops>{};
                store(values + k / 2 * kValueStride + d, low | high << 16);
            }
        }
    }
};

constexpr TileKernels kKernels = make_kernels<Avx512Bf16Ops>();

}  // namespace

const TileKernels* avx512_bf16_kernels() { return &kKernels; }

}  // namespace flashmla::backends::cpu
