// Dense prefill, its backward and the projections on the CPU against the multiply-add peak of the same cores.
//
// usage: bench_cpu_prefill [OUTPUT.json [SAMPLES]]. FLASHMLA_CPU_ISA chooses the path.
//
// FLOPs are those of the visible (query, key) pairs: 2 (d_qk + d_v) a pair forward, 2 (3 d_qk + 2 d_v) backward,
// although the backward computes scores and dout . v twice.
#include <cmath>
#include <cstdint>
#include <functional>

#include "bench/cpu_receipt.hpp"
#include "core/random.hpp"
#include "reference/absorb.hpp"
#include "reference/element.hpp"
#include "reference/prefill.hpp"

namespace flashmla::bench {
namespace {

struct Shape {
    std::int64_t len_q = 2048;
    std::int64_t len_kv = 2048;
    std::int64_t h_q = 16;
    std::int64_t h_kv = 16;
    std::int64_t d_qk = 192;
    DType dtype = DType::kBFloat16;
    bool causal = true;
    bool backward = false;
};

// The first is the one that the share of peak is judged by.
constexpr Shape kShapes[] = {
    {},
    {.causal = false},
    {.dtype = DType::kFloat16},
    {.d_qk = 128},
    {.len_q = 512, .len_kv = 512},
    {.len_q = 256, .len_kv = 8192},
    {.len_q = 8192, .len_kv = 8192, .h_q = 4, .h_kv = 4},
    {.h_q = 32, .h_kv = 4},
    {.h_q = 4, .h_kv = 4, .backward = true},
    {.h_q = 4, .h_kv = 4, .causal = false, .backward = true},
};

struct Projection {
    std::int64_t n = 128;
    bool absorb = true;
};
constexpr Projection kProjections[] = {
    {.n = 1}, {}, {.n = 2048}, {.n = 1, .absorb = false}, {.absorb = false}, {.n = 2048, .absorb = false}};

std::vector<std::uint16_t> normal_values(std::int64_t count, DType dtype, std::uint64_t seed) {
    static const core::NormalQuantiles normal;
    std::vector<std::uint16_t> values(static_cast<std::size_t>(count));
    TensorView view = contiguous_view(values.data(), dtype, {count});
    for (std::int64_t i = 0; i < count; ++i) {
        reference::set_element_at(view, i, normal(seed, static_cast<std::uint64_t>(i)));
    }
    return values;
}

double visible_pairs(const Shape& shape) {
    double pairs = 0;
    for (std::int64_t t = 0; t < shape.len_q; ++t) {
        const std::int64_t seen = shape.causal ? shape.len_kv - shape.len_q + t + 1 : shape.len_kv;
        pairs += static_cast<double>(seen > 0 ? seen : 0);
    }
    return pairs * static_cast<double>(shape.h_q);
}

// A few rows against the oracle, so that a wrong kernel is not timed.
bool rows_pass(const DensePrefillArgs& args, const std::string& isa) {
    for (const std::int64_t token : {std::int64_t{0}, args.q.shape[0] / 2, args.q.shape[0] - 1}) {
        const reference::AttentionRow row = reference::attention_row(args, {0, token, args.q.shape[1] - 1});
        const reference::RowResult exact = reference::attend_row(row);
        const reference::RowBound bound =
            reference::error_bound(row, exact, args.out.dtype, reference::cpu_model(isa, args.q.dtype));
        for (std::size_t d = 0; d < exact.out.size(); ++d) {
            const double got = reference::element(args.out, {token, args.q.shape[1] - 1, static_cast<std::int64_t>(d)});
            if (!(std::abs(got - exact.out[d]) <= bound.out[d])) return false;
        }
    }
    return true;
}

struct Machine {
    DeviceInfo device;
    int threads = 1;
    double wall_peak = 0;
    int samples = 1;
};

Json measure(const Shape& shape, const Machine& machine) {
    constexpr std::int64_t kDv = 128;
    const std::int64_t rows = shape.len_q * shape.h_q;
    const std::int64_t keys = shape.len_kv * shape.h_kv;
    std::vector<std::uint16_t> q = normal_values(rows * shape.d_qk, shape.dtype, 1);
    std::vector<std::uint16_t> k = normal_values(keys * shape.d_qk, shape.dtype, 2);
    std::vector<std::uint16_t> v = normal_values(keys * kDv, shape.dtype, 3);
    std::vector<std::uint16_t> dout = normal_values(rows * kDv, shape.dtype, 4);
    std::vector<std::uint16_t> out(dout.size()), dq(q.size()), dk(k.size()), dv(v.size());
    std::vector<float> lse(static_cast<std::size_t>(rows));
    const std::int32_t cu_q[] = {0, static_cast<std::int32_t>(shape.len_q)};
    const std::int32_t cu_kv[] = {0, static_cast<std::int32_t>(shape.len_kv)};
    DensePrefillBackwardArgs args;
    args.forward = {.q = contiguous_view(q.data(), shape.dtype, {shape.len_q, shape.h_q, shape.d_qk}),
                    .k = contiguous_view(k.data(), shape.dtype, {shape.len_kv, shape.h_kv, shape.d_qk}),
                    .v = contiguous_view(v.data(), shape.dtype, {shape.len_kv, shape.h_kv, kDv}),
                    .cu_seqlens_q = contiguous_view(cu_q, DType::kInt32, {2}),
                    .cu_seqlens_kv = contiguous_view(cu_kv, DType::kInt32, {2}),
                    .out = contiguous_view(out.data(), shape.dtype, {shape.len_q, shape.h_q, kDv}),
                    .lse = contiguous_view(lse.data(), DType::kFloat32, {shape.len_q, shape.h_q}),
                    .max_seqlen_q = shape.len_q,
                    .max_seqlen_kv = shape.len_kv,
                    .causal = shape.causal};
    args.dout = contiguous_view(dout.data(), shape.dtype, {shape.len_q, shape.h_q, kDv});
    args.dq = contiguous_view(dq.data(), shape.dtype, {shape.len_q, shape.h_q, shape.d_qk});
    args.dk = contiguous_view(dk.data(), shape.dtype, {shape.len_kv, shape.h_kv, shape.d_qk});
    args.dv = contiguous_view(dv.data(), shape.dtype, {shape.len_kv, shape.h_kv, kDv});
    PlanOptions options;
    options.num_workers = machine.threads;

    const auto width = static_cast<double>(shape.backward ? 3 * shape.d_qk + 2 * kDv : shape.d_qk + kDv);
    const double flops = 2 * visible_pairs(shape) * width;
    exit_unless_ok(dense_prefill(args.forward, options));
    const bool passed = rows_pass(args.forward, machine.device.arch);
    const std::function<Status()> run = [&] {
        return shape.backward ? dense_prefill_backward(args, options) : dense_prefill(args.forward, options);
    };
    exit_unless_ok(run());
    const Timing timing = time_calls(machine.device.arch, flops, machine.samples, run);
    Json record = {{"operation", shape.backward ? "dense_prefill_backward" : "dense_prefill"},
                   {"dtype", name(shape.dtype)},
                   {"len_q", shape.len_q},
                   {"len_kv", shape.len_kv},
                   {"h_q", shape.h_q},
                   {"h_kv", shape.h_kv},
                   {"d_qk", shape.d_qk},
                   {"d_v", kDv},
                   {"causal", shape.causal},
                   {"threads", machine.threads},
                   {"passed", passed}};
    add_timing(record, timing, flops, machine.wall_peak);
    std::printf("%-22s %-8s len %ld/%ld heads %ld/%ld d_qk %ld %-6s threads %d: %s%s\n",
                record["operation"].get<std::string>().c_str(), name(shape.dtype), static_cast<long>(shape.len_q),
                static_cast<long>(shape.len_kv), static_cast<long>(shape.h_q), static_cast<long>(shape.h_kv),
                static_cast<long>(shape.d_qk), shape.causal ? "causal" : "full", machine.threads,
                timing_text(record).c_str(), passed ? "" : "  WRONG");
    std::fflush(stdout);
    return record;
}

Json measure(const Projection& projection, const Machine& machine) {
    constexpr std::int64_t kHeads = 128;
    constexpr std::int64_t kWidth = 128;
    constexpr std::int64_t kRank = 512;
    const std::int64_t depth = projection.absorb ? kWidth : kRank;
    const std::int64_t columns = projection.absorb ? kRank : kWidth;
    constexpr DType kDtype = DType::kBFloat16;
    std::vector<std::uint16_t> x = normal_values(projection.n * kHeads * depth, kDtype, 1);
    std::vector<std::uint16_t> weight = normal_values(kHeads * kWidth * kRank, kDtype, 2);
    std::vector<std::uint16_t> out(static_cast<std::size_t>(projection.n * kHeads * columns));
    const AbsorbArgs args{.x = contiguous_view(x.data(), kDtype, {projection.n, kHeads, depth}),
                          .weight = contiguous_view(weight.data(), kDtype, {kHeads, kWidth, kRank}),
                          .out = contiguous_view(out.data(), kDtype, {projection.n, kHeads, columns})};
    const auto run = [&] { return projection.absorb ? absorb_query(args) : project_output(args); };
    exit_unless_ok(run());
    const auto want = reference::project_row(
        args, projection.absorb ? reference::Projection::kAbsorbQuery : reference::Projection::kProjectOutput,
        projection.n - 1, kHeads - 1);
    bool passed = true;
    for (std::int64_t j = 0; j < columns; ++j) {
        const double got = reference::element(args.out, {projection.n - 1, kHeads - 1, j});
        const auto column = static_cast<std::size_t>(j);
        passed = passed && std::abs(got - want.out[column]) <= want.bound[column];
    }
    const double flops = 2.0 * static_cast<double>(projection.n * kHeads * kWidth * kRank);
    const Timing timing = time_calls(machine.device.arch, flops, machine.samples, run);
    Json record = {{"operation", projection.absorb ? "absorb_query" : "project_output"},
                   {"dtype", name(kDtype)},
                   {"n", projection.n},
                   {"heads", kHeads},
                   {"threads", machine.threads},
                   {"passed", passed}};
    add_timing(record, timing, flops, machine.wall_peak);
    const double gigabytes = static_cast<double>(2 * (x.size() + weight.size() + out.size())) / 1e9;
    record["gigabytes_per_second"] = gigabytes / (record["ms_min"].get<double>() / 1e3);
    std::printf("%-22s n %ld threads %d: %s, %.1f GB/s%s\n", record["operation"].get<std::string>().c_str(),
                static_cast<long>(projection.n), machine.threads, timing_text(record).c_str(),
                record["gigabytes_per_second"].get<double>(), passed ? "" : "  WRONG");
    std::fflush(stdout);
    return record;
}

int run(const char* output, int samples) {
    const Result<DeviceInfo> device = query_device({});
    exit_unless_ok(device.status());
    Json document = receipt_head("bench_cpu_prefill", device.value());
    document["method"] = {{"samples", samples},
                          {"flops", "of visible pairs; backward 2 (3 d_qk + 2 d_v) a pair"},
                          {"peak",
                           "independent multiply-adds of the ISA in registers, measured before each call by CPU time, "
                           "and once on all threads by the wall clock"}};
    Json records = Json::array();
    std::vector<int> thread_counts = {1};
    if (device.value().num_processors > 1) thread_counts.push_back(device.value().num_processors);
    for (const int threads : thread_counts) {
        const Machine machine{device.value(), threads, measure_fma_tflops(device.value().arch, threads), samples};
        document["peak_tflops_by_wall_on_" + std::to_string(threads)] = machine.wall_peak;
        for (const Shape& shape : kShapes) records.push_back(measure(shape, machine));
        if (threads != thread_counts.back()) continue;  // the projections take all threads there are
        for (const Projection& projection : kProjections) records.push_back(measure(projection, machine));
    }
    document["records"] = records;
    return finish_receipt(output, document);
}

}  // namespace
}  // namespace flashmla::bench

int main(int argc, char** argv) {
    return flashmla::bench::run(argc > 1 ? argv[1] : nullptr, argc > 2 ? std::atoi(argv[2]) : 9);
}
