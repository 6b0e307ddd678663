// Cache operations as their definition says: one token, one value at a time, on host tensors. Independent of the code
// under test: numbers are rounded by searching a table of all codes, places are computed from the byte maps of
// docs/kv_formats.md.
#pragma once

#include <cstdint>
#include <vector>

#include "flashmla/kv_cache.hpp"

namespace flashmla::reference {

// What an e4m3 code is worth; NaN for the two NaN codes.
double e4m3_value(std::uint8_t code);

// The code nearest to x, of two equally near ones the even one; beyond 448 the largest; NaN keeps its sign.
std::uint8_t nearest_e4m3(double x);

// The quantiser's scale for a group whose largest finite magnitude is amax.
float group_scale(double amax, bool power_of_two);

// A cache tensor as tokens. The contents of page `page`, token `token` as d_qk doubles; and back.
class CacheTokens {
public:
    CacheTokens(const TensorView& cache, std::int64_t d_qk, double flat_scale = 1);

    CacheFormat format() const { return format_; }
    std::vector<double> read(std::int64_t page, std::int64_t token) const;
    void write(std::int64_t page, std::int64_t token, const std::vector<float>& row, bool power_of_two) const;

private:
    // The address of byte `byte` of a token's record, bytes counted as in a contiguous record (584: scales from 576).
    std::uint8_t* at(std::int64_t page, std::int64_t token, std::int64_t byte) const;

    TensorView cache_;
    CacheFormat format_;
    std::int64_t d_qk_;
    float flat_scale_;
};

// The operations. Arguments must be legal.
void append(const AppendArgs& args);
void gather(const GatherArgs& args);
void convert(const ConvertArgs& args);

// Element (row, column) of a matrix, any dtype with a value.
double element(const TensorView& view, std::int64_t row, std::int64_t column);
std::int64_t index_at(const TensorView& view, std::int64_t i);

}  // namespace flashmla::reference
