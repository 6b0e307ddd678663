// 10,000 seeded calls with one to three fields changed at random: each is served, or refused with a message and no
// write.
#include <gtest/gtest.h>

#include <cstdint>
#include <iterator>
#include <limits>
#include <random>
#include <string>
#include <utility>

#include "unit/api/api_case.hpp"

namespace flashmla::test {
namespace {

constexpr int kCases = 10'000;

class Mutator {
public:
    explicit Mutator(std::uint64_t seed) : random_(seed) {}

    int below(int n) { return static_cast<int>(random_() % static_cast<std::uint64_t>(n)); }

    void mutate(DecodeArgs& args) {
        for (int i = below(3); i >= 0; --i) mutate_once(args);
    }

private:
    std::int64_t wild(std::int64_t near) {
        near %= std::int64_t{1} << 40;  // an earlier mutation may have made it huge
        const std::int64_t values[] = {near - 1,
                                       near + 1,
                                       -near,
                                       0,
                                       1,
                                       -1,
                                       2 * near,
                                       std::numeric_limits<std::int64_t>::max(),
                                       std::numeric_limits<std::int64_t>::min(),
                                       std::int64_t{1} << 32,
                                       (std::int64_t{1} << 31) - 1,
                                       static_cast<std::int64_t>(random_() % 1000)};
        return values[below(static_cast<int>(std::size(values)))];
    }

    TensorView& any_tensor(DecodeArgs& args) {
        TensorView* views[] = {&args.q,   &args.k_cache, &args.block_table, &args.cache_seqlens, &args.cu_seqlens_k,
                               &args.out, &args.lse};
        return *views[below(static_cast<int>(std::size(views)))];
    }

    void mutate_once(DecodeArgs& args) {
        TensorView& view = any_tensor(args);
        const auto axis = static_cast<std::size_t>(below(kMaxRank));
        switch (below(11)) {
            case 0: view.rank = below(8) - 2; break;
            case 1: view.dtype = static_cast<DType>(below(6)); break;
            case 2: view.device = {static_cast<DeviceType>(below(2)), below(3) - 1}; break;
            case 3: view.data = nullptr; break;
            case 4: view.data = static_cast<std::byte*>(view.data) + (view.data == nullptr ? 0 : below(4)); break;
            case 5:
            case 6: view.shape[axis] = wild(view.shape[axis]); break;
            case 7: view.stride[axis] = wild(view.stride[axis]); break;
            case 8: std::swap(view, any_tensor(args)); break;
            case 9: args.causal = !args.causal; break;
            default: args.has_softmax_scale = true; args.softmax_scale = static_cast<double>(wild(1));
        }
    }

    std::mt19937_64 random_;
};

struct Range {
    std::uintptr_t begin = 0;
    std::uintptr_t end = 0;
    template <class T>
    static Range of(const std::vector<T>& buffer) {
        const auto begin = reinterpret_cast<std::uintptr_t>(buffer.data());
        return {begin, begin + buffer.size() * sizeof(T)};
    }
};

// Whether every element that an accepted view describes lies in one of the case's buffers. The library cannot know how
// large the caller's memory is, so an accepted call that reaches past it is checked but not run.
bool lies_in(const TensorView& view, const Range& range) {
    std::int64_t last = 0;
    for (int axis = 0; axis < view.rank; ++axis) {
        const auto i = static_cast<std::size_t>(axis);
        if (view.shape[i] == 0) return true;
        if (view.shape[i] > 1) last += (view.shape[i] - 1) * view.stride[i];  // fits: the check has passed
    }
    const auto begin = reinterpret_cast<std::uintptr_t>(view.data);
    const std::uint64_t bytes = (static_cast<std::uint64_t>(last) + 1) * size_bytes(view.dtype);
    return begin >= range.begin && begin <= range.end && bytes <= range.end - begin;
}

bool may_run(reference::DecodeCase& call, const DecodeArgs& args) {
    const TensorView& lengths = args.cache_seqlens.rank != 0 ? args.cache_seqlens : args.cu_seqlens_k;
    return lies_in(args.q, Range::of(call.q())) && lies_in(args.k_cache, Range::of(call.pool())) &&
           lies_in(args.block_table, Range::of(call.table())) && lies_in(lengths, Range::of(call.lengths())) &&
           lies_in(args.out, Range::of(call.out())) && lies_in(args.lse, Range::of(call.lse()));
}

TEST(MutatedArguments, AreServedOrRefusedInWords) {
    ApiCase api;
    PlanOptions one_thread;
    one_thread.num_workers = 1;
    const DecodePlan plan = cpu_plan(api.args(), one_thread);
    const Workspace workspace(plan.workspace_bytes);
    int refused = 0;
    int served = 0;
    for (int i = 0; i < kCases; ++i) {
        SCOPED_TRACE("seed " + std::to_string(i + 1));
        DecodeArgs args = api.args();
        Mutator mutator(static_cast<std::uint64_t>(i) + 1);
        mutator.mutate(args);

        // Half of the calls follow the good one, so that run_decode compares them with what it remembers of that.
        if (mutator.below(2) == 0) {
            ASSERT_TRUE(run_decode(plan, api.args(), workspace.data(), plan.workspace_bytes).ok());
            api.decode_case().reset_outputs();
        }
        const Result<DecodeShape> shape = decode_shape(args);
        if (shape.ok() && args.q.device == Device{} && !may_run(api.decode_case(), args)) continue;
        // With the case's own plan (which mostly does not fit the mutated shapes any more), or with one made for them.
        const Status status = mutator.below(2) == 0 ? run_decode(plan, args, workspace.data(), plan.workspace_bytes)
                                                    : decode(args, one_thread);
        if (status.ok()) {
            ASSERT_TRUE(shape.ok());
            ++served;
            api.decode_case().reset_outputs();
            continue;
        }
        ++refused;
        ASSERT_FALSE(status.message().empty());
        ASSERT_TRUE(api.outputs_untouched()) << status.message();
    }
    EXPECT_GT(refused, kCases / 2);
    EXPECT_GT(served, kCases / 20);
}

}  // namespace
}  // namespace flashmla::test
