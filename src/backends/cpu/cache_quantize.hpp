// Values to e4m3 codes and the scales of groups, as templates over the vectors of an instruction set, to the bit as
// core/kv_quantize.hpp has them.
//
// Three ways, the fastest first. Nearly all values of real data become normal codes (2^-6 to 448 after scaling), whose
// exponent and mantissa bits are the value's own, rounded to four significant bits. A block with smaller values is done
// once more in the units that subnormal codes share, a block with larger ones, infinities or NaN by encode_e4m3.
#pragma once

#include "backends/cpu/e4m3_blocks.hpp"
#include "core/kv_quantize.hpp"

namespace flashmla::backends::cpu {

// Isa: what E4m3Blocks wants, low_bytes(Uint) for lanes below 256, largest_word(Words): the largest of 16-bit lanes,
// kFused: multiply_add_f32 rounds once.
template <class Isa>
struct CacheQuantizer {
    using Values = CacheValues<Isa>;
    using Blocks = E4m3Blocks<Isa>;
    using Words = typename Blocks::Words;
    using Bytes = typename Blocks::Bytes;
    using Pair = typename Blocks::Pair;
    static constexpr int kLanes = Isa::kLanes;
    static constexpr int kPair = Blocks::kPair;
    static constexpr int kBlock = Blocks::kBlock;

    template <DType kType>
    static constexpr int kBytes = Values::template kBytes<kType>;

    // A few blocks at a time, and only whole ones; returns how many values they had. `normal(from, signs)` makes the
    // normal codes of a block, `scaled` is a vector divided by the scale. `kBounded`: no quotient
    // is above 448 or no number.
    template <DType kType, bool kBounded, class Normal, class Scaled>
    static FLASHMLA_INLINE int quantize_whole_blocks(const std::uint8_t* from, int count, float scale, std::uint8_t* to,
                                                     const Normal& normal, const Scaled& scaled) {
        constexpr int kFew = 4 * kBlock;
        const int whole = count - count % kBlock;
        for (int done = 0; done < whole; done += kFew, from += kFew * kBytes<kType>, to += kFew) {
            const int few = core::min_of(kFew, whole - done);
            Bytes least = Bytes{} + Blocks::kLargestCode;
            Bytes most{};
            for (int i = 0; i < few; i += kBlock) {
                Bytes signs;
                const Bytes made = normal(from + i * kBytes<kType>, signs);
                least = made < least ? made : least;
                if constexpr (!kBounded) most = made > most ? made : most;
                Blocks::template store_block<kType>(to + i, made, signs);
            }
            if (!kBounded && Isa::any(reinterpret_cast<Bytes>(most > Blocks::kLargestCode))) {
                const Float<Isa> divisor = splat<Isa>(scale);
                for (int i = 0; i < few; i += kLanes) {
                    const auto values = Values::template load_values<kType>(from + i * kBytes<kType>);
                    store(to + i, encode_e4m3<Isa>(values / divisor));
                }
            } else if (Isa::any(reinterpret_cast<Bytes>(least < Blocks::kSmallestNormalCode))) {
                const auto any_codes = [&scaled](const std::uint8_t* values, Words& signs) {
                    const Pair pair = Blocks::template load_pair<kType>(values, signs);
                    return Blocks::codes({scaled(pair.low), scaled(pair.high)});
                };
                for (int i = 0; i < few; i += kBlock) {
                    Bytes signs;
                    const Bytes made = Blocks::template block_codes<kType>(from + i * kBytes<kType>, signs, any_codes);
                    Blocks::template store_block<kType>(to + i, made, signs);
                }
            }
        }
        return whole;
    }

    // ---- Runs of one scale

    static bool within(float scale, float low, float high) { return scale >= low && scale <= high; }

    // Whether bf16 values can stay where they are: no exponent on the way leaves fp32.
    static bool stays_in_place(float scale) {
        return Values::is_power_of_two(scale) && within(scale, 0x1p-100f, 0x1p100f);
    }

    // Whether two FMA steps on x times the reciprocal give the code of the fp32 quotient x / scale, for every finite x.
    // They miss the exact quotient by less than 2^-22 units in its last place before they round. Only the fp32 numbers
    // beside a boundary between codes matter, and boundaries have five significant bits: with x and the scale s as
    // 24-bit integers, x 2^24 or x 2^25 minus s times the (odd, 25-bit) middle of such two numbers is n = +-s modulo
    // 2^20, never 0, and the exact quotient is n / 2s units from that middle: 2^-22 or more where |n| > 8.
    // Below 2^-11, where every code is 0, and only there, bits may be lost to underflow.
    static bool has_fused_quotients(float scale) {
        if (!Isa::kFused || !within(scale, 0x1p-90f, 0x1p90f)) return false;
        const std::uint32_t low_bits = core::float_bits(scale) & 0xfffff;
        return low_bits == 0 || (low_bits > 8 && low_bits < 0x100000 - 8);
    }

