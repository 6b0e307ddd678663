// Every operation but 16-bit dense decode (decode_batch.hpp), as verify and bench see it: sizes, one call, a check
// against the oracle.
#pragma once

#include <CLI/CLI.hpp>
#include <cstdint>
#include <functional>
#include <memory>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "cli/operations/tensors.hpp"
#include "cli/row_check.hpp"
#include "flashmla/flashmla.hpp"

namespace flashmla::cli {

// What an operation does not know it ignores, and no record says.
struct CaseShape {
    std::int64_t b = 1;    // requests
    std::int64_t len = 0;  // tokens of a request, cached or as keys; append, gather and the like handle b * len
    std::int64_t s_q = 1;  // query tokens of a request; merge and the projections handle b * s_q rows of heads
    std::int64_t heads = 128;
    std::int64_t kv_heads = 1;
    std::int64_t topk = 0;
    std::int64_t parts = 2;  // merge
    std::int64_t d_qk = 576;
    std::int64_t d_v = 512;
    std::int64_t head_dim = 128;  // of the projections, as is the next
    std::int64_t rank = 512;      // kv_lora_rank
    std::int64_t page = 64;
    DType dtype = DType::kBFloat16;
    CacheFormat format = CacheFormat::kBFloat16;
    CacheFormat to = CacheFormat::kFp8_656;  // convert
    bool causal = false;
    bool varlen = false;   // prefill: s_q and len are the longest of a ragged batch; sparse: lists have lengths
    double deviation = 1;  // of the random data
    std::uint64_t seed = 0;
};

// Where a case runs.
struct CaseDevice {
    DeviceInfo info;
    DeviceBuffers& buffers;
    int threads = 1;
};

class OperationCase {
public:
    OperationCase(const CaseShape& shape, const CaseDevice& device)
        : shape_(shape), device_(device), tensors_(device.buffers, device.info.device, shape.seed) {}
    virtual ~OperationCase() = default;
    OperationCase(const OperationCase&) = delete;
    OperationCase& operator=(const OperationCase&) = delete;

    // One call, enqueued on the buffers' stream.
    virtual Status run() = 0;
    // About `rows` rows of the results of the last call against the oracle; 0 = all of them.
    virtual RowCheck check(std::int64_t rows) = 0;

    virtual std::string kernel() const { return {}; }  // where a plan chose one
    virtual double flops() const { return 0; }
    virtual double bytes() const = 0;  // read and written at least once

    const CaseShape& shape() const { return shape_; }
    std::string overrun() { return tensors_.overrun(); }

protected:
    CaseShape shape_;
    CaseDevice device_;
    Tensors tensors_;
};

struct OperationInfo {
    const char* name;
    const char* summary;
    std::vector<const char*> keys;  // fields of CaseShape that matter, as records name them
    std::vector<CaseShape> bench;   // standard sizes
    // A random small case of verify; nothing is larger than about max_length tokens and max_rows rows.
    CaseShape (*random)(std::uint64_t seed, std::int64_t max_length, std::int64_t max_rows);
    std::unique_ptr<OperationCase> (*make)(const CaseShape& shape, const CaseDevice& device);
    bool planned = false;  // a plan says how many threads a call takes; the others take all
};

const std::vector<OperationInfo>& operations();
const OperationInfo& operation_named(const std::string& name);
std::string operation_names();  // "decode" and the names of operations()
// A line of --help for each, with the options that change its sizes.
std::string operation_summaries();
// The positional option that takes one of operation_names(); "decode" when it is left out.
void add_operation(CLI::App& command, std::string& operation, const std::string& description);
// "--heads" for "h_q"
std::string option_of(const std::string& key);

// Those of one file each.
std::vector<OperationInfo> decode_operations();
std::vector<OperationInfo> sparse_prefill_operations();
std::vector<OperationInfo> dense_prefill_operations();
std::vector<OperationInfo> absorb_operations();
std::vector<OperationInfo> merge_operations();
std::vector<OperationInfo> cache_operations();

// OperationInfo::make of a class of cases.
template <class Case>
std::unique_ptr<OperationCase> make_case(const CaseShape& shape, const CaseDevice& device) {
    return std::make_unique<Case>(shape, device);
}

// The fields of a shape that matter to the operation: keys and values of a record.
nlohmann::ordered_json shape_facts(const OperationInfo& operation, const CaseShape& shape);
std::string facts_text(const nlohmann::ordered_json& facts);  // "b 1, len 64"
std::string shape_text(const OperationInfo& operation, const CaseShape& shape);

// ---- For checks

// `count` of [0, total), the first and the last among them; all of them for 0 or when there are no more.
std::vector<std::int64_t> sampled(std::int64_t total, std::int64_t count, std::uint64_t seed);

// One row of results: exact values, bounds, and what was computed.
struct CheckedRow {
    std::vector<double> exact, bound, got;
    std::string where;
};

// Each of `rows` held against the oracle: rows_of(row) computes what belongs to it, on `threads` threads, and must not
// throw. Infinities and NaN must match exactly.
RowCheck hold_on_threads(const std::vector<std::int64_t>& rows, int threads,
                         const std::function<std::vector<CheckedRow>(std::int64_t row)>& rows_of);

// A random number generator over a seed's draws.
class Draw {
public:
    explicit Draw(std::uint64_t seed) : seed_(seed) {}
    // In [low, high].
    std::int64_t between(std::int64_t low, std::int64_t high);
    template <class T>
    T one_of(std::initializer_list<T> choices) {
        return choices.begin()[between(0, static_cast<std::int64_t>(choices.size()) - 1)];
    }

private:
    std::uint64_t seed_;
    std::uint64_t next_ = 0;
};

// Of operations over rows of heads: b * s_q rows, sizes and dtype at random.
CaseShape random_rows(std::uint64_t seed, std::int64_t max_length, std::int64_t max_rows);

// The last axis of a rank-3 tensor in host memory at (n, h).
std::vector<double> row_of(const TensorView& view, std::int64_t n, std::int64_t h);

// [0, n) in a random order.
std::vector<std::int32_t> random_order(std::int64_t n, std::uint64_t seed);

}  // namespace flashmla::cli
