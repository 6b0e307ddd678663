// The error bound against a small model of a kernel: fp32 arithmetic, key tiles, online softmax, splits and their
// merge, with weights rounded as the backends round them. Correct arithmetic must stay inside the bound on all data;
// each of the defects of core/planted_fault.hpp must leave it.
#include "reference/error_bound.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <string>
#include <vector>

#include "core/causal.hpp"
#include "core/float_formats.hpp"
#include "core/planted_fault.hpp"
#include "core/softmax_state.hpp"
#include "reference/compare.hpp"
#include "reference/decode_case.hpp"

namespace flashmla::reference {
namespace {

using core::PlantedFault;

struct ModelKernel {
    RoundingModel rounding;
    float lag = 0;  // base 2: the reference maximum moves only when a tile exceeds it by more
    PlantedFault fault = PlantedFault::kNone;
    int key_tile = 64;
    int split_keys = 128;
};

struct Part {
    std::vector<float> sums;
    core::SoftmaxState state;
};

float rounded_to(DType dtype, float value) {
    return dtype == DType::kFloat32 ? value : core::decode_16bit(dtype, core::encode_16bit(dtype, value));
}

class ModelRun {
public:
    ModelRun(const ModelKernel& kernel, const DecodeArgs& args, const Row& row)
        : kernel_(kernel),
          args_(args),
          row_(row),
          keys_(args, row.request, row.head / (args.q.shape[2] / args.k_cache.shape[2])) {}

    void operator()() const {
        const int length = request_length(args_, row_.request);
        int visible =
            core::visible_keys(length, static_cast<int>(args_.q.shape[1]), static_cast<int>(row_.token), args_.causal);
        if (kernel_.fault == PlantedFault::kMaskOffByOne && args_.causal) visible = std::min(visible + 1, length);
        if (kernel_.fault == PlantedFault::kTailNotMasked) visible = core::ceil_div(visible, 16) * 16;
        std::vector<Part> parts;
        for (int begin = 0; begin < visible; begin += kernel_.split_keys) {
            parts.push_back(attend(begin, std::min(visible, begin + kernel_.split_keys)));
        }
        if (kernel_.fault == PlantedFault::kSplitMergedTwice && parts.size() > 1) parts.push_back(parts.front());
        store(parts);
    }

private:
    const std::uint16_t* key_row(int key) const {
        if (kernel_.fault != PlantedFault::kWrongPageStride) return keys_.row(key);
        DecodeArgs packed = args_;
        packed.k_cache.stride[0] = args_.k_cache.shape[1] * args_.k_cache.stride[1];
        return PagedKeys(packed, row_.request, 0).row(key);
    }

    float score(int key) const {
        const std::uint16_t* q = query_row(args_, row_);
        const std::uint16_t* k = key_row(key);
        float dot = 0;
        for (std::int64_t i = 0; i < args_.q.shape[3]; ++i) {
            dot += core::decode_16bit(args_.q.dtype, q[i]) * core::decode_16bit(args_.q.dtype, k[i]);
        }
        return dot * (static_cast<float>(softmax_scale(args_)) * core::kLog2E);
    }

    Part attend(int begin, int end) const {
        Part part{std::vector<float>(args_.out.shape[3]), {}};
        for (int tile = begin; tile < end; tile += kernel_.key_tile) {
            const int tile_end = std::min(end, tile + kernel_.key_tile);
            std::vector<float> scores;
            for (int j = tile; j < tile_end; ++j) scores.push_back(score(j));
            rescale(part, *std::max_element(scores.begin(), scores.end()));
            for (int j = tile; j < tile_end; ++j) add(part, scores[j - tile], j);
        }
        return part;
    }

    void rescale(Part& part, float tile_max) const {
        if (!(tile_max > part.state.max + kernel_.lag)) return;
        const float factor = core::rescale_factor(part.state.max, tile_max);
        part.state.max = tile_max;
        part.state.sum *= factor;
        if (kernel_.fault == PlantedFault::kRescaleSkipped) return;
        for (float& sum : part.sums) sum *= factor;
    }