    // bf16 values, a scale that stays_in_place.
    template <bool kBounded>
    static FLASHMLA_INLINE int quantize_in_place(const std::uint8_t* from, int count, float scale, std::uint8_t* to) {
        const auto bias = static_cast<std::uint16_t>(Blocks::kCodeBias + (core::float_bits(scale) >> 20) - (127 << 3));
        return quantize_whole_blocks<DType::kBFloat16, kBounded>(
            from, count, scale, to,
            [bias](const std::uint8_t* block, Bytes& block_signs) {
                return Blocks::template block_codes<DType::kBFloat16>(
                    block, block_signs, [bias](const std::uint8_t* values, Words& signs) {
                        signs = load<Words>(values);
                        return Blocks::normal_codes_of_bf16(signs & 0x7fff, bias);
                    });
            },
            [scale](Float<Isa> values) { return values * splat<Isa>(1.0f / scale); });
    }

    template <DType kType, class Scaled>
    static FLASHMLA_INLINE int quantize_scaled(const std::uint8_t* from, int count, float scale, std::uint8_t* to,
                                               const Scaled& scaled) {
        return quantize_whole_blocks<kType, false>(
            from, count, scale, to,
            [&scaled](const std::uint8_t* block, Bytes& block_signs) {
                return Blocks::template block_codes<kType>(
                    block, block_signs, [&scaled](const std::uint8_t* values, Words& signs) {
                        const Pair pair = Blocks::template load_pair<kType>(values, signs);
                        return Blocks::normal_codes({scaled(pair.low), scaled(pair.high)});
                    });
            },
            scaled);
    }

    template <DType kType>
    static FLASHMLA_INLINE int quantize_blocks_by(const std::uint8_t* from, int count, float scale, std::uint8_t* to) {
        if (kType == DType::kBFloat16 && stays_in_place(scale)) {
            return quantize_in_place<false>(from, count, scale, to);
        }
        const Float<Isa> divisor = splat<Isa>(scale);
        const Float<Isa> factor = splat<Isa>(1.0f / scale);
        // Dividing by a power of two and multiplying with its reciprocal are the same real number, rounded once.
        if (Values::is_power_of_two(scale) && within(scale, 0x1p-126f, 0x1p126f)) {
            return quantize_scaled<kType>(from, count, scale, to,
                                          [factor](Float<Isa> values) { return values * factor; });
        }
        if (has_fused_quotients(scale)) {
            return quantize_scaled<kType>(from, count, scale, to, [factor, divisor](Float<Isa> values) {
                const Float<Isa> quotient = values * factor;
                return Isa::multiply_add_f32(Isa::multiply_add_f32(-quotient, divisor, values), factor, quotient);
            });
        }
        return quantize_scaled<kType>(from, count, scale, to,
                                      [divisor](Float<Isa> values) { return values / divisor; });
    }

    template <DType kType>
    static FLASHMLA_INLINE void quantize_run(const std::uint8_t* from, int count, float scale, std::uint8_t* to) {
        for (int i = quantize_blocks_by<kType>(from, count, scale, to); i < count; ++i) {
            to[i] = core::quantize(Values::template load_value<kType>(from + i * kBytes<kType>), scale);
        }
    }

    static void quantize(DType from_type, const std::uint8_t* from, int count, const FlatScale& scale,
                         std::uint8_t* to) {
        int done = 0;
        if (from_type == DType::kBFloat16 && scale.has_steps) {
            const auto steps = Isa::repeated(scale.steps);
            const Float<Isa> divisor = splat<Isa>(scale.value);
            done = quantize_whole_blocks<DType::kBFloat16, false>(
                from, count, scale.value, to,
                [&scale, steps](const std::uint8_t* block, Bytes& signs) {
                    return Blocks::codes_by_steps(block, signs, scale, steps);
                },
                [divisor](Float<Isa> values) { return values / divisor; });
        }
        Values::with_type(from_type, [&]<DType kFrom>() {
            quantize_run<kFrom>(from + done * kBytes<kFrom>, count - done, scale.value, to + done);
        });
    }

    // ---- Groups with scales of their own

