// Values to e4m3 codes and the scales of groups, as templates over the vectors of an instruction set, to the bit as
// core/kv_quantize.hpp has them.
//
// Three ways, the fastest first. Nearly all values of real data become normal codes (2^-6 to 448 after scaling), whose
// exponent and mantissa bits are the value's own, rounded to four significant bits. A block with smaller values is done
// once more in the units that subnormal codes share, a block with larger ones, infinities or NaN by encode_e4m3.
#pragma once

#include "backends/cpu/cache_kernels.hpp"
#include "backends/cpu/cache_values.hpp"
#include "core/kv_quantize.hpp"

namespace flashmla::backends::cpu {

// Isa: what CacheValues wants, low_bytes(Uint) for lanes below 256, and of 16-bit lanes
// largest_word(Words): the largest lane,
// pack_bytes(Words, Words): signed lanes as bytes, 0 and 255 where they are outside, in an order of its own,
// pack_signs(Words, Words): top bits of lanes as top bits of bytes, in the same order,
// in_order(Bytes): such bytes in the order of the lanes,
// any(Bytes): whether a bit is set,
// repeated(bytes): 16 bytes, again and again; look_up(Bytes, Bytes): of such a vector, the bytes at the indices,
// kFused: multiply_add_f32 rounds once.
template <class Isa>
struct CacheQuantizer {
    using Values = CacheValues<Isa>;
    static constexpr int kLanes = Isa::kLanes;
    static constexpr int kPair = 2 * kLanes;  // values whose 16-bit codes fill a vector
    static constexpr int kBlock = 2 * kPair;  // values whose codes fill one
    using Words = typename Lanes<kPair>::Half;
    using SignedWords = typename Lanes<kPair>::SignedHalf;
    using Bytes = typename ByteLanes<kBlock>::Byte;

    template <DType kType>
    static constexpr int kBytes = Values::template kBytes<kType>;

    static FLASHMLA_INLINE Uint<Isa> bits(Float<Isa> value) { return Values::bits(value); }
    static FLASHMLA_INLINE Float<Isa> value(Uint<Isa> bits) { return Values::value(bits); }

    // ---- Pairs of vectors: their codes fit the 16-bit lanes of one. bf16 comes as the even and the odd values, the
    // other types as the first and the second half.

    struct Pair {
        Float<Isa> low;   // in the low 16 bits of a lane of words
        Float<Isa> high;  // in the high ones
    };

    // The magnitudes of a pair, and its signs in the top bits of words.
    template <DType kType>
    static FLASHMLA_INLINE Pair load_pair(const std::uint8_t* from, Words& signs) {
        if constexpr (kType == DType::kBFloat16) {
            signs = load<Words>(from);
            const auto magnitudes = reinterpret_cast<Uint<Isa>>(signs & 0x7fff);
            return {value(magnitudes << 16), value(magnitudes & 0xffff0000u)};
        }
        if constexpr (kType != DType::kBFloat16) {
            const Uint<Isa> low = bits(Values::template load_values<kType>(from));
            const Uint<Isa> high = bits(Values::template load_values<kType>(from + kLanes * kBytes<kType>));
            signs = upper_halves(low, high);
            return {value(low & core::kFloatMagnitude), value(high & core::kFloatMagnitude)};
        }
    }

    template <std::size_t... kIndex>
    static FLASHMLA_INLINE Words interleaved(Words even, Words odd, std::index_sequence<kIndex...>) {
        return __builtin_shufflevector(even, odd, (kIndex + kIndex % 2 * kPair)...);
    }
    static FLASHMLA_INLINE Words interleaved(Uint<Isa> low_half_of, Uint<Isa> high_half_of) {
        return interleaved(reinterpret_cast<Words>(low_half_of), reinterpret_cast<Words>(high_half_of),
                           std::make_index_sequence<kPair>());
    }
    static FLASHMLA_INLINE Words lower_halves(Uint<Isa> low, Uint<Isa> high) { return interleaved(low, high << 16); }
    static FLASHMLA_INLINE Words upper_halves(Uint<Isa> low, Uint<Isa> high) { return interleaved(low >> 16, high); }

