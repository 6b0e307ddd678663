// The split schedule written a second time, from its description and not from its code: rows are packed one by one, the
// line is spelled out unit by unit, and a cut is looked up in it.
#pragma once

#include <algorithm>
#include <cstdint>
#include <random>
#include <vector>

#include "plan/split_schedule.hpp"

namespace flashmla::test {

struct ScheduleCase {
    int heads = 1;
    int s_q = 1;
    int h_kv = 1;
    int row_tiles_per_unit = 1;
    bool causal = false;
    int chunk_tiles = 0;
    int visit_cost = 2;
    int workers = 1;
    std::vector<int> lengths;

    plan::WorkShape shape() const {
        return plan::count_units({.rows = core::make_row_tiling(heads, s_q, 64),
                                  .b = static_cast<int>(lengths.size()),
                                  .h_kv = h_kv,
                                  .row_tiles_per_unit = row_tiles_per_unit,
                                  .visit_cost = visit_cost,
                                  .chunk_tiles = chunk_tiles,
                                  .causal = causal,
                                  .by_groups = {}});
    }
};

class LineModel {
public:
    explicit LineModel(const ScheduleCase& c) : case_(c) {
        std::vector<int> last_token_of_tile;
        if (c.heads > 64) {
            for (int token = 0; token < c.s_q; ++token) {
                for (int head = 0; head < c.heads; head += 64) last_token_of_tile.push_back(token);
            }
        } else {
            int room = 0;  // whole tokens that still fit the open tile
            for (int token = 0; token < c.s_q; ++token) {
                if (room == 0) {
                    last_token_of_tile.push_back(token);
                    room = 64 / c.heads;
                }
                last_token_of_tile.back() = token;
                --room;
            }
        }
        for (std::size_t tile = 0; tile < last_token_of_tile.size();
             tile += static_cast<std::size_t>(c.row_tiles_per_unit)) {
            const std::size_t end =
                std::min(tile + static_cast<std::size_t>(c.row_tiles_per_unit), last_token_of_tile.size());
            last_token_.push_back(last_token_of_tile[end - 1]);
        }
        for (int request = 0; request < static_cast<int>(c.lengths.size()); ++request) {
            for (int unit = 0; unit < units(); ++unit) append_unit(request, unit);
        }
    }

    std::int64_t start(int request, int unit) const {
        return starts_[static_cast<std::size_t>(std::int64_t{request} * units() + unit)];
    }
    int units() const { return static_cast<int>(last_token_.size()) * case_.h_kv; }
    std::int64_t length() const { return length_; }

    int tiles(int request, int unit) const {
        const std::int64_t len = case_.lengths[static_cast<std::size_t>(request)];
        const std::size_t group = static_cast<std::size_t>(unit) % last_token_.size();
        const std::int64_t hidden = case_.causal ? case_.s_q - 1 - last_token_[group] : 0;
        const std::int64_t keys = std::max<std::int64_t>(0, len - hidden);
        return static_cast<int>((keys + 63) / 64);
    }

    plan::Cut cut_at(std::int64_t place) const {
        const auto next = std::upper_bound(starts_.begin(), starts_.end(), place);
        const int index = static_cast<int>(next - starts_.begin()) - 1;
        if (place >= length_) return {static_cast<int>(case_.lengths.size()), 0, 0};
        const int request = index / units();
        const int unit = index % units();
        place -= starts_[static_cast<std::size_t>(index)];
        if (case_.chunk_tiles == 0) {
            const bool visiting = place < case_.visit_cost;
            return {request, unit, visiting ? 0 : static_cast<int>(place - case_.visit_cost)};
        }
        int tile = 0;
        for (; place >= case_.visit_cost + case_.chunk_tiles; tile += case_.chunk_tiles) {
            place -= case_.visit_cost + case_.chunk_tiles;
        }
        return {request, unit, tile};
    }

    // Units a worker when none is split, the same number for all but the last ones: as few as reach. Taken when that
    // many units of the longest kind take at most 14 key tiles more than a share, and at most 7 more than units with
    // workers of their own where that is possible; 0 when not taken.
    std::int64_t whole_units_each() const {
        const auto units_in_all = static_cast<std::int64_t>(starts_.size());
        if (case_.chunk_tiles > 0 || units_in_all == 0) return 0;
        std::int64_t each = units_in_all / case_.workers;
        while (each * case_.workers < units_in_all) ++each;
        const std::int64_t cost = each * (case_.visit_cost + longest_unit_);
        if (workers_a_unit() >= 2 && cost > own_workers_cost() + kOwnMerge) return 0;
        return cost <= share() + kBalancedMerge ? each : 0;
    }
    int workers_a_unit() const { return starts_.empty() ? 0 : static_cast<int>(case_.workers / starts_.size()); }
    // Pieces of a unit with workers of its own are equal but for the last one, and as long as the largest allowed
    // number of them makes necessary: 64, or as many as have 8 key tiles each.
    int own_piece(int tiles) const {
        int most = 64;
        while (most * 8 < tiles) ++most;
        most = std::min(most, workers_a_unit());
        int piece = 1;
        while (static_cast<std::int64_t>(piece) * most < tiles) ++piece;
        return piece;
    }
    std::int64_t own_workers_cost() const { return case_.visit_cost + own_piece(longest_unit_); }
    // Workers that every unit has to itself, where there are at least two: taken when units are split, and the longest
    // unit in as many parts takes at most 7 key tiles more than a share; 0 when not taken.
    int own_workers_each() const {
        if (case_.chunk_tiles > 0 || workers_a_unit() < 2 || whole_units_each() > 0) return 0;
        return own_workers_cost() <= share() + kBalancedMerge - kOwnMerge ? workers_a_unit() : 0;
    }
    // What no worker costs more than.
    std::int64_t bound() const {
        if (case_.chunk_tiles > 0) return share() + case_.visit_cost + case_.chunk_tiles - 1;
        if (own_workers_each() > 0) return share() + kBalancedMerge - kOwnMerge;
        return share() + (whole_units_each() > 0 ? kBalancedMerge : case_.visit_cost);
    }