    template <int kBy, std::size_t... kIndex>
    static FLASHMLA_INLINE Uint<Isa> rotated(Uint<Isa> v, std::index_sequence<kIndex...>) {
        return __builtin_shufflevector(v, v, ((kIndex + kBy) % kLanes)...);
    }

    template <int kBy = kLanes / 2>
    static FLASHMLA_INLINE std::uint32_t largest_lane(Uint<Isa> v) {
        const Uint<Isa> other = rotated<kBy>(v, std::make_index_sequence<kLanes>());
        const Uint<Isa> larger = other > v ? other : v;
        if constexpr (kBy == 1) return larger[0];
        if constexpr (kBy > 1) return largest_lane<kBy / 2>(larger);
    }

    // Largest magnitude as fp32 bits; NaN and infinity count as more than any finite one, or not at all.
    template <DType kType, bool kFiniteOnly>
    static FLASHMLA_INLINE std::uint32_t largest_magnitude(const std::uint8_t* from, int count) {
        std::uint32_t result = 0;
        int i = 0;
        if constexpr (kType == DType::kBFloat16 && !kFiniteOnly) {
            Words largest{};
#pragma GCC unroll 4
            for (; i + kPair <= count; i += kPair) {
                const Words magnitude = load<Words>(from + 2 * i) & 0x7fff;
                largest = magnitude > largest ? magnitude : largest;
            }
            result = Isa::largest_word(largest) << 16;
        } else {
            Uint<Isa> largest{};
            for (; i + kLanes <= count; i += kLanes) {
                Uint<Isa> magnitude =
                    Values::bits(Values::template load_values<kType>(from + i * kBytes<kType>)) & core::kFloatMagnitude;
                if constexpr (kFiniteOnly) magnitude = magnitude < core::kFloatInfinity ? magnitude : Uint<Isa>{};
                largest = magnitude > largest ? magnitude : largest;
            }
            result = largest_lane(largest);
        }
        for (; i < count; ++i) {
            const std::uint32_t magnitude =
                core::float_bits(Values::template load_value<kType>(from + i * kBytes<kType>)) & core::kFloatMagnitude;
            if (!kFiniteOnly || magnitude < core::kFloatInfinity) result = core::max_of(result, magnitude);
        }
        return result;
    }

    // First all scales, then all codes: codes that wait for a scale would fill the core's queues and keep it from the
    // next group's values. `size`: from.group, as a constant where it matters.
    template <DType kType>
    static FLASHMLA_INLINE void quantize_groups_of(const GroupedValues& from, int size, float* scales,
                                                   std::uint8_t* to) {
        const int step = size * kBytes<kType>;
        std::uint32_t largest_of_all = 0;
        for (int group = 0; group < from.groups; ++group) {
            const std::uint8_t* values = from.data + group * step;
            std::uint32_t largest = largest_magnitude<kType, false>(values, size);
            largest_of_all = core::max_of(largest_of_all, largest);
            if (largest >= core::kFloatInfinity) largest = largest_magnitude<kType, true>(values, size);
            scales[group] = core::quantizer_scale(core::float_from_bits(largest), from.power_of_two);
        }
        // Such scales are 2^-13 to 2^92.
        if (kType == DType::kBFloat16 && size % kBlock == 0 && from.power_of_two &&
            largest_of_all < core::float_bits(0x1p100f)) {
            for (int group = 0; group < from.groups; ++group) {
                quantize_in_place<true>(from.data + group * step, size, scales[group], to + group * size);
            }
            return;
        }
        for (int group = 0; group < from.groups; ++group) {
            quantize_run<kType>(from.data + group * step, size, scales[group], to + group * size);
        }
    }

    static void quantize_groups(const GroupedValues& from, float* scales, std::uint8_t* to) {
        Values::with_type(from.dtype, [&]<DType kFrom>() {
            switch (from.group) {
                case 128: return quantize_groups_of<kFrom>(from, 128, scales, to);
                case 64: return quantize_groups_of<kFrom>(from, 64, scales, to);
                default: return quantize_groups_of<kFrom>(from, from.group, scales, to);
            }
        });
    }
};

template <class Isa>
constexpr CacheKernels make_cache_kernels() {
    return {.cast = &CacheValues<Isa>::cast,
            .quantize = &CacheQuantizer<Isa>::quantize,
            .quantize_groups = &CacheQuantizer<Isa>::quantize_groups,
            .dequantize = &CacheValues<Isa>::dequantize};
}

}  // namespace flashmla::backends::cpu
