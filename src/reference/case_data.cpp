#include "reference/case_data.hpp"

#include <algorithm>
#include <cmath>
#include <numbers>

#include "core/float_formats.hpp"
#include "core/kv_record.hpp"

namespace flashmla::reference {
namespace {

constexpr double kLever = 8;
constexpr int kRiseKeys = 16;  // so many keys of a rising request lift the maximum

// Values that average to 0 would hide errors of long rows: every right or wrong mixture of many of them is close to 0.
// So a quarter of the columns has mean 1, and an eighth drifts from -1 to 1 along the request: the weight of every part
// shows.
float column_mean(std::int64_t column, double position) {
    if (column % 4 == 0) return 1;
    return column % 8 == 1 ? static_cast<float>(position) : 0;
}

// The size of keys' values in a column; queries have the inverse.
float group_size(const DecodeSpec& spec, std::int64_t column) {
    constexpr int kExponents[] = {-5, 0, 5, 2};
    const core::RecordShape record = core::record_shape(cache_format(spec), static_cast<int>(spec.d_qk));
    if (!spec.spread_groups || record.group == 0 || column >= record.values) return 1;
    return std::ldexp(1.0f, kExponents[column / record.group % 4]);
}

}  // namespace

CaseData::CaseData(const DecodeSpec& spec)
    : spec_(spec),
      scale_(spec.has_softmax_scale ? spec.softmax_scale : 1 / std::sqrt(static_cast<double>(spec.d_qk))) {}

double CaseData::background_std(std::int64_t request) const {
    if (spec_.keys != KeyOrder::kRising) return spec_.logit_std;
    // A tenth of the climb of kRiseKeys keys: noise never hides the climb (its tails end at 4.33 deviations).
    const double keys = std::max(spec_.lengths[request], kRiseKeys);
    return 0.1 * 2 * std::numbers::sqrt3 * spec_.logit_std * kRiseKeys / keys;
}

// -1 for the first key of a request, 1 for the last, and for those of a second cache that has more.
double CaseData::position(std::int64_t request, std::int64_t key) const {
    const std::int64_t length = spec_.lengths[request];
    if (length <= 1) return 0;
    return 2 * static_cast<double>(std::min(key, length - 1)) / static_cast<double>(length - 1) - 1;
}

double CaseData::ordered_logit(std::int64_t request, std::int64_t key) const {
    switch (spec_.keys) {
        case KeyOrder::kRandom: return 0;
        case KeyOrder::kDominantLast: return key == spec_.lengths[request] - 1 ? 20 + 6 * spec_.logit_std : 0;
        // A ramp over [-1, 1] has deviation 1 / sqrt(3).
        case KeyOrder::kRising: return std::numbers::sqrt3 * spec_.logit_std * position(request, key);
    }
    return 0;
}

// A value of the last columns as the cache holds it.
float CaseData::as_stored(float value) const {
    if (spec_.format == CacheFormat::kFp8Flat) return core::e4m3_to_float(core::float_to_e4m3(value));
    return core::decode_16bit(spec_.dtype, core::encode_16bit(spec_.dtype, value));
}

void CaseData::make_query(Random& random, std::int64_t request, float* row) const {
    const double divisor = std::abs(scale_) * std::sqrt(static_cast<double>(spec_.d_qk));
    const auto q_std = static_cast<float>(divisor > 0 ? background_std(request) / divisor : 1);
    for (std::int64_t i = 0; i < spec_.d_qk; ++i) row[i] = q_std * random.normal() / group_size(spec_, i);
    if (spec_.keys != KeyOrder::kRandom) row[spec_.d_qk - 2] = row[spec_.d_qk - 1] = kLever;
}

void CaseData::make_key(Random& random, std::int64_t request, std::int64_t key, float* row) const {
    const double where = position(request, key);
    for (std::int64_t i = 0; i < spec_.d_qk; ++i)
        row[i] = (random.normal() + column_mean(i, where)) * group_size(spec_, i);
    if (spec_.keys == KeyOrder::kRandom) return;
    const auto wanted = static_cast<float>(scale_ != 0 ? ordered_logit(request, key) / (scale_ * kLever) : 0);
    float* lever = row + spec_.d_qk - 2;
    lever[0] = as_stored(wanted);
    lever[1] = wanted - lever[0];
}

std::uint16_t poison_code(Poison poison, DType dtype) {
    const std::uint16_t infinity = dtype == DType::kBFloat16 ? 0x7f80 : 0x7c00;
    switch (poison) {
        case Poison::kNan: return infinity | 0x0001;
        case Poison::kInfinity: return infinity;
        case Poison::kMinusInfinity: return infinity | 0x8000;
        case Poison::kAllOnes: return 0xffff;
        case Poison::kZero: return 0;
    }
    return 0;
}

}  // namespace flashmla::reference
