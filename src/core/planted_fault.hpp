// Deliberate defects for testing the tests: a build with -DFLASHMLA_PLANTED_FAULT=<n> must turn the suite red.
// Every backend honours each of them that it can make, at the place where the mistake would be made; 0, the default,
// compiles to nothing. The CPU backend can also be built with -1: then the environment's FLASHMLA_PLANTED_FAULT
// chooses, so that one build serves all of them (tests/planted_faults.sh).
#pragma once

#ifndef FLASHMLA_PLANTED_FAULT
#define FLASHMLA_PLANTED_FAULT 0
#endif

namespace flashmla::core {

enum class PlantedFault {
    kNone = 0,
    kRescaleSkipped = 1,       // the accumulator is not rescaled when the running maximum rises
    kMaskOffByOne = 2,         // the causal mask lets each row see one key too many
    kSplitMergedTwice = 3,     // the merge counts the first split of a row twice
    kTailNotMasked = 4,        // keys past the length in the last tile take part
    kWrongPageStride = 5,      // pages are assumed to be packed, whatever the page stride says
    kScaleOfWrongTile = 6,     // an fp8 group gets the scale of its neighbor
    kRopeHalvesSwapped = 7,    // the two halves of the rotary part change places
    kSinkTwice = 8,            // the attention sink is applied two times
    kExtraLengthIgnored = 9,   // every entry of the extra cache's lists counts
    kMaxLogitOfWrongRow = 10,  // a row's max_logits is its neighbor's
    kDeltaForgotten = 11,      // the backward takes dout . v for its difference to dout . out
    kMergeInBase2 = 12,        // merge takes the LSEs of its parts for base-2 ones
    kWeightOfWrongHead = 13,   // a projection uses the weights of the next head
};

#if FLASHMLA_PLANTED_FAULT < 0
extern const int planted_at_run_time;  // backends/cpu/planted_fault.cpp
[[gnu::always_inline]] inline bool planted(PlantedFault fault) {
    return planted_at_run_time == static_cast<int>(fault);
}
#else
constexpr bool planted(PlantedFault fault) { return FLASHMLA_PLANTED_FAULT == static_cast<int>(fault); }
#endif

}  // namespace flashmla::core
