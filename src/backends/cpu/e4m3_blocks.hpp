// Blocks of values as e4m3 codes, templates over the vectors of an instruction set: from magnitudes to codes, and from
// codes with their signs to bytes in order.
#pragma once

#include "backends/cpu/cache_kernels.hpp"
#include "backends/cpu/cache_values.hpp"

namespace flashmla::backends::cpu {

// Isa: what CacheValues wants, and of 16-bit lanes
// pack_bytes(Words, Words): signed lanes as bytes, 0 and 255 where they are outside, in an order of its own,
// pack_signs(Words, Words): top bits of lanes as top bits of bytes, in the same order,
// in_order(Bytes): such bytes in the order of the lanes,
// any(Bytes): whether a bit is set,
// repeated(bytes): 16 bytes, again and again; look_up(Bytes, Bytes): of such a vector, the bytes at the indices.
template <class Isa>
struct E4m3Blocks {
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
};

}  // namespace flashmla::backends::cpu
