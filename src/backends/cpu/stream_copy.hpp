// Results of many megabytes go to memory past the caches: whole cache lines are written without being read first, a
// third of the traffic of a copy, and what the caches held stays there. Small results stay in the caches, where their
// reader finds them.
#pragma once

#include <cstddef>
#include <cstdint>

namespace flashmla::backends::cpu {

// From how many written bytes a call's results go past the caches: 1,000 or more times what a decode step appends, and
// more than the second-level cache of any core.
inline constexpr std::int64_t kStreamBytes = std::int64_t{4} << 20;

// Asks for the lines of [from, from + bytes) to be read into the first-level cache.
inline void prefetch_lines(const std::uint8_t* from, std::int64_t bytes) {
    for (std::int64_t at = 0; at < bytes; at += 64) __builtin_prefetch(from + at);
}

// How one thread of a call writes its results. Whoever destroys the writer has made them visible to other threads.
class Writer {
public:
    explicit Writer(std::int64_t bytes_of_call) : streams_(bytes_of_call >= kStreamBytes) {}
    ~Writer();
    Writer(const Writer&) = delete;
    Writer& operator=(const Writer&) = delete;

    // Whether it pays to put results together before they are written: lines written in part are read first after all.
    bool streams() const { return streams_; }
    void write(std::uint8_t* to, const std::uint8_t* from, std::size_t bytes) const;

private:
    const bool streams_;
};

}  // namespace flashmla::backends::cpu
