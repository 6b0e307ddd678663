// The cases that every dense-decode backend must get right, as named families of specs with seeds.
#pragma once

#include <vector>

#include "reference/decode_spec.hpp"

namespace flashmla::testing_support {

using Family = std::vector<reference::DecodeSpec>;

// Logit deviations 0.01 to 50 x key orders x dtypes, ragged causal batches over several splits' worth of keys.
Family hard_data();

// No keys, few keys, more query tokens than keys, no requests: what users of such kernels report as crashes and NaN.
Family empty_and_short();

// Lengths at the edges of tiles and pages, each with every kind of poison behind the last key.
Family poisoned_tails();

// NaN that must stay in its own head or request.
Family contained_nan();

// Every head count and grouping, every number of query tokens.
Family heads_and_tokens();

// Head dimensions, page sizes, page orders, packed pools, strides, cumulative lengths.
Family layouts();

// Uneven batches and long requests; seconds each rather than milliseconds.
Family large();

// All of the above but large().
Family all_small();

}  // namespace flashmla::testing_support
