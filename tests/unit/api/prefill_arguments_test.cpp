// What dense prefill and its backward refuse, in words, without writing; and 4,000 calls with fields changed at random.
#include <gtest/gtest.h>

#include <cstdint>
#include <functional>
#include <iterator>
#include <limits>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "flashmla/flashmla.hpp"
#include "support/prefill_case.hpp"
#include "unit/api/api_case.hpp"

namespace flashmla::test {
namespace {

using testing_support::GuardedTensor;
using testing_support::PrefillCase;
using testing_support::PrefillSpec;

PrefillSpec small_prefill() { return {.lengths = {{5, 9}, {0, 3}, {7, 7}}, .h_q = 4, .h_kv = 2, .d_qk = 128}; }

constexpr int kTensors = 12;

class PrefillArguments : public testing::Test {
protected:
    PrefillArguments() : case_(small_prefill()), written_(case_) {}

    std::vector<GuardedTensor*> outputs() {
        return {&case_.out(), &case_.lse(), &case_.dq(), &case_.dk(), &case_.dv()};
    }
    bool outputs_untouched() {
        const std::vector<GuardedTensor*> before = {&written_.out(), &written_.lse(), &written_.dq(), &written_.dk(),
                                                    &written_.dv()};
        for (std::size_t i = 0; i < before.size(); ++i) {
            if (before[i]->bytes() != outputs()[i]->bytes()) return false;
        }
        return true;
    }
    void expect_refused(const Status& status, const std::string& message) {
        EXPECT_FALSE(status.ok()) << message;
        EXPECT_NE(status.message().find(message), std::string::npos) << status.message();
        EXPECT_TRUE(outputs_untouched()) << message;
    }
    void forward(const std::function<void(DensePrefillArgs&)>& change, const std::string& message) {
        DensePrefillArgs args = case_.args();
        change(args);
        expect_refused(dense_prefill(args), message);
    }
    void backward(const std::function<void(DensePrefillBackwardArgs&)>& change, const std::string& message) {
        DensePrefillBackwardArgs args = case_.backward_args();
        change(args);
        expect_refused(dense_prefill_backward(args), message);
    }

