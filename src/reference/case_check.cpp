// The checks of a case that need no exact result.
#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>
#include <sstream>

#include "core/float_formats.hpp"
#include "reference/decode.hpp"
#include "reference/decode_case.hpp"
#include "reference/row_keys.hpp"

namespace flashmla::reference {
namespace {

// Whether the row's elements obey the rules that need no exact result.
std::string row_fault(const DecodeArgs& call, const Row& row, bool live) {
    std::ostringstream fault;
    const bool empty = RowKeys(call, row).count() == 0;
    const float lse = stored_lse(call, row);
    const std::uint16_t* out = stored_out(call, row);
    const std::int64_t d_v = call.out.shape[3];
    if (core::float_bits(lse) == DecodeCase::kUnwrittenLse) return "lse was not written";
    if (const std::uint16_t* gap = std::find(out, out + d_v, DecodeCase::kUnwrittenOut); gap != out + d_v) {
        fault << "out was not written in column " << gap - out;
        return fault.str();
    }
    if (!live) return {};
    if (empty ? lse != std::numeric_limits<float>::infinity() : !std::isfinite(lse)) {
        fault << "lse is " << lse << (empty ? " instead of +inf" : "");
        return fault.str();
    }
    for (std::int64_t d = 0; d < d_v; ++d) {
        const float value = core::decode_16bit(call.out.dtype, out[d]);
        if (empty ? value == 0 : std::isfinite(value)) continue;
        fault << "out is " << value << (empty ? " instead of 0" : "") << " in column " << d;
        return fault.str();
    }
    return {};
}

// Whether everything in the buffer that is no element of the tensor still holds the pattern.
template <class T, class Bits>
std::string guard_fault(const char* tensor, const std::vector<T>& buffer, const TensorView& view, Bits pattern) {
    std::vector<bool> is_element(buffer.size());
    const std::int64_t first = static_cast<const T*>(view.data) - buffer.data();
    const std::int64_t last_extent = view.rank == 4 ? view.shape[3] : 1;
    for (std::int64_t i = 0; i < view.shape[0]; ++i) {
        for (std::int64_t j = 0; j < view.shape[1]; ++j) {
            for (std::int64_t k = 0; k < view.shape[2]; ++k) {
                const std::int64_t row = first + i * view.stride[0] + j * view.stride[1] + k * view.stride[2];
                for (std::int64_t d = 0; d < last_extent; ++d) is_element[row + d] = true;
            }
        }
    }
    for (std::size_t i = 0; i < buffer.size(); ++i) {
        if (is_element[i] || std::bit_cast<Bits>(buffer[i]) == pattern) continue;
        std::ostringstream fault;
        fault << "a guard of " << tensor << " was overwritten, " << static_cast<std::int64_t>(i) - first
              << " elements from its first";
        return fault.str();
    }
    return {};
}

}  // namespace

std::string DecodeCase::structural_fault() const {
    if (inputs_changed()) return "an input was written to";
    const DecodeArgs call = args();
    for (std::int64_t i = 0; i < call.out.shape[0]; ++i) {
        for (std::int64_t t = 0; t < spec_.s_q; ++t) {
            for (std::int64_t h = 0; h < spec_.h_q; ++h) {
                const Row row{i, t, h};
                if (std::string fault = row_fault(call, row, is_live(row)); !fault.empty())
                    return fault + " at " + describe(row);
            }
        }
    }
    std::string fault = guard_fault("out", out_, call.out, DecodeCase::kUnwrittenOut);
    return fault.empty() ? guard_fault("lse", lse_, call.lse, DecodeCase::kUnwrittenLse) : fault;
}

}  // namespace flashmla::reference