    void add(Part& part, float score, int key) const {
        const float weight = std::exp2(score - part.state.max);
        const float used = rounded_to(kernel_.rounding.weights, weight);
        part.state.sum += kernel_.rounding.sum_of_rounded_weights ? used : weight;
        const std::uint16_t* value = key_row(key);
        for (std::size_t d = 0; d < part.sums.size(); ++d)
            part.sums[d] += used * core::decode_16bit(args_.q.dtype, value[d]);
    }

    void store(const std::vector<Part>& parts) const {
        float max = -core::kFloatInf;
        for (const Part& part : parts) max = core::max_lse2(max, core::lse2(part.state));
        float total = 0;
        std::vector<float> out(args_.out.shape[3]);
        for (const Part& part : parts) {
            const float weight = core::partial_weight(core::lse2(part.state), max);
            total += weight;
            for (std::size_t d = 0; d < out.size(); ++d) {
                out[d] = core::add_weighted(out[d], weight,
                                            rounded_to(kernel_.rounding.partials, part.sums[d] / part.state.sum));
            }
        }
        for (std::size_t d = 0; d < out.size(); ++d) {
            stored_out(args_, row_)[d] = core::encode_16bit(args_.out.dtype, total > 0 ? out[d] / total : 0);
        }
        stored_lse(args_, row_) = core::natural_lse(core::lse2({max, total}));
    }

