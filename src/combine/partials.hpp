// Layout of partial results in the workspace, as the Hopper kernels write them and both merges read them.
//
// A partial result covers one row tile of 64 rows x 512 columns, normalised:
//   partial_rows  [slot][row tile of the unit][64]  PartialRow
//   partial_out   [slot][row tile of the unit][4 groups of 16 rows][4 column quarters][8][32 lanes][8]  fp16, in the
//                 order of a WGMMA accumulator: lane l holds rows r = 16 * group + l / 4 and r + 8; its eight values
//                 are
//                 {(r, c), (r, c + 1), (r + 8, c), (r + 8, c + 1)} for c = 16 * step + 2 * (l % 4), then for c + 8.
//                 Groups without a row of the unit are not written.
#pragma once

#include <cstdint>

#include "core/host_device.hpp"

namespace flashmla::combine {

inline constexpr int kRowTile = 64;
inline constexpr int kGroupRows = 16;
inline constexpr int kQuarters = 4;                                     // of 128 columns
inline constexpr int kSteps = 8;                                        // of 16 columns in a quarter
inline constexpr int kGroupPackets = kQuarters * kSteps * 32;           // 16-byte packets of a group of rows
inline constexpr int kPackets = kRowTile / kGroupRows * kGroupPackets;  // of a row tile

struct alignas(16) PartialRow {
    float lse_log2;     // -inf for a row without keys
    float exponent[2];  // of columns 0-255 and 256-511: values are stored divided by 2^exponent
    float unused;
};

// What one 16-byte packet of a row tile holds.
struct Packet {
    int group, quarter, step, lane;

    FLASHMLA_HD explicit Packet(int index)
        : group(index / kGroupPackets),
          quarter(index / (kSteps * 32) % kQuarters),
          step(index / 32 % kSteps),
          lane(index % 32) {}
    FLASHMLA_HD int row(int upper) const { return kGroupRows * group + lane / 4 + 8 * upper; }
    FLASHMLA_HD int half() const { return quarter / 2; }
    FLASHMLA_HD int column() const { return 128 * quarter + 16 * step + 2 * (lane % 4); }
};

}  // namespace flashmla::combine
