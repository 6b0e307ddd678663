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
    std::array<std::int64_t, 14> numbers{};
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

Key make_key(const DecodeShape& shape, Device device, const PlanOptions& options) {
    return {
        .numbers = {shape.b, shape.s_q, shape.h_q, shape.h_kv, shape.d_qk, shape.d_v, shape.page_size, shape.max_pages,
                    static_cast<std::int64_t>(shape.dtype), shape.causal, static_cast<std::int64_t>(device.type),
                    device.index, options.batch_invariant, options.num_workers},
        .kernel = options.kernel};
}

}  // namespace

Result<std::shared_ptr<const DecodePlan>> cached_plan(const DecodeShape& shape, Device device,
                                                      const PlanOptions& options) {
    static std::mutex mutex;
    static std::unordered_map<Key, std::shared_ptr<const DecodePlan>, KeyHash> plans;
    const Key key = make_key(shape, device, options);
    const std::lock_guard lock(mutex);
    if (auto found = plans.find(key); found != plans.end()) return found->second;

    const Result<DeviceInfo> info = query_device(device);
    if (!info.ok()) return info.status();
    Result<DecodePlan> plan = plan_decode(shape, info.value(), options);
    if (!plan.ok()) return plan.status();
    if (plans.size() >= kMaxPlans) plans.clear();
    auto kept = std::make_shared<const DecodePlan>(std::move(plan).value());
    plans.emplace(key, kept);
    return kept;
}

}  // namespace flashmla::python
