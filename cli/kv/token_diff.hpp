// Two caches compared token by token.
#pragma once

#include <cmath>
#include <cstdint>
#include <vector>

#include "cli/kv/cache_file.hpp"
#include "cli/progress.hpp"

namespace flashmla::cli {

// How many codes of a token differ, part by part; all 0 for caches of different formats.
struct TokenBits {
    std::int64_t values = 0, scales = 0, rope = 0;
    std::int64_t sum() const { return values + scales + rope; }
    void add(const TokenBits& other) {
        values += other.values;
        scales += other.scales;
        rope += other.rope;
    }
};

// How far a token's values are apart.
struct TokenValues {
    double largest = 0;        // difference of two finite values
    int index = 0;             // where it is
    float a = 0, b = 0;        // the two values there
    std::int64_t special = 0;  // values that are NaN or infinite in one cache and not the same in the other
    double sum_of_squares = 0, sum_of_a = 0;

    void add(const TokenValues& other);
    // RMS of the difference over the RMS of a.
    double relative() const { return sum_of_a > 0 ? std::sqrt(sum_of_squares / sum_of_a) : 0; }
};

// Two rows of the same width.
TokenValues compare_values(const std::vector<float>& a, const std::vector<float>& b);

struct TokenDiff {
    std::int64_t slot = 0;
    TokenBits bits;
    TokenValues values;
    bool differs() const { return bits.sum() > 0 || values.largest > 0 || values.special > 0; }
};

struct DiffTally {
    std::int64_t tokens = 0, differing = 0, special = 0;
    std::int64_t beyond = 0;  // tokens with a difference past the tolerance
    TokenBits bits;           // codes that differ
    TokenBits in_tokens;      // tokens with such a code
    double largest = 0, sum_of_squares = 0, sum_of_a = 0;
    std::vector<TokenDiff> first;  // that differ, at most as many as are shown

    double relative() const { return sum_of_a > 0 ? std::sqrt(sum_of_squares / sum_of_a) : 0; }

    // Keeps at most `most` of the tokens that differ.
    void add(const DiffTally& other, std::int64_t most);
};

// Tokens of both, one by one; both have as many and the same d_qk. A difference of a value counts as beyond when it is
// larger than `tolerance`; the first `most` tokens that differ are kept.
DiffTally compare_caches(const CachePages& a, const CachePages& b, double tolerance, std::int64_t most, int threads,
                         ProgressBar* bar = nullptr);

}  // namespace flashmla::cli
