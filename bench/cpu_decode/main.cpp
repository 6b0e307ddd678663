// The CPU kernel against the multiply-add peak of the same core, measured in turns with it.
//
// usage: bench_cpu_decode [OUTPUT.json [SAMPLES]]. FLASHMLA_CPU_ISA chooses the path.
//
// Two shares are reported. By CPU time: work per second that the process was given a core, which other load on the
// machine disturbs little (it still shares caches and memory). By the wall clock: best call, threads x peak; only an
// idle machine gives the full figure.
#include <cstdio>
#include <cstdlib>
#include <ctime>
#include <fstream>
#include <nlohmann/json.hpp>

#include <chrono>

#include "bench/fma_peak.hpp"
#include "bench/sampling.hpp"
#include "flashmla/flashmla.hpp"
#include "reference/compare.hpp"
#include "reference/decode_case.hpp"

namespace flashmla::bench {
namespace {

using Json = nlohmann::ordered_json;

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

struct Timing {
    std::vector<double> wall_ms;
    std::vector<double> share_of_cpu_time;
};

// The peak is taken anew before each call: the clock frequency moves with temperature and load.
Timing time_calls(const DecodePlan& plan, const DecodeArgs& args, void* workspace, double flops, int samples) {
    Timing timing;
    for (int i = 0; i < samples; ++i) {
        const double peak = measure_fma_tflops_of_cpu_time(plan.device.arch);
        const double cpu_started = process_cpu_seconds();
        const auto started = std::chrono::steady_clock::now();
        if (const Status status = run_decode(plan, args, workspace, plan.workspace_bytes); !status.ok()) {
            std::fprintf(stderr, "%s\n", status.message().c_str());
            std::exit(1);
        }
        const std::chrono::duration<double, std::milli> wall = std::chrono::steady_clock::now() - started;
        timing.wall_ms.push_back(wall.count());
        timing.share_of_cpu_time.push_back(flops / (process_cpu_seconds() - cpu_started) / 1e12 / peak);
    }
    return timing;
}

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
    time_calls(plan, args, workspace, flops, 1);
    const reference::Comparison check =
        reference::compare_case(c, reference::cpu_model(device.arch, shape.dtype, kLongestSum, format), 8);
    const Timing timing = time_calls(plan, args, workspace, flops, samples);
    std::free(workspace);
    const double best_ms = smallest(timing.wall_ms);
    Json record = {{"operation", "decode"},
                   {"kernel", plan.kernel},
                   {"dtype", name(shape.dtype)},
                   {"format", name(format)},
                   {"topk", shape.topk},
                   {"b", shape.b},
                   {"h_q", shape.h_q},
                   {"s_q", shape.s_q},
                   {"len", shape.len},
                   {"page", spec.page_size},
                   {"threads", threads},
                   {"ms_min", best_ms},
                   {"ms_median", median(timing.wall_ms)},
                   {"tflops_min_time", flops / best_ms / 1e9},
                   {"share_of_peak_by_wall_min", flops / best_ms / 1e9 / wall_peak},
                   {"share_of_peak_by_cpu_time_median", median(timing.share_of_cpu_time)},
                   {"share_of_peak_by_cpu_time_max", largest(timing.share_of_cpu_time)},
                   {"rel_error", check.relative_error},
                   {"passed", check.passed}};
    std::printf(
        "%-8s %-8s b %-3ld h_q %-4ld s_q %ld len %-6d topk %-4ld threads %d: best %8.3f ms, %5.1f%% of peak by wall "
        "clock; by CPU time "
        "%5.1f%% (median), %5.1f%% (best)%s\n",
        name(shape.dtype), name(format), static_cast<long>(shape.b), static_cast<long>(shape.h_q),
        static_cast<long>(shape.s_q), shape.len, static_cast<long>(shape.topk), threads, best_ms,
        100 * flops / best_ms / 1e9 / wall_peak, 100 * median(timing.share_of_cpu_time),
        100 * largest(timing.share_of_cpu_time), check.passed ? "" : "  WRONG");
    std::fflush(stdout);
    return record;
}

std::string utc_now() {
    char text[32] = {};
    const std::time_t now = std::time(nullptr);
    std::strftime(text, sizeof(text), "%Y-%m-%dT%H:%M:%SZ", std::gmtime(&now));
    return text;
}

int run(const char* output, int samples) {
    const Result<DeviceInfo> queried = query_device({});
    if (!queried.ok()) {
        std::fprintf(stderr, "%s\n", queried.status().message().c_str());
        return 1;
    }
    const DeviceInfo& device = queried.value();
    const BuildInfo build = build_info();
    double load = 0;
    getloadavg(&load, 1);
    Json document = {{"tool", "bench_cpu_decode"},
                     {"git_revision", build.git_revision},
                     {"source_hash", build.source_hash},
                     {"compiler", build.compiler},
                     {"date", utc_now()},
                     {"cpu", device.name},
                     {"isa", device.arch},
                     {"processors", device.num_processors},
                     {"load_average_at_start", load},
                     {"method",
                      {{"samples", samples},
                       {"cache", "hot"},
                       {"peak",
                        "independent multiply-adds of the ISA in registers, measured before each call by CPU time, and "
                        "once on all threads by the wall clock"},
                       {"data", "unit-variance logits, permuted pages, 8 rows checked against the oracle"}}}};
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
    if (output != nullptr && !(std::ofstream(output) << document.dump(1) << '\n')) {
        std::fprintf(stderr, "%s: cannot be written\n", output);
        return 1;
    }
    for (const Json& record : records) {
        if (!record["passed"].get<bool>()) return 1;
    }
    return 0;
}

}  // namespace
}  // namespace flashmla::bench

int main(int argc, char** argv) {
    return flashmla::bench::run(argc > 1 ? argv[1] : nullptr, argc > 2 ? std::atoi(argv[2]) : 15);
}