    PrefillCase case_;
    PrefillCase written_;  // as case_ was
};

TEST_F(PrefillArguments, RefusalsNameTheArgument) {
    using Args = DensePrefillArgs;
    forward([](Args& a) { a.q.rank = 4; }, "q: got rank 4, wanted rank 3: (total_q, h_q, d_qk)");
    forward([](Args& a) { a.k.rank = 2; }, "k: got rank 2");
    forward([](Args& a) { a.v.rank = 0; }, "v: got rank 0");
    forward([](Args& a) { a.cu_seqlens_q.rank = 2; }, "cu_seqlens_q: got rank 2");
    forward([](Args& a) { a.cu_seqlens_kv.rank = 2; }, "cu_seqlens_kv: got rank 2");
    forward([](Args& a) { a.lse.rank = 3; }, "lse: got rank 3, wanted rank 2: (total_q, h_q)");
    forward([](Args& a) { a.k.shape[1] = 3; }, "h_q: got 4, wanted a multiple of h_kv = 3");
    forward([](Args& a) { a.k.shape[2] = 127; }, "k: got shape (19, 2, 127)");
    forward([](Args& a) { a.v.shape[0] = 20; }, "v: got shape (20, 2, 128), wanted (total_kv = 19");
    forward([](Args& a) { a.v.shape[2] = 64; },
            "out: got shape (12, 4, 128), wanted (total_q = 12, h_q = 4, d_v = 64)");
    forward([](Args& a) { a.cu_seqlens_kv.shape[0] = 3; }, "cu_seqlens_kv: got shape (3,), wanted (b + 1 = 4,)");
    forward([](Args& a) { a.cu_seqlens_q.shape[0] = 0; }, "b: got -1");
    forward([](Args& a) { a.lse.shape[1] = 5; }, "lse: got shape (12, 5)");
    forward([](Args& a) { a.q.dtype = DType::kFloat32; }, "dtype: got float32, wanted bfloat16 or float16");
    forward([](Args& a) { a.k.dtype = DType::kFloat16; }, "k: got dtype float16, wanted bfloat16, q's dtype");
    forward([](Args& a) { a.cu_seqlens_q.dtype = DType::kInt64; }, "cu_seqlens_q: got dtype int64, wanted int32");
    forward([](Args& a) { a.lse.dtype = DType::kInt32; }, "lse: got dtype int32, wanted float32");
    forward([](Args& a) { a.v.device = {DeviceType::kCuda, 0}; }, "v: got device cuda:0, wanted cpu, where q is");
    forward([](Args& a) { a.q.stride[2] = 2; }, "q: got strides");
    forward([](Args& a) { a.out.stride[0] = 0; }, "out: got shape (12, 4, 128) with strides");
    forward([](Args& a) { a.k.data = nullptr; }, "k: got a null pointer");
    forward([](Args& a) { a.max_seqlen_q = -1; }, "max_seqlen_q: got -1, wanted 0 to");
    forward([](Args& a) { a.max_seqlen_q = 6; }, "max_seqlen_q: got 6, wanted at least 7, the length of request 2");
    forward([](Args& a) { a.max_seqlen_kv = 8; }, "max_seqlen_kv: got 8, wanted at least 9, the length of request 0");
    const auto to_cuda = [](Args& a) {
        for (TensorView* view : {&a.q, &a.k, &a.v, &a.cu_seqlens_q, &a.cu_seqlens_kv, &a.out, &a.lse}) {
            view->device = {DeviceType::kCuda, 0};
        }
    };
    DensePrefillArgs cuda = case_.args();
    to_cuda(cuda);
    const Result<PrefillShape> shape = dense_prefill_shape(cuda);
    ASSERT_TRUE(shape.ok()) << shape.status().message();
    const Result<PrefillPlan> plan = plan_prefill(shape.value(), named_device("h200").value());
    EXPECT_EQ(plan.status().code(), StatusCode::kUnsupported);
    EXPECT_EQ(plan.status().message(),
              "dense_prefill: no kernel runs on NVIDIA H200 (sm_90); there is cpu_dense_prefill");
}

TEST_F(PrefillArguments, CumulativeLengthsAreChecked) {
    const auto with = [&](GuardedTensor& lengths, std::int64_t at, double value, const std::string& message) {
        const double before = lengths.get(at);
        lengths.set(at, value);
        expect_refused(dense_prefill(case_.args()), message);
        expect_refused(dense_prefill_backward(case_.backward_args()), message);
        lengths.set(at, before);
    };
    with(case_.cu_q(), 0, 1, "cu_seqlens_q: got 1 at 0, wanted 0");
    with(case_.cu_q(), 2, 4, "cu_seqlens_q: got 4 at 2, wanted at least 5");
    with(case_.cu_q(), 3, 11, "cu_seqlens_q: got 11 at 3, wanted the number of tokens, 12");
    with(case_.cu_kv(), 3, 2147483647, "max_seqlen_kv: got 9, wanted at least 2147483635, the length of request 2");
    with(case_.cu_kv(), 1, -5, "cu_seqlens_kv: got -5 at 1, wanted at least 0");
}

TEST_F(PrefillArguments, BackwardRefusalsNameTheArgument) {
    using Args = DensePrefillBackwardArgs;
    backward([](Args& a) { a.forward.q.rank = 2; }, "q: got rank 2");
    backward([](Args& a) { a.dout.shape[2] = 64; }, "dout: got shape (12, 4, 64), wanted (total_q = 12");
    backward([](Args& a) { a.dout.dtype = DType::kFloat16; }, "dout: got dtype float16");
    backward([](Args& a) { a.dlse.shape[1] = 3; }, "dlse: got shape (12, 3)");
    backward([](Args& a) { a.dlse.dtype = DType::kBFloat16; }, "dlse: got dtype bfloat16, wanted float32");
    backward([](Args& a) { a.dq.rank = 2; }, "dq: got rank 2");
    backward([](Args& a) { a.dk.shape[0] = 12; }, "dk: got shape (12, 2, 128)");
    backward([](Args& a) { a.dv.stride[0] = 0; }, "dv: got shape (19, 2, 128) with strides");
    backward([](Args& a) { a.dk.data = nullptr; }, "dk: got a null pointer");
    backward([](Args& a) { a.dv.device = {DeviceType::kCuda, 1}; }, "dv: got device cuda:1");
}

TEST_F(PrefillArguments, PlanAndWorkspaceAreChecked) {
    const DensePrefillArgs args = case_.args();
    const PrefillPlan plan = plan_prefill(dense_prefill_shape(args).value(), query_device({}).value()).value();
    const Workspace workspace(plan.workspace_bytes);
    const std::size_t bytes = plan.workspace_bytes;
    expect_refused(run_dense_prefill({}, args, workspace.data(), bytes), "plan: got an empty one");
    expect_refused(run_dense_prefill(plan, args, workspace.data(), bytes - 1), "workspace_bytes: got");
    expect_refused(run_dense_prefill(plan, args, nullptr, bytes), "workspace: got a null pointer");
    expect_refused(run_dense_prefill(plan, args, workspace.data() + 1, bytes), "workspace: got an address");
    expect_refused(run_dense_prefill_backward(plan, case_.backward_args(), workspace.data(), bytes),
                   "plan: made for dense_prefill, the call is dense_prefill_backward");
    PrefillPlan other = plan;
    other.shape.h_q = 8;
    expect_refused(run_dense_prefill(other, args, workspace.data(), bytes),
                   "plan: made for h_q = 8, the arguments have h_q = 4");
    other = plan;
    other.device.device = {DeviceType::kCuda, 0};
    expect_refused(run_dense_prefill(other, args, workspace.data(), bytes), "plan: made for device cuda:0");
    const Status status = run_dense_prefill(plan, args, workspace.data(), bytes);
    EXPECT_TRUE(status.ok()) << status.message();
}

class Mutator {
public:
    explicit Mutator(std::uint64_t seed) : random_(seed) {}
    int below(int n) { return static_cast<int>(random_() % static_cast<std::uint64_t>(n)); }

