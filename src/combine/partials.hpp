// Layout of partial results in the workspace, as the Hopper kernels write them and both merges read them.
//
// A partial result covers one row tile of 64 rows x 512 columns, normalised:
//   partial_lse       [slot][row tile of the unit][64]     base 2, -inf for a row without keys
//   partial_exponent  [slot][row tile of the unit][2][64]  per column half: values are stored divided by 2^exponent
//   partial_out       [slot][row tile of the unit][4 column quarters][8][128 threads][8]  fp16, in the order of a WGMMA
//                     accumulator: thread t holds rows r = 16 * (t / 32) + t % 32 / 4 and r + 8; its eight values are
//                     {(r, c), (r, c + 1), (r + 8, c), (r + 8, c + 1)} for c = 16 * step + 2 * (t % 4), then for c + 8.
#pragma once

#include <cstdint>

#include "core/host_device.hpp"

namespace flashmla::combine {

inline constexpr int kRowTile = 64;
inline constexpr int kQuarters = 4;                        // of 128 columns
inline constexpr int kSteps = 8;                           // of 16 columns in a quarter
inline constexpr int kPackets = kQuarters * kSteps * 128;  // 16-byte packets of a row tile

// What one 16-byte packet of a row tile holds.
struct Packet {
    int quarter, step, thread;

    FLASHMLA_HD explicit Packet(int index)
        : quarter(index / (kSteps * 128)), step(index / 128 % kSteps), thread(index % 128) {}
    FLASHMLA_HD int row(int upper) const { return 16 * (thread / 32) + thread % 32 / 4 + 8 * upper; }
    FLASHMLA_HD int half() const { return quarter / 2; }
    FLASHMLA_HD int column() const { return 128 * quarter + 16 * step + 2 * (thread % 4); }
};

}  // namespace flashmla::combine
