// The CPU kernel against the multiply-add peak of the same core, measured in turns with it.
//
// usage: bench_cpu_decode [OUTPUT.json [SAMPLES]]. FLASHMLA_CPU_ISA chooses the path.
//
// Two shares are reported. By CPU time: work per second that the process was given a core, which other load on the
// machine disturbs little (it still shares caches and memory). By the wall clock: best call, threads x peak; only an
// idle machine gives the full figure.
#include <cstdlib>

#include "bench/cpu_receipt.hpp"
#include "reference/compare.hpp"
#include "reference/decode_case.hpp"

namespace flashmla::bench {
namespace {

struct Shape {
    std::int64_t b = 1;
    std::int64_t h_q = 128;
    std::int64_t s_q = 1;
    std::int32_t len = 8192;
    DType dtype = DType::kBFloat16;
    CacheFormat format = CacheFormat::kBFloat16;  // a 16-bit one stands for dtype's own
    std::int64_t topk = 0;                        // > 0: sparse, of len tokens a request
};

// Keys of one running sum: the kernel's chunk (src/backends/cpu/README.md).
constexpr std::int64_t kLongestSum = 2048;

// The first is the one that the share of peak is judged by.
constexpr Shape kShapes[] = {
    {},
    {.dtype = DType::kFloat16},
    {.h_q = 64},
    {.h_q = 16},
    {.h_q = 1},
    {.s_q = 2},
    {.len = 1024},
    {.len = 65536},
    {.b = 64, .h_q = 16, .len = 512},
    {.format = CacheFormat::kFp8Flat},
    {.format = CacheFormat::kFp8_656},
    {.format = CacheFormat::kFp8_584},
    {.h_q = 16, .format = CacheFormat::kFp8_656},
    {.b = 4, .len = 32768, .topk = 2048},
    {.b = 4, .len = 32768, .format = CacheFormat::kFp8_656, .topk = 2048},
    {.b = 4, .len = 32768, .format = CacheFormat::kFp8_584, .topk = 2048},
    {.b = 4, .h_q = 16, .len = 32768, .format = CacheFormat::kFp8_656, .topk = 2048},
};

Json measure(const Shape& shape, const DeviceInfo& device, int threads, double wall_peak, int samples) {
    reference::DecodeSpec spec;
    spec.dtype = shape.dtype;
    spec.lengths.assign(static_cast<std::size_t>(shape.b), shape.len);
    spec.h_q = shape.h_q;
    spec.s_q = shape.s_q;
    spec.format = shape.format;
    if (shape.format == CacheFormat::kFp8_584) spec.d_qk = 512;
    spec.topk = shape.topk;
    spec.masked = 0;
    spec.causal = shape.topk == 0;
    const CacheFormat format = reference::cache_format(spec);
    const std::int64_t keys = shape.topk > 0 ? shape.topk : shape.len;
    reference::DecodeCase c(spec);
    const DecodeArgs args = c.args();
    const DecodePlan plan = plan_decode(decode_shape(args).value(), device,
                                        {.batch_invariant = false, .kernel = {}, .num_workers = threads})
                                .value();
    const std::size_t alignment = 256;
    void* workspace = std::aligned_alloc(alignment, (plan.workspace_bytes + alignment - 1) / alignment * alignment);

    const double flops =
        2.0 * static_cast<double>(shape.b * shape.s_q * shape.h_q * keys) * static_cast<double>(spec.d_qk + spec.d_v);
    const auto decode_once = [&] { return run_decode(plan, args, workspace, plan.workspace_bytes); };
    exit_unless_ok(decode_once());
    const reference::Comparison check =
        reference::compare_case(c, reference::cpu_model(device.arch, shape.dtype, kLongestSum, format), 8);
    const Timing timing = time_calls(device.arch, flops, samples, decode_once);
    std::free(workspace);
    Json record = {{"operation", "decode"},  {"kernel", plan.kernel}, {"dtype", name(shape.dtype)},
                   {"format", name(format)}, {"topk", shape.topk},    {"b", shape.b},
                   {"h_q", shape.h_q},       {"s_q", shape.s_q},      {"len", shape.len},
                   {"page", spec.page_size}, {"threads", threads},    {"rel_error", check.relative_error},
                   {"passed", check.passed}};
    add_timing(record, timing, flops, wall_peak);
    std::printf("%-8s %-8s b %-3ld h_q %-4ld s_q %ld len %-6d topk %-4ld threads %d: %s%s\n", name(shape.dtype),
                name(format), static_cast<long>(shape.b), static_cast<long>(shape.h_q), static_cast<long>(shape.s_q),
                shape.len, static_cast<long>(shape.topk), threads, timing_text(record).c_str(),
                check.passed ? "" : "  WRONG");
    std::fflush(stdout);
    return record;
}

int run(const char* output, int samples) {
    const Result<DeviceInfo> queried = query_device({});
    exit_unless_ok(queried.status());
    const DeviceInfo& device = queried.value();
    Json document = receipt_head("bench_cpu_decode", device);
    document["method"] = {
        {"samples", samples},
        {"cache", "hot"},
        {"peak",
         "independent multiply-adds of the ISA in registers, measured before each call by CPU time, and once on all "
         "threads by the wall clock"},
        {"data", "unit-variance logits, permuted pages, 8 rows checked against the oracle"}};
    Json records = Json::array();
    std::vector<int> thread_counts = {1};
    if (device.num_processors > 1) thread_counts.push_back(device.num_processors);
    for (const int threads : thread_counts) {
        const double wall_peak = measure_fma_tflops(device.arch, threads);
        document["peak_tflops_by_wall_on_" + std::to_string(threads)] = wall_peak;
        for (const Shape& shape : kShapes) records.push_back(measure(shape, device, threads, wall_peak, samples));
    }
    document["peak_tflops_of_one_core_by_cpu_time"] = measure_fma_tflops_of_cpu_time(device.arch);
    document["records"] = records;
    return finish_receipt(output, document);
}

}  // namespace
}  // namespace flashmla::bench

int main(int argc, char** argv) {
    return flashmla::bench::run(argc > 1 ? argv[1] : nullptr, argc > 2 ? std::atoi(argv[2]) : 15);
}
