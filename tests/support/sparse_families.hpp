// The cases of fp8 caches and of index lists that every decode backend with either must get right.
#pragma once

#include "support/decode_families.hpp"

namespace flashmla::testing_support {

// Dense decode from every fp8 format: dims, page sizes, hard logits, causal masks, shared pages, packed pools,
// descales, e4m3 queries, scales that are no powers of two.
Family fp8_caches();

// Lists of tokens: every width and head count, lengths, masked entries, rows without a key, page sizes, every format.
Family index_lists();

// A second cache with its own page size and lists, with and without a sink, every format.
Family extra_caches();

// Seeded mixtures of everything above.
Family random_latent(std::uint64_t first_seed, int count);

}  // namespace flashmla::testing_support
