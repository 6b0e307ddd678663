#include "plan_cache.hpp"

#include <array>
#include <mutex>
#include <string>
#include <unordered_map>

#include "flashmla/device.hpp"

namespace flashmla::python {
namespace {

// Engines vary the batch and the table's width, so distinct shapes are many but not unbounded: about 1 KB a plan.
constexpr std::size_t kMaxPlans = 4096;

struct Key {
    std::array<std::int64_t, 20> numbers{};
    std::string kernel;
    friend bool operator==(const Key&, const Key&) = default;
};

struct KeyHash {
    std::size_t operator()(const Key& key) const {
        std::uint64_t hash = std::hash<std::string>{}(key.kernel);
        for (std::int64_t number : key.numbers) {
            hash = (hash ^ static_cast<std::uint64_t>(number)) * 0x9E3779B97F4A7C15u;
            hash ^= hash >> 32;
        }
        return hash;
    }
};

// Read off unchecked views: a call that is wrong either finds nothing, or a plan that run_decode refuses for it.
Key make_key(const DecodeArgs& args, const PlanOptions& options) {
    const auto& q = args.q.shape;
    const auto& cache = args.k_cache.shape;
    return {
        .numbers = {q[0], q[1], q[2], cache[2], q[3], args.out.shape[3], cache[1], args.block_table.shape[1],
                    static_cast<std::int64_t>(args.q.dtype), args.causal, static_cast<std::int64_t>(args.q.device.type),
                    args.q.device.index, options.batch_invariant, options.num_workers,
                    // what sparse calls and fp8 caches add to a shape
                    static_cast<std::int64_t>(args.k_cache.dtype), cache[3], args.indices.shape[2],
                    args.extra_k_cache.shape[1], args.extra_indices.shape[2], args.attn_sink.rank},
        .kernel = options.kernel};
}

Result<DecodePlan> make_plan(const DecodeArgs& args, const PlanOptions& options) {
    const Result<DecodeShape> shape = decode_shape(args);
    if (!shape.ok()) return shape.status();
    const Result<DeviceInfo> device = query_device(args.q.device);
    if (!device.ok()) return device.status();
    return plan_decode(shape.value(), device.value(), options);
}

}  // namespace

Result<std::shared_ptr<const DecodePlan>> cached_plan(const DecodeArgs& args, const PlanOptions& options) {
    static std::mutex mutex;
    static std::unordered_map<Key, std::shared_ptr<const DecodePlan>, KeyHash> plans;
    const Key key = make_key(args, options);
    const std::lock_guard lock(mutex);
    if (auto found = plans.find(key); found != plans.end()) return found->second;

    Result<DecodePlan> plan = make_plan(args, options);
    if (!plan.ok()) return plan.status();
    if (plans.size() >= kMaxPlans) plans.clear();
    auto kept = std::make_shared<const DecodePlan>(std::move(plan).value());
    plans.emplace(key, kept);
    return kept;
}

}  // namespace flashmla::python