    void mutate(DensePrefillBackwardArgs& args) {
        for (int i = below(3); i >= 0; --i) mutate_once(args);
    }

private:
    std::int64_t wild(std::int64_t near) {
        near %= std::int64_t{1} << 40;
        const std::int64_t values[] = {near - 1,
                                       near + 1,
                                       -near,
                                       0,
                                       1,
                                       2 * near,
                                       std::numeric_limits<std::int64_t>::max(),
                                       std::numeric_limits<std::int64_t>::min(),
                                       std::int64_t{1} << 32};
        return values[below(static_cast<int>(std::size(values)))];
    }
    static TensorView& tensor(DensePrefillBackwardArgs& args, int i) {
        DensePrefillArgs& f = args.forward;
        TensorView* views[kTensors] = {&f.q,   &f.k,       &f.v,       &f.cu_seqlens_q, &f.cu_seqlens_kv, &f.out,
                                       &f.lse, &args.dout, &args.dlse, &args.dq,        &args.dk,         &args.dv};
        return *views[i];
    }
    void mutate_once(DensePrefillBackwardArgs& args) {
        TensorView& view = tensor(args, below(kTensors));
        const auto axis = static_cast<std::size_t>(below(kMaxRank));
        switch (below(10)) {
            case 0: view.rank = below(8) - 2; break;
            case 1: view.dtype = static_cast<DType>(below(7)); break;
            case 2: view.device = {static_cast<DeviceType>(below(2)), below(3) - 1}; break;
            case 3: view.data = nullptr; break;
            case 4: view.shape[axis] = wild(view.shape[axis]); break;
            case 5: view.stride[axis] = wild(view.stride[axis]); break;
            case 6: std::swap(view, tensor(args, below(kTensors))); break;
            case 7: args.forward.causal = !args.forward.causal; break;
            case 8: args.forward.max_seqlen_q = wild(args.forward.max_seqlen_q); break;
            default: args.forward.max_seqlen_kv = wild(args.forward.max_seqlen_kv);
        }
    }

