// The kinds of fault that users of such kernels met in public, one small case for each kind, for decode from every
// cache format. The numbers in the names are the project's own list of these kinds; other operations' tests say theirs
// in words.
#pragma once

#include "support/decode_families.hpp"

namespace flashmla::testing_support {

// Dense decode: empty requests and pools, idle slots, padded slots, poisoned tails, every page size and order, packed
// pools, strides.
Family dense_field_cases();

// Sparse decode: the same where it applies; every head count and list width, rows without a key, lists with lengths.
Family sparse_field_cases();

// Dense decode of one request longer than any constant that someone might have built in; a second or so each.
Family long_field_cases();

}  // namespace flashmla::testing_support
