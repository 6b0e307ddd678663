#include "support/cache_case.hpp"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <set>

#include "core/cpu_isa.hpp"
#include "core/float_formats.hpp"

namespace flashmla::test {
namespace {

constexpr std::int64_t kGuard = 64;  // before the first page and after the last

std::int64_t page_stride(const PoolSpec& spec) {
    const std::int64_t record = cache_record_bytes(spec.format, spec.d_qk) + spec.record_gap_bytes;
    return spec.page_size * record + spec.page_gap_bytes;
}

DType dtype_of(CacheFormat format) {
    if (format == CacheFormat::kBFloat16) return DType::kBFloat16;
    if (format == CacheFormat::kFloat16) return DType::kFloat16;
    return format == CacheFormat::kFp8_656 ? DType::kUInt8 : DType::kFloat8E4m3;
}

}  // namespace

Pool::Pool(const PoolSpec& spec)
    : spec_(spec), bytes_(static_cast<std::size_t>(2 * kGuard + spec.num_pages * page_stride(spec)), 0xff) {}

TensorView Pool::view() {
    const DType dtype = dtype_of(spec_.format);
    const auto size = static_cast<std::int64_t>(size_bytes(dtype));
    const std::int64_t record = cache_record_bytes(spec_.format, spec_.d_qk);
    TensorView view =
        contiguous_view(bytes_.data() + kGuard, dtype, {spec_.num_pages, spec_.page_size, 1, record / size});
    view.stride[0] = page_stride(spec_) / size;
    view.stride[1] = (record + spec_.record_gap_bytes) / size;
    return view;
}

std::vector<std::size_t> Pool::record_bytes(std::int64_t page, std::int64_t token) const {
    const std::int64_t base = kGuard + page * page_stride(spec_);
    const std::int64_t record = cache_record_bytes(spec_.format, spec_.d_qk);
    std::vector<std::size_t> places;
    for (std::int64_t i = 0; i < record; ++i) {
        std::int64_t place = base + token * (record + spec_.record_gap_bytes) + i;
        if (spec_.format == CacheFormat::kFp8_584) {
            place = i < 576 ? base + token * 576 + i : base + spec_.page_size * 576 + token * 8 + i - 576;
        }
        places.push_back(static_cast<std::size_t>(place));
    }
    return places;
}

void Pool::fill(std::uint64_t seed, bool finite) {
    reference::Random random(seed);
    for (std::int64_t slot = 0; slot < slots(); ++slot) {
        const std::vector<std::size_t> places = record_bytes(slot / spec_.page_size, slot % spec_.page_size);
        const auto put = [&](std::size_t at, std::uint64_t value, int count) {
            for (int i = 0; i < count; ++i) bytes_[places[at + i]] = static_cast<std::uint8_t>(value >> (8 * i));
        };
        const auto finite_16bit = [&](std::uint64_t bits) {
            const std::uint64_t exponent = spec_.format == CacheFormat::kFloat16 ? 0x7c00 : 0x7f80;
            return finite && (bits & exponent) == exponent ? bits & ~std::uint64_t{0x4000} : bits;
        };
        const auto e4m3 = [&] {
            const std::uint64_t code = random.bits() & 0xff;
            return finite && (code & 0x7f) == 0x7f ? code - 1 : code;
        };
        const bool wide = spec_.format == CacheFormat::kBFloat16 || spec_.format == CacheFormat::kFloat16;
        for (std::size_t i = 0; wide && i < places.size(); i += 2) put(i, finite_16bit(random.bits() & 0xffff), 2);
        if (wide) continue;
        for (std::size_t i = 0; i < places.size(); ++i) put(i, e4m3(), 1);
        const std::size_t rope = spec_.format == CacheFormat::kFp8_656 ? 528 : 448;
        if (spec_.format == CacheFormat::kFp8Flat) continue;
        for (std::size_t i = 0; i < 64; ++i) put(rope + 2 * i, finite_16bit(random.bits() & 0xffff), 2);
        if (spec_.format == CacheFormat::kFp8_656) {
            for (std::size_t i = 0; i < 4; ++i) {
                const float scale = std::ldexp(1.0f + random.normal() * 0.1f, static_cast<int>(random.between(-13, 8)));
                put(512 + 4 * i, core::float_bits(scale), 4);
            }
        } else {
            for (std::size_t i = 0; i < 7; ++i) put(576 + i, static_cast<std::uint64_t>(random.between(114, 135)), 1);
        }
    }
}

std::int64_t first_stray_write(Pool& before, Pool& after, const std::vector<std::int64_t>& slots) {
    std::vector<bool> allowed(before.bytes().size());
    for (const std::int64_t slot : slots) {
        if (slot < 0) continue;
        const std::int64_t page_size = before.spec().page_size;
        for (const std::size_t place : before.record_bytes(slot / page_size, slot % page_size)) allowed[place] = true;
    }
    for (std::size_t i = 0; i < allowed.size(); ++i) {
        if (!allowed[i] && before.bytes()[i] != after.bytes()[i]) return static_cast<std::int64_t>(i);
    }
    return -1;
}

Rows::Rows(DType dtype, std::int64_t n, std::int64_t width, std::int64_t gap)
    : dtype_(dtype),
      n_(n),
      width_(width),
      stride_(width + gap),
      bytes_(static_cast<std::size_t>(n * stride_ + 1) * size_bytes(dtype), 0xff) {}

TensorView Rows::view() {
    TensorView view = contiguous_view(bytes_.data(), dtype_, {n_, width_});
    view.stride[0] = stride_;
    return view;
}

void Rows::set(std::int64_t row, std::int64_t column, float value) {
    const auto at = static_cast<std::size_t>(row * stride_ + column);
    if (dtype_ == DType::kFloat32) {
        std::memcpy(&bytes_[4 * at], &value, 4);
    } else {
        const std::uint16_t code = core::encode_16bit(dtype_, value);
        std::memcpy(&bytes_[2 * at], &code, 2);
    }
}

float Rows::get(std::int64_t row, std::int64_t column) const {
    const auto at = static_cast<std::size_t>(row * stride_ + column);
    if (dtype_ == DType::kFloat32) {
        float value = 0;
        std::memcpy(&value, &bytes_[4 * at], 4);
        return value;
    }
    std::uint16_t code = 0;
    std::memcpy(&code, &bytes_[2 * at], 2);
    return core::decode_16bit(dtype_, code);
}

void Rows::fill(std::uint64_t seed, bool finite) {
    reference::Random random(seed);
    constexpr float kSpecial[] = {0.0f, -0.0f, 0x1p-140f, -0x1p-126f, 448.0f, -448.0f, 0x1p-9f, 1e-4f};
    constexpr float kInf = std::numeric_limits<float>::infinity();
    constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
    constexpr float kNotFinite[] = {kNan, -kNan, kInf, -kInf};
    for (std::int64_t row = 0; row < n_; ++row) {
        int exponent = 0;
        for (std::int64_t column = 0; column < width_; ++column) {
            if (column % 64 == 0) exponent = static_cast<int>(random.between(-20, 12));
            float value = std::ldexp(random.normal(), exponent);
            if (random.chance(0.05)) value = random.pick(kSpecial);
            if (!finite && random.chance(0.02)) value = random.pick(kNotFinite);
            set(row, column, value);
        }
    }
}

Ids::Ids(std::vector<std::int64_t> values, bool wide) : wide_values_(std::move(values)), wide_(wide) {
    for (const std::int64_t value : wide_values_) values_.push_back(static_cast<std::int32_t>(value));
}

TensorView Ids::view() const {
    const auto n = static_cast<std::int64_t>(values_.size());
    if (wide_) return contiguous_view(wide_values_.data(), DType::kInt64, {n});
    return contiguous_view(values_.data(), DType::kInt32, {n});
}

std::vector<std::string> native_paths() {
    std::set<std::string> names;
    for (const core::CpuIsa isa : core::kAllCpuIsas) {
        if (isa <= core::detect_cpu_isa()) names.insert(core::name(isa));
    }
    return {names.begin(), names.end()};
}

}  // namespace flashmla::test
