// Infinities, NaN and extreme scales: where the oracle is not finite the kernel must not be either, and nowhere else.
#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "core/float_formats.hpp"
#include "cpu/paths.hpp"
#include "reference/decode.hpp"
#include "reference/decode_case.hpp"

namespace flashmla::cpu_tests {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();

enum class Kind { kFinite, kNan, kPositive, kNegative };

Kind kind(double value) {
    if (std::isnan(value)) return Kind::kNan;
    if (std::isinf(value)) return value > 0 ? Kind::kPositive : Kind::kNegative;
    return Kind::kFinite;
}

class SpecialValues : public testing::TestWithParam<CpuPath> {
protected:
    static reference::DecodeSpec spec(std::vector<std::int32_t> lengths, std::int64_t s_q, std::int64_t h_q) {
        reference::DecodeSpec spec;
        spec.lengths = std::move(lengths);
        spec.s_q = s_q;
        spec.h_q = h_q;
        spec.causal = true;
        return spec;
    }
    static std::uint16_t* key(const DecodeArgs& args, std::int64_t request, std::int64_t index) {
        return const_cast<std::uint16_t*>(reference::PagedKeys(args, request, 0).row(index));
    }
    // Holds kinds of values against the oracle everywhere, and finite ones within `tolerance` of the row's largest.
    static void expect_oracle(const DecodeArgs& args, double tolerance) {
        const reference::DecodeResult exact = reference::decode_all(args);
        const auto* out = static_cast<const std::uint16_t*>(args.out.data);
        const auto* lse = static_cast<const float*>(args.lse.data);
        int wrong = 0;
        for (std::size_t i = 0; i < exact.out.size(); ++i) {
            const double got = core::decode_16bit(args.out.dtype, out[i]);
            const bool same = kind(got) == kind(exact.out[i]);
            if (same && (kind(got) != Kind::kFinite || std::abs(got - exact.out[i]) <= tolerance)) continue;
            if (++wrong < 4) ADD_FAILURE() << "out[" << i << "] is " << got << ", the oracle's " << exact.out[i];
        }
        for (std::size_t i = 0; i < exact.lse.size(); ++i) {
            const float want = static_cast<float>(exact.lse[i]);  // may overflow: lse is fp32
            const bool same = kind(lse[i]) == kind(want);
            if (same && (kind(want) != Kind::kFinite || std::abs(lse[i] - want) <= 1e-4 * std::abs(want) + tolerance))
                continue;
            if (++wrong < 4) ADD_FAILURE() << "lse[" << i << "] is " << lse[i] << ", the oracle's " << exact.lse[i];
        }
        EXPECT_EQ(wrong, 0);
    }
};

TEST_P(SpecialValues, ALiveKeyThatARowDoesNotSeeNeverReachesIt) {
    // One panel holds rows of several tokens, so the products would mix a weight of 0 with the hidden value.
    for (std::int64_t heads : {1, 3, 4, 16}) {
        for (std::int32_t length : {6, 64, 65, 131, 2050}) {
            reference::DecodeCase c(spec({length, 20}, 5, heads));
            const DecodeArgs args = c.args();
            ASSERT_TRUE(run(GetParam(), args).ok());
            const std::vector<std::uint16_t> clean = c.out();
            for (float value : {std::nanf(""), static_cast<float>(kInfinity), -static_cast<float>(kInfinity)}) {
                for (std::int64_t d = 0; d < args.q.shape[3]; ++d) {
                    key(args, 0, length - 1)[d] = core::encode_16bit(args.k_cache.dtype, value);
                    key(args, 0, length - 3)[d] = core::encode_16bit(args.k_cache.dtype, value);
                }
                ASSERT_TRUE(run(GetParam(), args).ok());
                for (std::int64_t token = 0; token < 5; ++token) {
                    for (std::int64_t head = 0; head < heads; ++head) {
                        const reference::Row row{0, token, head};
                        const std::uint16_t* got = reference::stored_out(args, row);
                        const std::uint16_t* before = clean.data() + (got - c.out().data());
                        if (token < 2) {
                            EXPECT_TRUE(std::equal(got, got + 512, before)) << heads << " heads, length " << length;
                        } else {
                            EXPECT_TRUE(std::isnan(core::decode_16bit(args.out.dtype, got[7])));
                            EXPECT_TRUE(std::isnan(reference::stored_lse(args, row)));
                        }
                    }
                }
                const std::uint16_t* other = reference::stored_out(args, {1, 0, 0});
                EXPECT_TRUE(std::equal(other, other + 5 * heads * 512, clean.data() + (other - c.out().data())));
            }
        }
    }
}

TEST_P(SpecialValues, OneInfiniteElementOfAKey) {
    for (float value : {static_cast<float>(kInfinity), -static_cast<float>(kInfinity)}) {
        for (std::int64_t column : {std::int64_t{3}, std::int64_t{570}}) {  // part of the value, and not
            reference::DecodeCase c(spec({70, 2200}, 2, 4));
            const DecodeArgs args = c.args();
            key(args, 0, 10)[column] = core::encode_16bit(args.k_cache.dtype, value);
            key(args, 1, 2100)[column] = core::encode_16bit(args.k_cache.dtype, value);
            ASSERT_TRUE(run(GetParam(), args).ok());
            expect_oracle(args, 0.05);
        }
    }
}

TEST_P(SpecialValues, EveryLogitMinusInfinity) {
    reference::DecodeCase c(spec({70}, 1, 4));
    const DecodeArgs args = c.args();
    for (std::int64_t head = 0; head < 4; ++head) {
        const_cast<std::uint16_t*>(reference::query_row(args, {0, 0, head}))[575] = core::float_to_bf16(1);
    }
    for (std::int64_t k = 0; k < 70; ++k) key(args, 0, k)[575] = core::float_to_bf16(-static_cast<float>(kInfinity));
    ASSERT_TRUE(run(GetParam(), args).ok());
    expect_oracle(args, 0);
    // All but one: that one takes everything.
    key(args, 0, 66)[575] = core::float_to_bf16(1);
    ASSERT_TRUE(run(GetParam(), args).ok());
    expect_oracle(args, 0.02);
}

TEST_P(SpecialValues, AnyScaleIsHonored) {
    const double huge = std::numeric_limits<float>::max();
    for (double scale : {0.0, -0.0, -0.05, 1e-30, 1e-42, 1.0, -30.0, 1e6, -1e20, huge, -huge}) {
        reference::DecodeSpec base = spec({300, 0, 65, 2100}, 3, 4);
        base.has_softmax_scale = true;
        base.softmax_scale = 0.05;  // data are made for this one
        reference::DecodeCase c(base);
        DecodeArgs args = c.args();
        args.softmax_scale = scale;
        ASSERT_TRUE(run(GetParam(), args).ok());
        SCOPED_TRACE(scale);
        expect_oracle(args, 0.02);
    }
}

INSTANTIATE_TEST_SUITE_P(Paths, SpecialValues, testing::ValuesIn(cpu_paths()),
                         [](const testing::TestParamInfo<CpuPath>& info) { return info.param.name; });

}  // namespace
}  // namespace flashmla::cpu_tests
