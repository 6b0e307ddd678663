// The functions of CacheKernels as templates over the vectors of an instruction set: whole vectors, then the rest value
// by value with the same arithmetic.
#pragma once

#include "backends/cpu/cache_kernels.hpp"
#include "backends/cpu/fp8_vector.hpp"
#include "core/kv_quantize.hpp"

namespace flashmla::backends::cpu {

// Isa: kLanes, decode_fp16(from), decode_e4m3(from), encode_fp16(Float), low_bytes(Uint) for lanes below 256,
// pack(Uint, Uint): their low 16 bits, for lanes below 65536, one after the other,
// any_below(Words, Words): whether a lane of the first is below the second's,
// signed_codes(codes, codes, signs, signs): the low bytes of two vectors of 16-bit lanes, with the top bits of two
// others.
template <class Isa>
struct CacheValues {
    static constexpr int kLanes = Isa::kLanes;
    static constexpr int kPair = 2 * kLanes;  // values whose 16-bit codes fill a vector

    static FLASHMLA_INLINE Uint<Isa> bits(Float<Isa> value) { return reinterpret_cast<Uint<Isa>>(value); }
    static FLASHMLA_INLINE Float<Isa> value(Uint<Isa> bits) { return reinterpret_cast<Float<Isa>>(bits); }

    static bool is_power_of_two(float normal) { return (core::float_bits(normal) & 0x7fffff) == 0; }

    // ---- Values of the three types

    template <DType kType>
    static FLASHMLA_INLINE Float<Isa> load_values(const std::uint8_t* from) {
        if constexpr (kType == DType::kFloat32) return load<Float<Isa>>(from);
        if constexpr (kType == DType::kBFloat16) return decode_bf16<Isa>(from);
        if constexpr (kType == DType::kFloat16) return Isa::decode_fp16(from);
    }

    template <DType kType>
    static FLASHMLA_INLINE float load_value(const std::uint8_t* from) {
        if constexpr (kType == DType::kFloat32) return core::load_unaligned<float>(from);
        if constexpr (kType != DType::kFloat32) {
            return core::decode_16bit(kType, core::load_unaligned<std::uint16_t>(from));
        }
    }

    // Two vectors, one after the other. `kExact`: they are values of the type.
    template <DType kType, bool kExact = false>
    static FLASHMLA_INLINE void store_pair(std::uint8_t* to, Float<Isa> low, Float<Isa> high) {
        if constexpr (kType == DType::kFloat32) {
            store(to, low);
            store(to + sizeof(low), high);
        }
        if constexpr (kType == DType::kBFloat16 && kExact) store(to, Isa::pack(bits(low) >> 16, bits(high) >> 16));
        if constexpr (kType == DType::kBFloat16 && !kExact) {
            store(to, Isa::pack(round_to_bf16<Isa>(low), round_to_bf16<Isa>(high)));
        }
        if constexpr (kType == DType::kFloat16) {
            store(to, Half<Isa>(Isa::encode_fp16(low)));
            store(to + sizeof(Half<Isa>), Half<Isa>(Isa::encode_fp16(high)));
        }
    }

    template <DType kType>
    static FLASHMLA_INLINE void store_value(std::uint8_t* to, float value) {
        if constexpr (kType == DType::kFloat32) core::store_unaligned(to, value);
        if constexpr (kType != DType::kFloat32) core::store_unaligned(to, core::encode_16bit(kType, value));
    }

    // Calls work<type>() for one of the three.
    template <class Work>
    static FLASHMLA_INLINE auto with_type(DType dtype, const Work& work) {
        switch (dtype) {
            case DType::kBFloat16: return work.template operator()<DType::kBFloat16>();
            case DType::kFloat16: return work.template operator()<DType::kFloat16>();
            default: return work.template operator()<DType::kFloat32>();
        }
    }

    template <DType kType>
    static constexpr int kBytes = static_cast<int>(size_bytes(kType));

    static void cast(DType from_type, const std::uint8_t* from, int count, DType to_type, std::uint8_t* to) {
        if (count == 0) return;  // a part of no width may have no address
        if (from_type == to_type) {
            __builtin_memcpy(to, from, size_bytes(to_type) * static_cast<std::size_t>(count));
            return;
        }
        with_type(from_type, [&]<DType kFrom>() {
            with_type(to_type, [&]<DType kTo>() {
                int i = 0;
                for (; i + kPair <= count; i += kPair) {
                    store_pair<kTo>(to + i * kBytes<kTo>, load_values<kFrom>(from + i * kBytes<kFrom>),
                                    load_values<kFrom>(from + (i + kLanes) * kBytes<kFrom>));
                }
                for (; i < count; ++i) {
                    store_value<kTo>(to + i * kBytes<kTo>, load_value<kFrom>(from + i * kBytes<kFrom>));
                }
            });
        });
    }

