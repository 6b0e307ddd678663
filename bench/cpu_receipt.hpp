// What the benchmarks of the CPU kernels share: timing against the multiply-add peak, and the head of a receipt.
#pragma once

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <ctime>
#include <fstream>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "bench/fma_peak.hpp"
#include "bench/sampling.hpp"
#include "flashmla/flashmla.hpp"

namespace flashmla::bench {

using Json = nlohmann::ordered_json;

struct Timing {
    std::vector<double> wall_ms;
    std::vector<double> share_of_cpu_time;  // of the peak, by the time that the process was given a core
};

inline void exit_unless_ok(const Status& status) {
    if (status.ok()) return;
    std::fprintf(stderr, "%s\n", status.message().c_str());
    std::exit(1);
}

// Times run() -> Status. The peak is taken anew before each call: the clock frequency moves with temperature and load.
template <class Run>
Timing time_calls(const std::string& isa, double flops, int samples, const Run& run) {
    Timing timing;
    for (int i = 0; i < samples; ++i) {
        const double peak = measure_fma_tflops_of_cpu_time(isa);
        const double cpu_started = process_cpu_seconds();
        const auto started = std::chrono::steady_clock::now();
        exit_unless_ok(run());
        const std::chrono::duration<double, std::milli> wall = std::chrono::steady_clock::now() - started;
        timing.wall_ms.push_back(wall.count());
        timing.share_of_cpu_time.push_back(flops / (process_cpu_seconds() - cpu_started) / 1e12 / peak);
    }
    return timing;
}

// The figures of one record.
inline void add_timing(Json& record, const Timing& timing, double flops, double wall_peak) {
    const double best_ms = smallest(timing.wall_ms);
    record["ms_min"] = best_ms;
    record["ms_median"] = median(timing.wall_ms);
    record["tflops_min_time"] = flops / best_ms / 1e9;
    record["share_of_peak_by_wall_min"] = flops / best_ms / 1e9 / wall_peak;
    record["share_of_peak_by_cpu_time_median"] = median(timing.share_of_cpu_time);
    record["share_of_peak_by_cpu_time_max"] = largest(timing.share_of_cpu_time);
}

// "best 12.345 ms, 61.2% of peak by wall clock; by CPU time 70.0% (median), 75.0% (best)"
inline std::string timing_text(const Json& record) {
    char text[160];
    std::snprintf(text, sizeof(text),
                  "best %8.3f ms, %5.1f%% of peak by wall clock; by CPU time %5.1f%% (median), %5.1f%% (best)",
                  record["ms_min"].get<double>(), 100 * record["share_of_peak_by_wall_min"].get<double>(),
                  100 * record["share_of_peak_by_cpu_time_median"].get<double>(),
                  100 * record["share_of_peak_by_cpu_time_max"].get<double>());
    return text;
}

inline std::string utc_now() {
    char text[32] = {};
    const std::time_t now = std::time(nullptr);
    std::strftime(text, sizeof(text), "%Y-%m-%dT%H:%M:%SZ", std::gmtime(&now));
    return text;
}

inline Json receipt_head(const char* tool, const DeviceInfo& device) {
    const BuildInfo build = build_info();
    double load = 0;
    getloadavg(&load, 1);
    return {{"tool", tool},
            {"git_revision", build.git_revision},
            {"source_hash", build.source_hash},
            {"compiler", build.compiler},
            {"date", utc_now()},
            {"cpu", device.name},
            {"isa", device.arch},
            {"processors", device.num_processors},
            {"load_average_at_start", load}};
}

// Writes the document if a file is named; the exit code says whether that worked and every record passed.
inline int finish_receipt(const char* output, const Json& document) {
    if (output != nullptr && !(std::ofstream(output) << document.dump(1) << '\n')) {
        std::fprintf(stderr, "%s: cannot be written\n", output);
        return 1;
    }
    for (const Json& record : document["records"]) {
        if (!record["passed"].get<bool>()) return 1;
    }
    return 0;
}

}  // namespace flashmla::bench