    // ---- Codes of magnitudes

    static constexpr std::uint8_t kSmallestNormalCode = 8;
    static constexpr std::uint8_t kLargestCode = 126;
    // Above the code in a value's exponent and top three mantissa bits.
    static constexpr std::uint16_t kCodeBias = (kSmallestE4m3Exponent >> 20) - kSmallestNormalCode;

    // To four significant bits, nearest, ties to even: 2^20 times the power of two below a value has the units wanted
    // in its last place.
    static FLASHMLA_INLINE Float<Isa> rounded(Float<Isa> x) {
        const Float<Isa> shifter = value((bits(x) & core::kFloatInfinity) + (20u << 23));
        return x + shifter - shifter;
    }

    // Of scaled values. What is no normal code comes out below kSmallestNormalCode or above kLargestCode, as signed
    // numbers.
    static FLASHMLA_INLINE Words normal_codes(const Pair& scaled) {
        return (upper_halves(bits(rounded(scaled.low)), bits(rounded(scaled.high))) >> 4) - kCodeBias;
    }

    // The same of bf16 magnitudes and a power of two, without scaling: `bias` is larger by its exponent.
    static FLASHMLA_INLINE Words normal_codes_of_bf16(Words magnitudes, std::uint16_t bias) {
        const Words sum = magnitudes + ((magnitudes >> 4) & 1) + static_cast<std::uint16_t>(7 - 16 * bias);
        return reinterpret_cast<Words>(reinterpret_cast<SignedWords>(sum) >> 4);
    }

    // Of scaled values up to 448: 0 to 16 units, above 8 times the exponent.
    static FLASHMLA_INLINE Uint<Isa> units_and_exponent(Float<Isa> scaled) {
        Int<Isa> exponent = reinterpret_cast<Int<Isa>>(scaled) & 0x7f800000;
        exponent = exponent > kSmallestE4m3Exponent ? exponent : Int<Isa>{} + kSmallestE4m3Exponent;
        const auto shifter = reinterpret_cast<Float<Isa>>(exponent + (20 << 23));
        return bits(scaled + shifter) + reinterpret_cast<Uint<Isa>>(exponent >> 20);
    }
    static FLASHMLA_INLINE Words codes(const Pair& scaled) {
        return lower_halves(units_and_exponent(scaled.low), units_and_exponent(scaled.high)) -
               static_cast<std::uint16_t>(kSmallestE4m3Exponent >> 20);
    }

    // ---- Blocks

    // Codes of the magnitudes of a block, and signs, as pack_bytes orders them. `of_pair(from, signs)` makes the codes
    // of a pair.
    template <DType kType, class OfPair>
    static FLASHMLA_INLINE Bytes block_codes(const std::uint8_t* from, Bytes& signs, const OfPair& of_pair) {
        Words pair_signs[2];
        const Words low = of_pair(from, pair_signs[0]);
        const Words high = of_pair(from + kPair * kBytes<kType>, pair_signs[1]);
        signs = Isa::pack_signs(pair_signs[0], pair_signs[1]);
        return Isa::pack_bytes(low, high);
    }

    // The same of bf16 values and a scale whose steps are known. 16 octaves from the first on hold all normal codes;
    // others become more than kLargestCode.
    static FLASHMLA_INLINE Bytes codes_by_steps(const std::uint8_t* from, Bytes& signs, const FlatScale& scale,
                                                Bytes steps) {
        const Words low = load<Words>(from);
        const Words high = load<Words>(from + 2 * kPair);
        signs = Isa::pack_signs(low, high);
        const Bytes mantissa = Isa::pack_bytes(low & 0x7f, high & 0x7f);
        const Bytes exponent = Isa::pack_bytes((low & 0x7fff) >> 7, (high & 0x7fff) >> 7) - scale.first_exponent;
        const Bytes codes = (exponent << 3) + ((Isa::look_up(steps, mantissa >> 3) + (mantissa & 7)) >> 3);
        return codes | reinterpret_cast<Bytes>(exponent > 15);
    }