    // ---- Quantising

    // Two vectors of values at a time, because their codes then fit the 16-bit lanes of one. bf16 comes as the even and
    // the odd values, the other types as the first and the second half.
    using Words = typename Lanes<kPair>::Half;

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
            const Uint<Isa> low = bits(load_values<kType>(from));
            const Uint<Isa> high = bits(load_values<kType>(from + kLanes * kBytes<kType>));
            signs = reinterpret_cast<Words>((low >> 16) | (high & 0xffff0000u));
            return {value(low & core::kFloatMagnitude), value(high & core::kFloatMagnitude)};
        }
    }

    // The following three take the magnitudes of finite values that are within 448 after scaling, and do without what
    // encode_e4m3 spends on others.

    // units: 0 to 16 of them, above 8 times the exponent.
    static FLASHMLA_INLINE Uint<Isa> units_and_exponent(Float<Isa> scaled) {
        Int<Isa> exponent = reinterpret_cast<Int<Isa>>(scaled) & 0x7f800000;
        exponent = exponent > kSmallestE4m3Exponent ? exponent : Int<Isa>{} + kSmallestE4m3Exponent;
        const auto shifter = reinterpret_cast<Float<Isa>>(exponent + (20 << 23));
        return bits(scaled + shifter) + reinterpret_cast<Uint<Isa>>(exponent >> 20);
    }

    template <std::size_t... kIndex>
    static FLASHMLA_INLINE Words low_halves(Uint<Isa> low, Uint<Isa> high, std::index_sequence<kIndex...>) {
        return __builtin_shufflevector(reinterpret_cast<Words>(low), reinterpret_cast<Words>(high << 16),
                                       (kIndex + kIndex % 2 * kPair)...);
    }
    static FLASHMLA_INLINE Words low_halves(Uint<Isa> low, Uint<Isa> high) {
        return low_halves(low, high, std::make_index_sequence<kPair>());
    }

    static FLASHMLA_INLINE Words codes_of(const Pair& scaled) {
        return low_halves(units_and_exponent(scaled.low), units_and_exponent(scaled.high)) -
               static_cast<std::uint16_t>(kSmallestE4m3Exponent >> 20);
    }

    // Of bf16 magnitudes divided by 2^(smallest - 121), whose exponent is that much smaller: `smallest` becomes that of
    // the smallest normal code, and nothing is scaled.
    static FLASHMLA_INLINE Words codes_of_bf16(Words magnitudes, std::uint16_t smallest) {
        const Words lowest = Words{} + static_cast<std::uint16_t>(smallest << 7);
        Words exponent = magnitudes & 0x7f80;
        exponent = exponent > lowest ? exponent : lowest;
        const auto shifters = reinterpret_cast<Uint<Isa>>(exponent + (20 << 7));
        const auto pairs = reinterpret_cast<Uint<Isa>>(magnitudes);
        const Float<Isa> low = value(pairs << 16) + value(shifters << 16);
        const Float<Isa> high = value(pairs & 0xffff0000u) + value(shifters & 0xffff0000u);
        return low_halves(bits(low), bits(high)) + ((exponent - lowest) >> 4);
    }

    // Two vectors of codes at a time, because they become one of bytes. `codes(from, signs)` makes one.
    template <DType kType, class Codes>
    static FLASHMLA_INLINE int quantize_blocks(const std::uint8_t* from, int count, std::uint8_t* to,
                                               const Codes& codes) {
        int i = 0;
        for (; i + 2 * kPair <= count; i += 2 * kPair, from += 2 * kPair * kBytes<kType>) {
            Words signs[2];
            const Words low = codes(from, signs[0]);
            const Words high = codes(from + kPair * kBytes<kType>, signs[1]);
            const typename ByteLanes<2 * kPair>::Byte bytes = Isa::signed_codes(low, high, signs[0], signs[1]);
            if constexpr (kType == DType::kBFloat16) {
                store(to + i, bytes);
            } else {
                store(to + i, in_order(bytes, std::make_index_sequence<2 * kPair>()));
            }
        }
        return i;
    }

    template <class Byte, std::size_t... kIndex>
    static FLASHMLA_INLINE Byte in_order(Byte codes, std::index_sequence<kIndex...>) {
        return __builtin_shufflevector(codes, codes,
                                       (kIndex / kPair * kPair + kIndex % kLanes * 2 + kIndex % kPair / kLanes)...);
    }

    // Any values.
    template <DType kType, class Scaled>
    static FLASHMLA_INLINE int quantize_any(const std::uint8_t* from, int count, std::uint8_t* to,
                                            const Scaled& scaled) {
        int i = 0;
        for (; i + kLanes <= count; i += kLanes) {
            store(to + i, encode_e4m3<Isa>(scaled(load_values<kType>(from + i * kBytes<kType>))));
        }
        return i;
    }

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

    // Whether codes_of_bf16 does: no exponent leaves fp32.
    static FLASHMLA_INLINE bool codes_in_place(float scale, std::uint32_t largest) {
        return is_power_of_two(scale) && scale >= 0x1p-100f && scale <= 0x1p100f &&
               largest < core::float_bits(0x1p100f);
    }

    // A few blocks at a time: as if all codes were normal, which takes half the work, then once more if one is not.
    static FLASHMLA_INLINE int quantize_in_place(const std::uint8_t* from, int count, float scale, std::uint8_t* to) {
        constexpr int kFew = 8 * kPair;
        const auto smallest = static_cast<std::uint16_t>((core::float_bits(scale) >> 23) - 6);
        const Words lowest = Words{} + static_cast<std::uint16_t>(smallest << 7);
        const Words bias = Words{} + static_cast<std::uint16_t>((smallest - 1) << 3);
        int done = 0;
        while (count - done >= 2 * kPair) {
            const std::uint8_t* values = from + 2 * done;
            Words least = Words{} + 0x7fff;
            const int few = core::min_of(kFew, count - done);
            const int step = quantize_blocks<DType::kBFloat16>(
                values, few, to + done, [&least, bias](const std::uint8_t* at, Words& signs) {
                    signs = load<Words>(at);
                    const Words magnitudes = signs & 0x7fff;
                    least = magnitudes < least ? magnitudes : least;
                    return ((magnitudes + 7 + ((magnitudes >> 4) & 1)) >> 4) - bias;
                });
            if (Isa::any_below(least, lowest)) {
                quantize_blocks<DType::kBFloat16>(values, few, to + done,
                                                  [smallest](const std::uint8_t* at, Words& signs) {
                                                      signs = load<Words>(at);
                                                      return codes_of_bf16(signs & 0x7fff, smallest);
                                                  });
            }
            done += step;
        }
        return done;
    }

    // `largest`: the largest magnitude, as fp32 bits.
    template <DType kType>
    static FLASHMLA_INLINE void quantize_run(const std::uint8_t* from, int count, float scale, std::uint32_t largest,
                                             std::uint8_t* to) {
        int i = 0;
        const bool within_range =
            largest < core::kFloatInfinity && core::float_from_bits(largest) / scale <= core::kE4m3Max;
        const auto run = [&](const auto& scaled) {
            if (within_range) {
                i = quantize_blocks<kType>(from, count, to, [&](const std::uint8_t* values, Words& signs) {
                    const Pair pair = load_pair<kType>(values, signs);
                    return codes_of({scaled(pair.low), scaled(pair.high)});
                });
            } else {
                i = quantize_any<kType>(from, count, to, scaled);
            }
        };
        const bool power_of_two = is_power_of_two(scale) && scale <= 0x1p126f && scale >= 0x1p-126f;
        if (kType == DType::kBFloat16 && within_range && codes_in_place(scale, largest)) {
            i = quantize_in_place(from, count, scale, to);
        } else if (power_of_two) {
            // Dividing by a power of two and multiplying with its reciprocal are the same real number, rounded once.
            // (Its reciprocal is a normal number for every scale that a finite amax gives.)
            const Float<Isa> factor = splat<Isa>(1.0f / scale);
            run([factor](Float<Isa> values) { return values * factor; });
        } else {
            const Float<Isa> divisor = splat<Isa>(scale);
            run([divisor](Float<Isa> values) { return values / divisor; });
        }
        for (; i < count; ++i) to[i] = core::quantize(load_value<kType>(from + i * kBytes<kType>), scale);
    }

    // Largest magnitude as fp32 bits; NaN and infinity count as more than any finite one, or not at all.
    template <DType kType, bool kFiniteOnly>
    static FLASHMLA_INLINE std::uint32_t largest_magnitude(const std::uint8_t* from, int count) {
        Uint<Isa> largest{};
        int i = 0;
        if constexpr (kType == DType::kBFloat16 && !kFiniteOnly) {
            Words words{};
#pragma GCC unroll 4
            for (; i + kPair <= count; i += kPair) {
                const Words magnitude = load<Words>(from + 2 * i) & 0x7fff;
                words = magnitude > words ? magnitude : words;
            }
            const auto pairs = reinterpret_cast<Uint<Isa>>(words);
            largest = (pairs << 16) > (pairs & 0xffff0000u) ? pairs << 16 : pairs & 0xffff0000u;
        } else {
            for (; i + kLanes <= count; i += kLanes) {
                Uint<Isa> magnitude = bits(load_values<kType>(from + i * kBytes<kType>)) & core::kFloatMagnitude;
                if constexpr (kFiniteOnly) magnitude = magnitude < core::kFloatInfinity ? magnitude : Uint<Isa>{};
                largest = magnitude > largest ? magnitude : largest;
            }
        }
        std::uint32_t result = largest_lane(largest);
        for (; i < count; ++i) {
            const std::uint32_t magnitude =
                core::float_bits(load_value<kType>(from + i * kBytes<kType>)) & core::kFloatMagnitude;
            if (!kFiniteOnly || magnitude < core::kFloatInfinity) result = core::max_of(result, magnitude);
        }
        return result;
    }

    static void quantize(DType from_type, const std::uint8_t* from, int count, float scale, std::uint8_t* to) {
        with_type(from_type, [&]<DType kFrom>() {
            quantize_run<kFrom>(from, count, scale, largest_magnitude<kFrom, false>(from, count), to);
        });
    }

    // First all scales, then all codes: codes that wait for a scale would fill the core's queues and keep it from the
    // next group's values.
    static void quantize_groups(const GroupedValues& from, float* scales, std::uint8_t* to) {
        with_type(from.dtype, [&]<DType kFrom>() {
            const int step = from.group * kBytes<kFrom>;
            std::uint32_t largest[kMaxGroups];
            bool in_place = kFrom == DType::kBFloat16 && from.group % (2 * kPair) == 0;
            for (int group = 0; group < from.groups; ++group) {
                const std::uint8_t* values = from.data + group * step;
                largest[group] = largest_magnitude<kFrom, false>(values, from.group);
                const std::uint32_t finite = largest[group] < core::kFloatInfinity
                                                 ? largest[group]
                                                 : largest_magnitude<kFrom, true>(values, from.group);
                scales[group] = core::quantizer_scale(core::float_from_bits(finite), from.power_of_two);
                in_place = in_place && codes_in_place(scales[group], largest[group]);
            }
            if (in_place) {  // the usual case in a loop of its own, whose constants stay in registers
                for (int group = 0; group < from.groups; ++group) {
                    quantize_in_place(from.data + group * step, from.group, scales[group], to + group * from.group);
                }
                return;
            }
            for (int group = 0; group < from.groups; ++group) {
                quantize_run<kFrom>(from.data + group * step, from.group, scales[group], largest[group],
                                    to + group * from.group);
            }
        });
    }

    template <DType kTo, bool kExact>
    static FLASHMLA_INLINE int dequantize_pairs(const std::uint8_t* from, int count, float scale, std::uint8_t* to) {
        const Float<Isa> factor = splat<Isa>(scale);
        int i = 0;
        for (; i + kPair <= count; i += kPair) {
            store_pair<kTo, kExact>(to + i * kBytes<kTo>, Isa::decode_e4m3(from + i) * factor,
                                    Isa::decode_e4m3(from + i + kLanes) * factor);
        }
        return i;
    }

    static void dequantize(const std::uint8_t* from, int count, float scale, DType to_type, std::uint8_t* to) {
        with_type(to_type, [&]<DType kTo>() {
            // Four mantissa bits times a power of two need no rounding to bf16.
            const bool exact = is_power_of_two(scale) && scale <= 0x1p100f && scale >= 0x1p-100f;
            int i = kTo == DType::kBFloat16 && exact ? dequantize_pairs<kTo, true>(from, count, scale, to)
                                                     : dequantize_pairs<kTo, false>(from, count, scale, to);
            for (; i < count; ++i) store_value<kTo>(to + i * kBytes<kTo>, core::e4m3_to_float(from[i]) * scale);
        });
    }
};

template <class Isa>
constexpr CacheKernels make_cache_kernels() {
    return {.cast = &CacheValues<Isa>::cast,
            .quantize = &CacheValues<Isa>::quantize,
            .quantize_groups = &CacheValues<Isa>::quantize_groups,
            .dequantize = &CacheValues<Isa>::dequantize};
}

}  // namespace flashmla::backends::cpu
