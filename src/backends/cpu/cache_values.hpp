// Runs of values between their types, and from e4m3, as templates over the vectors of an instruction set: whole
// vectors, then the rest value by value with the same arithmetic. cache_quantize.hpp has the way to e4m3.
#pragma once

#include "backends/cpu/fp8_vector.hpp"
#include "core/float_formats.hpp"
#include "core/kv_record.hpp"

namespace flashmla::backends::cpu {

// Isa: kLanes, decode_fp16(from), decode_e4m3(from), encode_fp16(Float),
// pack(Uint, Uint): their low 16 bits, for lanes below 65536, one after the other.
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

}  // namespace flashmla::backends::cpu