    template <DType kType>
    static FLASHMLA_INLINE void store_block(std::uint8_t* to, Bytes codes, Bytes signs) {
        const Bytes lanes = Isa::in_order(codes | signs);
        if constexpr (kType == DType::kBFloat16) store(to, lanes);
        if constexpr (kType != DType::kBFloat16) store(to, halves_in_turn(lanes, std::make_index_sequence<kBlock>()));
    }

    template <std::size_t... kIndex>
    static FLASHMLA_INLINE Bytes halves_in_turn(Bytes codes, std::index_sequence<kIndex...>) {
        return __builtin_shufflevector(codes, codes,
                                       (kIndex / kPair * kPair + kIndex % kLanes * 2 + kIndex % kPair / kLanes)...);
    }

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
            Bytes least = Bytes{} + kLargestCode;
            Bytes most{};
            for (int i = 0; i < few; i += kBlock) {
                Bytes signs;
                const Bytes made = normal(from + i * kBytes<kType>, signs);
                least = made < least ? made : least;
                if constexpr (!kBounded) most = made > most ? made : most;
                store_block<kType>(to + i, made, signs);
            }
            if (!kBounded && Isa::any(reinterpret_cast<Bytes>(most > kLargestCode))) {
                const Float<Isa> divisor = splat<Isa>(scale);
                for (int i = 0; i < few; i += kLanes) {
                    const auto values = Values::template load_values<kType>(from + i * kBytes<kType>);
                    store(to + i, encode_e4m3<Isa>(values / divisor));
                }
            } else if (Isa::any(reinterpret_cast<Bytes>(least < kSmallestNormalCode))) {
                const auto any_codes = [&scaled](const std::uint8_t* values, Words& signs) {
                    const Pair pair = load_pair<kType>(values, signs);
                    return codes({scaled(pair.low), scaled(pair.high)});
                };
                for (int i = 0; i < few; i += kBlock) {
                    Bytes signs;
                    const Bytes made = block_codes<kType>(from + i * kBytes<kType>, signs, any_codes);
                    store_block<kType>(to + i, made, signs);
                }
            }
        }
        return whole;
    }

    // ---- Runs of one scale

    static bool is_power_of_two(float normal) { return (core::float_bits(normal) & 0x7fffff) == 0; }
    static bool within(float scale, float low, float high) { return scale >= low && scale <= high; }

    // Whether bf16 values can stay where they are: no exponent on the way leaves fp32.
    static bool stays_in_place(float scale) { return is_power_of_two(scale) && within(scale, 0x1p-100f, 0x1p100f); }

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
        const auto bias = static_cast<std::uint16_t>(kCodeBias + (core::float_bits(scale) >> 20) - (127 << 3));
        return quantize_whole_blocks<DType::kBFloat16, kBounded>(
            from, count, scale, to,
            [bias](const std::uint8_t* block, Bytes& block_signs) {
                return block_codes<DType::kBFloat16>(block, block_signs,
                                                     [bias](const std::uint8_t* values, Words& signs) {
                                                         signs = load<Words>(values);
                                                         return normal_codes_of_bf16(signs & 0x7fff, bias);
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
                return block_codes<kType>(block, block_signs, [&scaled](const std::uint8_t* values, Words& signs) {
                    const Pair pair = load_pair<kType>(values, signs);
                    return normal_codes({scaled(pair.low), scaled(pair.high)});
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
        if (is_power_of_two(scale) && within(scale, 0x1p-126f, 0x1p126f)) {
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
                    return codes_by_steps(block, signs, scale, steps);
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
                    bits(Values::template load_values<kType>(from + i * kBytes<kType>)) & core::kFloatMagnitude;
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
