// Vectors of fp32 lanes by the compiler's vector extension, and the few functions on them that every instruction set
// shares.
//
// Everything here is a template over Ops, one Ops per instruction set: a shared inline function would be compiled once
// with AVX-512 flags and once without, and the linker would be free to keep the wrong one.
#pragma once

#include <cstddef>
#include <cstdint>
#include <utility>

#define FLASHMLA_INLINE inline __attribute__((always_inline))

namespace flashmla::backends::cpu {

template <int kLanes>
struct Lanes {
    typedef float Float __attribute__((vector_size(4 * kLanes)));
    typedef std::int32_t Int __attribute__((vector_size(4 * kLanes)));
    typedef std::uint32_t Uint __attribute__((vector_size(4 * kLanes)));
    typedef std::uint16_t Half __attribute__((vector_size(2 * kLanes)));
    typedef std::int16_t SignedHalf __attribute__((vector_size(2 * kLanes)));
};

template <class Ops>
using Float = typename Lanes<Ops::kLanes>::Float;
template <class Ops>
using Int = typename Lanes<Ops::kLanes>::Int;
template <class Ops>
using Uint = typename Lanes<Ops::kLanes>::Uint;
template <class Ops>
using Half = typename Lanes<Ops::kLanes>::Half;

template <class Vector, class T>
FLASHMLA_INLINE Vector load(const T* from) {
    Vector v;
    __builtin_memcpy(&v, from, sizeof(v));
    return v;
}

template <class Vector, class T>
FLASHMLA_INLINE void store(T* to, const Vector& v) {
    __builtin_memcpy(to, &v, sizeof(v));
}

template <class Ops>
FLASHMLA_INLINE Float<Ops> splat(float value) {
    return value - Float<Ops>{};  // x - 0 is x, also for -0, so that this compiles to a broadcast
}

template <class Ops>
FLASHMLA_INLINE Float<Ops> decode_bf16(const void* from) {
    return reinterpret_cast<Float<Ops>>(__builtin_convertvector(load<Half<Ops>>(from), Uint<Ops>) << 16);
}

// Round to nearest even; NaN stays NaN (its upper half may hold no mantissa bit, hence the 0x40).
template <class Ops>
FLASHMLA_INLINE Uint<Ops> round_to_bf16(Float<Ops> value) {
    const Uint<Ops> bits = reinterpret_cast<Uint<Ops>>(value);
    const Uint<Ops> rounded = (bits + 0x7fff + ((bits >> 16) & 1)) >> 16;
    return value == value ? rounded : ((bits >> 16) | 0x40);
}

// 2^x for x <= 0 (relative error below 1e-7); results below 2^-126 are 0. NaN gives NaN.
template <class Ops>
FLASHMLA_INLINE Float<Ops> exp2_nonpositive(Float<Ops> x) {
    const Float<Ops> lowest = splat<Ops>(-127.0f);
    x = x < lowest ? lowest : x;
    const Float<Ops> magic =
        splat<Ops>(12582912.0f);  // 1.5 * 2^23: adding it rounds to an integer in the low mantissa bits
    const Float<Ops> shifted = x + magic;
    const Float<Ops> f = x - (shifted - magic);  // [-0.5, 0.5]
    // Fitted to 2^f for least relative error (2e-9 before rounding).
    Float<Ops> poly = splat<Ops>(0.0001534581242594868f);
    poly = Ops::multiply_add_f32(poly, f, splat<Ops>(0.0013399930903688073f));
    poly = Ops::multiply_add_f32(poly, f, splat<Ops>(0.009618489071726799f));
    poly = Ops::multiply_add_f32(poly, f, splat<Ops>(0.05550328642129898f));
    poly = Ops::multiply_add_f32(poly, f, splat<Ops>(0.24022646248340607f));
    poly = Ops::multiply_add_f32(poly, f, splat<Ops>(0.6931471824645996f));
    poly = Ops::multiply_add_f32(poly, f, splat<Ops>(1.0f));
    // The low bits of `shifted` hold the integer; moved into the exponent field, -127 gives the factor 0.
    const Int<Ops> exponent = (reinterpret_cast<Int<Ops>>(shifted) - (0x4b400000 - 127)) << 23;
    return poly * reinterpret_cast<Float<Ops>>(exponent);
}

// What weights kept at the maximum `from` are multiplied by to be kept at `to` >= from. No key yet (from = -inf): 0.
template <class Ops>
FLASHMLA_INLINE Float<Ops> rescale(Float<Ops> from, Float<Ops> to, Float<Ops> scale) {
    const Float<Ops> factor = exp2_nonpositive<Ops>((from - to) * scale);
    const Float<Ops> none = splat<Ops>(-__builtin_inff());
    return from == to ? splat<Ops>(1.0f) : (from == none ? Float<Ops>{} : factor);
}

template <class Ops, std::size_t... kIndex>
FLASHMLA_INLINE void interleave(Float<Ops>& low, Float<Ops>& high, std::index_sequence<kIndex...>) {
    constexpr int kLanes = Ops::kLanes;
    const Float<Ops> a = low;
    const Float<Ops> b = high;
    low = __builtin_shufflevector(a, b, (kIndex % 2 * kLanes + kIndex / 2)...);
    high = __builtin_shufflevector(a, b, (kIndex % 2 * kLanes + kIndex / 2 + kLanes / 2)...);
}

// Square transpose. Shuffling the two halves of all the elements together rotates an element's address by one bit;
// log2(lanes) times exchanges row and column.
template <class Ops>
FLASHMLA_INLINE void transpose(Float<Ops> (&v)[Ops::kLanes]) {
    constexpr int kLanes = Ops::kLanes;
#pragma GCC unroll 4
    for (int stage = 1; stage < kLanes; stage *= 2) {
        Float<Ops> shuffled[kLanes];
#pragma GCC unroll 8
        for (int i = 0; i < kLanes / 2; ++i) {
            shuffled[2 * i] = v[i];
            shuffled[2 * i + 1] = v[i + kLanes / 2];
            interleave<Ops>(shuffled[2 * i], shuffled[2 * i + 1], std::make_index_sequence<kLanes>());
        }
#pragma GCC unroll 16
        for (int i = 0; i < kLanes; ++i) v[i] = shuffled[i];
    }
}

}  // namespace flashmla::backends::cpu