    const ModelKernel& kernel_;
    const DecodeArgs& args_;
    Row row_;
    PagedKeys keys_;
};

Comparison run_model(const DecodeSpec& spec, const ModelKernel& kernel) {
    const DecodeCase c(spec);
    const DecodeArgs args = c.args();
    const auto rows = sample_rows(args, 0, 0);
    for (const Row& row : rows) ModelRun(kernel, args, row)();
    return compare_rows(args, rows, kernel.rounding);
}

DecodeSpec spec_of(double deviation, KeyOrder order, DType dtype) {
    DecodeSpec spec;
    spec.lengths = {500, 0, 65, 1};
    spec.s_q = 2;
    spec.h_q = 2;
    spec.causal = true;
    spec.pool_layers = 3;
    spec.logit_std = deviation;
    spec.keys = order;
    spec.dtype = dtype;
    return spec;
}

// The rounding points of the backends there are or will be.
std::vector<ModelKernel> kernels(DType dtype) {
    RoundingModel rounded_sum = matrix_unit_model(dtype);
    rounded_sum.sum_of_rounded_weights = true;
    RoundingModel half_partials = matrix_unit_model(dtype);
    half_partials.partials = DType::kFloat16;
    return {{.rounding = fp32_model(128)},
            {.rounding = matrix_unit_model(dtype, 128)},
            {.rounding = matrix_unit_model(dtype), .lag = 8},
            {.rounding = rounded_sum, .lag = 8},
            {.rounding = half_partials}};
}

template <class Check>
void for_all_data(Check check) {
    for (const double deviation : {0.01, 1.0, 8.0, 50.0}) {
        for (const KeyOrder order : {KeyOrder::kRandom, KeyOrder::kRising, KeyOrder::kDominantLast}) {
            for (const DType dtype : {DType::kBFloat16, DType::kFloat16}) check(spec_of(deviation, order, dtype));
        }
    }
}

TEST(ErrorBound, HoldsForCorrectArithmeticOnAllData) {
    for_all_data([](const DecodeSpec& spec) {
        for (const ModelKernel& kernel : kernels(spec.dtype)) {
            const Comparison comparison = run_model(spec, kernel);
            EXPECT_TRUE(comparison.passed) << describe(spec) << "\n  " << comparison.message;
        }
    });
}

// Each defect in the data that brings it out, for every kernel and every logit deviation at which it changes the result
// by more than the output's own rounding: with a deviation of 0.01 a rescale factor is 1 to within a quarter of a
// percent.
void expect_seen(PlantedFault fault, KeyOrder order) {
    for_all_data([&](const DecodeSpec& spec) {
        if (spec.keys != order || (fault == PlantedFault::kRescaleSkipped && spec.logit_std < 1)) return;
        for (ModelKernel kernel : kernels(spec.dtype)) {
            kernel.fault = fault;
            if (fault == PlantedFault::kRescaleSkipped) kernel.lag = 0;
            EXPECT_FALSE(run_model(spec, kernel).passed) << describe(spec);
        }
    });
}

TEST(ErrorBound, ASkippedRescaleIsSeen) { expect_seen(PlantedFault::kRescaleSkipped, KeyOrder::kRising); }
TEST(ErrorBound, AMaskOffByOneIsSeen) { expect_seen(PlantedFault::kMaskOffByOne, KeyOrder::kRandom); }
TEST(ErrorBound, ASplitMergedTwiceIsSeen) { expect_seen(PlantedFault::kSplitMergedTwice, KeyOrder::kRandom); }
TEST(ErrorBound, AnUnmaskedTailIsSeen) { expect_seen(PlantedFault::kTailNotMasked, KeyOrder::kRandom); }
TEST(ErrorBound, AWrongPageStrideIsSeen) { expect_seen(PlantedFault::kWrongPageStride, KeyOrder::kRandom); }

TEST(RoundingModel, OnlyOneCpuPathRoundsWeightsAndOnlyWhereKeysAreBf16Values) {
    EXPECT_EQ(cpu_model("avx512_bf16", DType::kBFloat16).weights, DType::kBFloat16);
    EXPECT_EQ(cpu_model("avx512_bf16", DType::kFloat16).weights, DType::kFloat32);
    for (const CacheFormat format : kAllCacheFormats) {
        EXPECT_EQ(cpu_model("avx512_bf16", DType::kBFloat16, kNoLimit, format).weights,
                  format == CacheFormat::kFp8_656 ? DType::kFloat32 : DType::kBFloat16);
    }
    EXPECT_EQ(cpu_model("avx512", DType::kBFloat16).weights, DType::kFloat32);
    EXPECT_EQ(cpu_model("avx2", DType::kBFloat16, 2048).longest_sum, 2048);
}

TEST(ErrorBound, AnEmptyRowHasNoTolerance) {
    DecodeSpec spec = spec_of(1, KeyOrder::kRandom, DType::kBFloat16);
    const DecodeCase c(spec);
    const Row empty{1, 0, 0};
    const RowBound bound = error_bound(c.args(), empty, decode_row(c.args(), empty), fp32_model());
    EXPECT_EQ(bound.lse, 0);
    EXPECT_EQ(*std::max_element(bound.out.begin(), bound.out.end()), 0);
}

TEST(ErrorBound, OneKeyLeavesLittleMoreThanTheRoundingOfTheOutput) {
    const DecodeCase c(spec_of(1, KeyOrder::kRandom, DType::kBFloat16));
    const Row row{3, 1, 0};
    const RowResult exact = decode_row(c.args(), row);
    ASSERT_EQ(exact.scores.size(), 1u);
    const RowBound bound = error_bound(c.args(), row, exact, fp32_model());
    for (std::size_t d = 0; d < bound.out.size(); ++d) {
        EXPECT_LE(bound.out[d], 0x1.1p-8 * std::abs(exact.out[d]) + 0x1p-126);
    }
}

TEST(ErrorBound, UnresolvableLogitsGiveNoFiniteBound) {
    DecodeSpec spec = spec_of(1e5, KeyOrder::kRandom, DType::kBFloat16);
    const DecodeCase c(spec);
    const Row row{0, 1, 0};
    EXPECT_TRUE(std::isinf(error_bound(c.args(), row, decode_row(c.args(), row), fp32_model()).lse));
}

}  // namespace
}  // namespace flashmla::reference
