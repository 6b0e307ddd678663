// `flashmla plan`: which kernel, why, who does what, and what it costs at least.
#include <fmt/core.h>

#include <algorithm>
#include <cmath>
#include <memory>
#include <string>
#include <vector>

#include "cli/batch_options.hpp"
#include "cli/command.hpp"
#include "cli/text.hpp"
#include "flashmla/explain.hpp"

namespace flashmla::cli {
namespace {

constexpr const char* kDefaultLengths = "450,18200,3100";
constexpr int kRowsShown = 40;      // workers that get a row of their own
constexpr int kPictureWidth = 64;   // characters of the longest row
constexpr int kHistogramRows = 12;  // bars, when there are more workers

struct PlanCommandOptions {
    BatchOptions batch;
    std::string gpu;
    int workers = 0;
};

DeviceInfo planned_device(const PlanCommandOptions& options) {
    if (!options.gpu.empty()) return require(named_device(options.gpu));
    return choose_device(options.batch.device);
}

// 'a' to 'z', then 'A' to 'Z', and again.
char request_letter(int request) {
    constexpr char kLetters[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ";
    return kLetters[request % 52];
}

// A worker's time from left to right: its pieces in proportion to their cost, '|' where a visit begins, upper half or
// lower half of the alphabet naming the request.
std::string picture_row(const WorkerSchedule& worker, const ScheduleExplanation& schedule) {
    const double scale =
        schedule.max_cost > 0 ? static_cast<double>(kPictureWidth) / static_cast<double>(schedule.max_cost) : 0;
    std::string row;
    double cost = 0;
    for (const SchedulePiece& piece : worker.pieces) {
        const auto begin = static_cast<std::size_t>(std::lround(cost * scale));
        cost += schedule.visit_cost + piece.key_tile_end - piece.key_tile_begin;
        const auto end = static_cast<std::size_t>(std::lround(cost * scale));
        if (end == begin) continue;
        row.append(end - begin, request_letter(piece.request));
        row[begin] = piece.partial ? '+' : '|';
    }
    return row;
}

void print_rows(const ScheduleExplanation& schedule) {
    for (std::size_t w = 0; w < schedule.workers.size(); ++w) {
        const WorkerSchedule& worker = schedule.workers[w];
        fmt::print("  {:>4} {:<{}} {:>7}  {}\n", w, picture_row(worker, schedule), kPictureWidth, grouped(worker.cost),
                   count_text(static_cast<std::int64_t>(worker.pieces.size()), "piece"));
    }
    fmt::print(
        "  '|' begins a whole unit, '+' a part of one that is merged later; letters name requests (a = 0, b = 1, "
        "...)\n");
}

void print_histogram(const ScheduleExplanation& schedule) {
    std::int64_t lowest = schedule.max_cost;
    for (const WorkerSchedule& worker : schedule.workers) lowest = std::min(lowest, worker.cost);
    const std::int64_t step = std::max<std::int64_t>(1, (schedule.max_cost - lowest + kHistogramRows) / kHistogramRows);
    std::vector<std::int64_t> counts;
    for (const WorkerSchedule& worker : schedule.workers) {
        const auto bin = static_cast<std::size_t>((worker.cost - lowest) / step);
        if (bin >= counts.size()) counts.resize(bin + 1);
        ++counts[bin];
    }
    const std::int64_t most = *std::max_element(counts.begin(), counts.end());
    for (std::size_t bin = 0; bin < counts.size(); ++bin) {
        const std::int64_t begin = lowest + static_cast<std::int64_t>(bin) * step;
        const std::string range = step == 1 ? grouped(begin) : grouped(begin) + " to " + grouped(begin + step - 1);
        const auto bar = static_cast<int>((counts[bin] * kPictureWidth + most - 1) / most);
        fmt::print("  cost {:>15} {:#<{}} {}\n", range, "", bar, count_text(counts[bin], "worker"));
    }
}

void print_schedule(const DecodePlan& plan, const ScheduleExplanation& schedule) {
    fmt::print("\nSchedule: {} of {}, costs in key tiles of {} tokens (a visit costs {})\n",
               count_text(static_cast<std::int64_t>(schedule.workers.size()), "worker"),
               count_text(plan.row_tiles_per_worker, "row tile"), schedule.key_tile_tokens, schedule.visit_cost);
    if (schedule.chunk_key_tiles > 0) {
        fmt::print("  cut at multiples of {} key tiles only, so that a request's bits depend on itself alone\n",
                   schedule.chunk_key_tiles);
    }
    if (schedule.workers.size() <= kRowsShown) {
        print_rows(schedule);
    } else {
        print_histogram(schedule);
    }
    print_line("balance",
               fmt::format("busiest {}, mean {:.1f} ({:.3f} of it), bound {}; {} to merge", grouped(schedule.max_cost),
                           schedule.mean_cost,
                           schedule.mean_cost > 0 ? static_cast<double>(schedule.max_cost) / schedule.mean_cost : 1,
                           grouped(schedule.cost_bound), count_text(schedule.partial_pieces, "piece")));
    if (plan.device.device.type == DeviceType::kCpu) {
        print_line("", "on the CPU threads take pieces as they come free; the rows show an even share");
    }
}

void print_cost(const DecodePlan& plan, const Prediction& cost) {
    fmt::print("\nCost\n");
    print_line("bytes",
               fmt::format("{}: cache {}, queries {}, results {}; partial results {} (written and read in cache)",
                           bytes_text(cost.kv_bytes + cost.q_bytes + cost.out_bytes), bytes_text(cost.kv_bytes),
                           bytes_text(cost.q_bytes), bytes_text(cost.out_bytes), bytes_text(cost.partial_bytes)));
    print_line("FLOPs", fmt::format("{:.4g}", cost.flops));
    if (cost.roofline_seconds > 0) {
        print_line("roofline",
                   fmt::format("{}: memory {} at {} GB/s, arithmetic {} at {} TFLOPS; {} binds",
                               time_text(cost.roofline_seconds * 1e3), time_text(cost.memory_seconds * 1e3),
                               grouped(plan.device.memory_gbps, 0), time_text(cost.compute_seconds * 1e3),
                               grouped(plan.device.matrix_tflops, 0), cost.memory_bound ? "memory" : "arithmetic"));
    } else {
        print_line("roofline",
                   "the rates of this device are not known; `flashmla run` measures them, --gpu h200 names some");
    }
}

void print_text(const DecodePlan& plan, const bench::Lengths& lengths, const ScheduleExplanation& schedule,
                const Prediction& cost) {
    std::int64_t total = 0;
    for (const std::int32_t length : lengths) total += length;
    fmt::print("Plan for {} with {} in all, {}, {} a request, on {}\n", count_text(plan.shape.b, "request"),
               count_text(total, "cached token"), count_text(plan.shape.h_q, "head"),
               count_text(plan.shape.s_q, "query token"), device_text(plan.device));
    print_line("kernel", plan.kernel);
    print_line("because", plan.reason);
    for (const KernelVerdict& verdict : plan.verdicts) {
        if (!verdict.chosen) print_line("not", fmt::format("{}: {}", verdict.kernel, verdict.reason));
    }
    print_line("workspace", bytes_text(static_cast<double>(plan.workspace_bytes)));
    for (const WorkspaceRegion& region : workspace_regions(plan)) {
        print_line(
            "", fmt::format("{} at {}: {}", region.name, region.offset, bytes_text(static_cast<double>(region.bytes))));
    }
    print_schedule(plan, schedule);
    print_cost(plan, cost);
}

Json schedule_json(const ScheduleExplanation& schedule) {
    Json workers = Json::array();
    for (const WorkerSchedule& worker : schedule.workers) {
        Json pieces = Json::array();
        for (const SchedulePiece& piece : worker.pieces) {
            pieces.push_back({{"request", piece.request},
                              {"kv_head", piece.kv_head},
                              {"first_row_tile", piece.first_row_tile},
                              {"row_tiles", piece.row_tiles},
                              {"key_tile_begin", piece.key_tile_begin},
                              {"key_tile_end", piece.key_tile_end},
                              {"partial", piece.partial}});
        }
        workers.push_back({{"cost", worker.cost}, {"pieces", pieces}});
    }
    return {{"key_tile_tokens", schedule.key_tile_tokens},
            {"visit_cost", schedule.visit_cost},
            {"chunk_key_tiles", schedule.chunk_key_tiles},
            {"row_tiles", schedule.row_tiles},
            {"max_cost", schedule.max_cost},
            {"mean_cost", schedule.mean_cost},
            {"cost_bound", schedule.cost_bound},
            {"partial_pieces", schedule.partial_pieces},
            {"workers", workers}};
}

Json to_json(const DecodePlan& plan, const bench::Lengths& lengths, const ScheduleExplanation& schedule,
             const Prediction& cost) {
    Json document = json_header("plan");
    document["shape"] = shape_json(plan.shape);
    document["lengths"] = lengths;
    document["device"] = device_json(plan.device);
    document["kernel"] = plan.kernel;
    document["reason"] = plan.reason;
    document["verdicts"] = Json::array();
    for (const KernelVerdict& verdict : plan.verdicts) {
        document["verdicts"].push_back(
            {{"kernel", verdict.kernel}, {"chosen", verdict.chosen}, {"reason", verdict.reason}});
    }
    document["num_workers"] = plan.num_workers;
    document["row_tiles_per_worker"] = plan.row_tiles_per_worker;
    document["workspace_bytes"] = plan.workspace_bytes;
    document["workspace"] = Json::array();
    for (const WorkspaceRegion& region : workspace_regions(plan)) {
        document["workspace"].push_back({{"name", region.name}, {"offset", region.offset}, {"bytes", region.bytes}});
    }
    document["schedule"] = schedule_json(schedule);
    document["cost"] = {{"kv_bytes", cost.kv_bytes},
                        {"q_bytes", cost.q_bytes},
                        {"out_bytes", cost.out_bytes},
                        {"partial_bytes", cost.partial_bytes},
                        {"flops", cost.flops},
                        {"memory_ms", cost.memory_seconds * 1e3},
                        {"compute_ms", cost.compute_seconds * 1e3},
                        {"roofline_ms", cost.roofline_seconds * 1e3},
                        {"memory_bound", cost.memory_bound}};
    return document;
}

ExitCode plan(const PlanCommandOptions& options, bool json) {
    const bench::Lengths lengths = chosen_lengths(options.batch, kDefaultLengths);
    const DeviceInfo device = planned_device(options);
    std::int64_t longest = 0;
    for (const std::int32_t length : lengths) longest = std::max<std::int64_t>(longest, length);
    const DecodeShape shape{.b = static_cast<std::int64_t>(lengths.size()),
                            .s_q = options.batch.s_q,
                            .h_q = options.batch.heads,
                            .h_kv = 1,
                            .d_qk = options.batch.d_qk,
                            .d_v = options.batch.d_v,
                            .page_size = options.batch.page,
                            .max_pages = (longest + options.batch.page - 1) / options.batch.page,
                            .dtype = options.batch.dtype_value(),
                            .format = cache_format_16bit(options.batch.dtype_value()),
                            .causal = options.batch.causal};
    const PlanOptions plan_options{.batch_invariant = options.batch.batch_invariant,
                                   .kernel = options.batch.kernel,
                                   .num_workers = options.workers > 0 ? options.workers : options.batch.threads};
    const DecodePlan made = require(plan_decode(shape, device, plan_options));
    const ScheduleExplanation schedule = require(explain_schedule(made, lengths));
    const Prediction cost = require(predict_decode(made, lengths));
    if (json) {
        print_json(to_json(made, lengths, schedule, cost));
    } else {
        print_text(made, lengths, schedule, cost);
    }
    return kExitOk;
}

}  // namespace

void add_plan(CLI::App& app, Selected& selected) {
    CLI::App* command = add_command(
        app, selected, "plan", "Show the kernel chosen, why, the schedule, and the least cost; computes nothing",
        {"flashmla plan --gpu h200", "flashmla plan --gpu h200 --lengths 131072 --heads 16 --workers 16",
         "flashmla plan --trace requests.csv --requests 128 --gpu h200 --json", "flashmla plan --device cpu"});
    auto options = std::make_shared<PlanCommandOptions>();
    add_length_options(*command, options->batch);
    add_shape_options(*command, options->batch);
    add_device_options(*command, options->batch);
    command->add_option("--gpu", options->gpu, "Plan for a GPU that need not be here (h200, h100)")
        ->excludes(command->get_option("--device"));
    command->add_option("--workers", options->workers, "Workers; 0 = all the device has")
        ->check(CLI::Range(0, 4096))
        ->capture_default_str();
    command->callback(
        [options, &selected] { selected.action = [options, &selected] { return plan(*options, selected.json); }; });
}

}  // namespace flashmla::cli