    // Worker w of P starts at 0 or visit_cost + w * T, T = max(1, ceil((L - visit_cost) / P)).
    std::int64_t share() const {
        std::int64_t share = 1;
        if (length_ > case_.visit_cost) {
            share = (length_ - case_.visit_cost) / case_.workers;
            if (share * case_.workers < length_ - case_.visit_cost) ++share;
        }
        return share;
    }
    plan::Cut worker_cut(int worker) const {
        if (worker == case_.workers) return cut_at(length_);
        if (const std::int64_t each = whole_units_each(); each > 0) {
            const std::int64_t unit = each * worker;
            if (unit >= static_cast<std::int64_t>(starts_.size())) return cut_at(length_);
            return {static_cast<int>(unit / units()), static_cast<int>(unit % units()), 0};
        }
        if (const int each = own_workers_each(); each > 0) {
            const int unit = worker / each;
            if (unit >= static_cast<int>(starts_.size())) return cut_at(length_);
            const int tiles = this->tiles(unit / units(), unit % units());
            const int part = own_piece(tiles);
            const int place = worker % each;
            if (place == 0 || place * part < tiles) return {unit / units(), unit % units(), place * part};
            const int next = unit + 1;
            if (next >= static_cast<int>(starts_.size())) return cut_at(length_);
            return {next / units(), next % units(), 0};
        }
        return cut_at(worker == 0 ? 0 : case_.visit_cost + share() * worker);
    }

private:
    static constexpr std::int64_t kOwnMerge = 7;        // key tiles
    static constexpr std::int64_t kBalancedMerge = 14;  // key tiles

    void append_unit(int request, int unit) {
        starts_.push_back(length_);
        const int n = tiles(request, unit);
        longest_unit_ = std::max(longest_unit_, n);
        int visits = 1;
        if (case_.chunk_tiles > 0) {
            for (std::int64_t done = case_.chunk_tiles; done < n; done += case_.chunk_tiles) ++visits;
        }
        length_ += std::int64_t{visits} * case_.visit_cost + n;
    }

    const ScheduleCase& case_;
    std::vector<int> last_token_;       // of each group of row tiles
    std::vector<std::int64_t> starts_;  // of each unit on the line
    std::int64_t length_ = 0;
    int longest_unit_ = 0;  // key tiles
};

// Seeded cases: every style of lengths and heads; `max_b` bounds the batch.
class CaseMaker {
public:
    explicit CaseMaker(std::uint64_t seed) : random_(seed) {}

    int below(int n) { return static_cast<int>(random_() % static_cast<std::uint64_t>(n)); }
    int between(int low, int high) { return low + below(high - low + 1); }
    template <class T, std::size_t N>
    T pick(const T (&values)[N]) {
        return values[below(static_cast<int>(N))];
    }

    std::vector<int> lengths(int b) {
        const int style = below(7);
        const int near = 64 * between(0, 40);
        std::vector<int> out(static_cast<std::size_t>(b));
        for (int& len : out) {
            switch (style) {
                case 0: len = 0; break;
                case 1: len = between(0, 3); break;
                case 2: len = std::max(0, near + between(-1, 1)); break;
                case 3: len = between(0, 5000); break;
                case 4: len = between(0, 2'000'000); break;
                case 5: len = below(8) == 0 ? between(0, 2'000'000) : between(0, 300); break;
                default: len = below(3) == 0 ? 0 : between(1, 40'000); break;
            }
        }
        return out;
    }

    ScheduleCase make() {
        ScheduleCase c;
        c.heads = pick({1, 2, 3, 8, 9, 12, 16, 20, 32, 63, 64, 65, 96, 126, 128, 256});
        c.s_q = pick({1, 1, 1, 1, 2, 2, 3, 4, 5, 64, 127, 128});
        c.h_kv = pick({1, 1, 1, 1, 2, 3, 8});
        c.row_tiles_per_unit = pick({1, 2, 2, 3});
        c.causal = below(2) == 0;
        c.chunk_tiles = below(3) == 0 ? pick({1, 5, 32}) : 0;
        c.visit_cost = pick({2, 2, 2, 1, 7});
        c.workers = pick({1, 2, 3, 7, 44, 66, 132, 132, 264, 1000});
        const int scale = below(200);
        const int max_b = scale == 0 ? 100'000 : scale < 30 ? 300 : 20;
        const int most_units = scale == 0 ? 400'000 : 20'000;
        const int units = LineModel(c).units();
        c.lengths = lengths(below(std::min(max_b, most_units / units + 1) + 1));
        if (c.chunk_tiles > 0) bound_chunks(c, units);
        return c;
    }

private:
    // Chunks are walked one by one: keeps a case to about 100,000 of them.
    static void bound_chunks(ScheduleCase& c, int units) {
        const std::int64_t most = std::int64_t{100'000} * 64 * c.chunk_tiles / units;
        std::int64_t total = 0;
        for (int& len : c.lengths) {
            if (total + len > most) len %= 300;
            total += len;
        }
    }

    std::mt19937_64 random_;
};

}  // namespace flashmla::test
