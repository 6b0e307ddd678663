#include "cli/kv/token_diff.hpp"

#include <algorithm>
#include <cstring>

#include "cli/kv/page_stats.hpp"
#include "cli/parallel.hpp"

namespace flashmla::cli {
namespace {

constexpr std::int64_t kTokensAtATime = 256;

std::int64_t differing_codes(const std::uint8_t* a, const std::uint8_t* b, int count, int code_bytes) {
    std::int64_t differing = 0;
    for (int i = 0; i < count; ++i) differing += std::memcmp(a + i * code_bytes, b + i * code_bytes, code_bytes) != 0;
    return differing;
}

TokenBits compare_bits(const CachePages& a, const CachePages& b, std::int64_t slot) {
    const core::RecordShape shape = core::record_shape(a.cache.format, a.cache.d_qk);
    const core::RecordParts<const std::uint8_t> x = a.parts(slot);
    const core::RecordParts<const std::uint8_t> y = b.parts(slot);
    const int code_bytes = shape.e4m3 ? 1 : 2;
    // The rotary values of a format without a rotary part of its own are counted apart too.
    const int latent = shape.rope > 0 ? shape.values : shape.values - rope_dims(a.cache);
    TokenBits bits{.values = differing_codes(x.values, y.values, latent, code_bytes),
                   .rope = differing_codes(x.values + latent * code_bytes, y.values + latent * code_bytes,
                                           shape.values - latent, code_bytes)};
    if (x.scales != nullptr) bits.scales = differing_codes(x.scales, y.scales, shape.groups(), shape.packed ? 4 : 1);
    if (x.rope != nullptr) bits.rope += differing_codes(x.rope, y.rope, shape.rope, 2);
    return bits;
}

DiffTally tally_of(const TokenDiff& token, double tolerance) {
    const bool differs = token.differs();
    return {
        .tokens = 1,
        .differing = differs,
        .special = token.values.special,
        .beyond = token.values.special > 0 || token.values.largest > tolerance,
        .bits = token.bits,
        .in_tokens = {.values = token.bits.values > 0, .scales = token.bits.scales > 0, .rope = token.bits.rope > 0},
        .largest = token.values.largest,
        .sum_of_squares = token.values.sum_of_squares,
        .sum_of_a = token.values.sum_of_a,
        .first = differs ? std::vector<TokenDiff>{token} : std::vector<TokenDiff>{}};
}

}  // namespace

TokenValues compare_values(const std::vector<float>& a, const std::vector<float>& b) {
    TokenValues values;
    for (std::size_t i = 0; i < a.size(); ++i) {
        if (!std::isfinite(a[i]) || !std::isfinite(b[i])) {
            values.special += !(a[i] == b[i] || (std::isnan(a[i]) && std::isnan(b[i])));
            continue;
        }
        const double difference = std::abs(static_cast<double>(a[i]) - b[i]);
        values.sum_of_squares += difference * difference;
        values.sum_of_a += static_cast<double>(a[i]) * a[i];
        if (difference <= values.largest) continue;
        values.largest = difference;
        values.index = static_cast<int>(i);
        values.a = a[i];
        values.b = b[i];
    }
    return values;
}

void TokenValues::add(const TokenValues& other) {
    special += other.special;
    sum_of_squares += other.sum_of_squares;
    sum_of_a += other.sum_of_a;
    if (other.largest <= largest) return;
    largest = other.largest;
    index = other.index;
    a = other.a;
    b = other.b;
}

void DiffTally::add(const DiffTally& other, std::int64_t most) {
    tokens += other.tokens;
    differing += other.differing;
    special += other.special;
    beyond += other.beyond;
    bits.add(other.bits);
    in_tokens.add(other.in_tokens);
    largest = std::max(largest, other.largest);
    sum_of_squares += other.sum_of_squares;
    sum_of_a += other.sum_of_a;
    for (const TokenDiff& token : other.first) {
        if (static_cast<std::int64_t>(first.size()) < most) first.push_back(token);
    }
}

DiffTally compare_caches(const CachePages& a, const CachePages& b, double tolerance, std::int64_t most, int threads,
                         ProgressBar* bar) {
    const bool same_format = a.cache.format == b.cache.format;
    const std::int64_t tokens = a.tokens();
    const std::int64_t blocks = (tokens + kTokensAtATime - 1) / kTokensAtATime;
    std::vector<DiffTally> parts(static_cast<std::size_t>(blocks));
    parallel_items(
        blocks, threads,
        [&](std::int64_t block) {
            std::vector<float> x(static_cast<std::size_t>(a.cache.d_qk));
            std::vector<float> y(x.size());
            const std::int64_t end = std::min(tokens, (block + 1) * kTokensAtATime);
            for (std::int64_t slot = block * kTokensAtATime; slot < end; ++slot) {
                a.decode(slot, x.data());
                b.decode(slot, y.data());
                TokenDiff token{.slot = slot, .bits = {}, .values = compare_values(x, y)};
                if (same_format) token.bits = compare_bits(a, b, slot);
                parts[block].add(tally_of(token, tolerance), most);
            }
        },
        bar);
    DiffTally total;
    for (const DiffTally& part : parts) total.add(part, most);
    return total;
}

}  // namespace flashmla::cli