    std::mt19937_64 random_;
};

// Whether a view stays inside the memory that some tensor of the case had: accepted calls that reach past it are not
// run, because the library cannot know how large the caller's memory is.
bool lies_in_case(const TensorView& view, const DensePrefillBackwardArgs& legal) {
    const DensePrefillArgs& f = legal.forward;
    for (const TensorView* known : {&f.q, &f.k, &f.v, &f.cu_seqlens_q, &f.cu_seqlens_kv, &f.out, &f.lse, &legal.dout,
                                    &legal.dlse, &legal.dq, &legal.dk, &legal.dv}) {
        if (known->data != view.data) continue;
        // In double: what is not checked yet may not fit 64 bits.
        const auto bytes = [](const TensorView& of) {
            double last = 0;
            for (int axis = 0; axis < of.rank && axis < kMaxRank; ++axis) {
                const auto i = static_cast<std::size_t>(axis);
                if (of.shape[i] == 0) return 0.0;
                if (of.shape[i] > 1) last += static_cast<double>(of.shape[i] - 1) * static_cast<double>(of.stride[i]);
            }
            return (last + 1) * static_cast<double>(size_bytes(of.dtype));
        };
        return bytes(view) <= bytes(*known);
    }
    return false;
}

TEST_F(PrefillArguments, MutatedCallsAreServedOrRefusedInWords) {
    constexpr int kCases = 4'000;
    PlanOptions one_thread;
    one_thread.num_workers = 1;
    const DensePrefillBackwardArgs legal = case_.backward_args();
    ASSERT_TRUE(dense_prefill(legal.forward).ok());
    int served = 0;
    int refused = 0;
    for (int i = 0; i < kCases; ++i) {
        SCOPED_TRACE("seed " + std::to_string(i + 1));
        DensePrefillBackwardArgs args = legal;
        Mutator mutator(static_cast<std::uint64_t>(i) + 1);
        mutator.mutate(args);
        const bool backward = mutator.below(2) == 0;
        const DensePrefillArgs& f = args.forward;
        const bool legal_forward = dense_prefill_shape(f).ok();
        bool inside = true;
        for (const TensorView* view : {&f.q, &f.k, &f.v, &f.cu_seqlens_q, &f.cu_seqlens_kv, &f.out, &f.lse}) {
            inside = inside && (!legal_forward || lies_in_case(*view, legal));
        }
        // The backward pass only reads out and lse, so their elements may overlap, which the forward pass refuses.
        const TensorView* const of_backward[] = {&f.out, &f.lse, &args.dout, &args.dlse, &args.dq, &args.dk, &args.dv};
        for (const TensorView* view : of_backward) {
            inside = inside && (!backward || view->data == nullptr || view->rank < 2 || lies_in_case(*view, legal));
        }
        if (!inside) continue;
        const Status status =
            backward ? dense_prefill_backward(args, one_thread) : dense_prefill(args.forward, one_thread);
        status.ok() ? ++served : ++refused;
        ASSERT_EQ(status.ok(), status.message().empty());
    }
    EXPECT_GT(refused, kCases / 4);
    EXPECT_GT(served, kCases / 50);
}

}  // namespace
}  // namespace flashmla::test
