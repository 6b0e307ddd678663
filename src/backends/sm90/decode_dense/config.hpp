// Integers of the Hopper dense-decode kernel. The catalogue (src/plan) reads them; nothing else repeats them.
#pragma once

namespace flashmla::backends::sm90::decode_dense {

inline constexpr const char* kName = "sm90_decode_dense";
inline constexpr int kRowTile = 64;  // query rows a CTA
inline constexpr int kKeyTile = 64;  // tokens a step; equals the page size this kernel takes
inline constexpr int kDimQk = 576;
inline constexpr int kDimV = 512;
inline constexpr int kThreads = 512;  // producer, scores, values left, values right: a warpgroup each
inline constexpr int kVisitCost = 2;  // key tiles that visiting a unit costs (query load, epilogue)

// A key tile in shared memory: four pairs of 64x64 value tiles and one rope tile. Pairs pass through the ring in the
// order in which the value warpgroups free them: left 0, right 0, left 1, right 1.
inline constexpr int kPairs = 4;
constexpr int pair_column(int pair) { return pair % 2 * 256 + pair / 2 * 128; }  // first column, in ring order
inline constexpr int kRopeColumn = 512;
inline constexpr int kRingSlots = 11;
inline constexpr int kHeadPairs = 3;       // of a key tile: those that meet the register part of the query
inline constexpr int kTileBarriers = 3;    // more key tiles than the ring can hold parts of
inline constexpr int kQueryPairs = 3;      // the first pairs of the query live in registers of the scores warpgroup
inline constexpr int kQueryTailTiles = 3;  // the other three tiles stay in shared memory

// A unit has at most one piece a worker, and the merge keeps every piece's weights in shared memory. More SMs stay
// idle.
inline constexpr int kMaxWorkers = 132;

inline constexpr int kSharedBytes = 231424;  // what struct Shared takes, checked there; a Hopper CTA has 232,448
inline constexpr int kQueueSlots = 4;        // pieces that the schedule warp may be ahead

// Registers a thread, by setmaxnreg: 512 in all.
inline constexpr int kProducerRegisters = 24;
inline constexpr int kScoresRegisters = 168;
inline constexpr int kValuesRegisters = 160;
inline constexpr int kMergeRegisters = 128;  // all four

// exp2 is taken against the running maximum of earlier tiles; a thread whose 16 terms of a row sum to more than this
// makes its warp raise the maximum first.
inline constexpr float kLazySumLimit = 256.0f;

}  // namespace flashmla::backends::sm90::decode_dense
