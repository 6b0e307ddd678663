#include "backends/cpu/stream_copy.hpp"

#include <cstring>

#if defined(__SSE2__)
#include <emmintrin.h>
#endif

namespace flashmla::backends::cpu {
namespace {

#if defined(__SSE2__)

constexpr std::size_t kLine = 64;

// 16 bytes an instruction keep up with any memory, so that this needs no instruction set of its own.
void stream_lines(std::uint8_t* to, const std::uint8_t* from, std::size_t lines) {
    for (std::size_t line = 0; line < lines; ++line, to += kLine, from += kLine) {
        for (std::size_t at = 0; at < kLine; at += sizeof(__m128i)) {
            _mm_stream_si128(reinterpret_cast<__m128i*>(to + at),
                             _mm_loadu_si128(reinterpret_cast<const __m128i*>(from + at)));
        }
    }
}

void stream_copy(std::uint8_t* to, const std::uint8_t* from, std::size_t bytes) {
    const std::size_t head = (kLine - reinterpret_cast<std::uintptr_t>(to) % kLine) % kLine;
    if (bytes < head + kLine) {
        std::memcpy(to, from, bytes);
        return;
    }
    const std::size_t lines = (bytes - head) / kLine;
    const std::size_t done = head + lines * kLine;
    std::memcpy(to, from, head);
    stream_lines(to + head, from + head, lines);
    std::memcpy(to + done, from + done, bytes - done);
}

// Stores past the caches are not ordered with the ones by which threads tell each other that they are done.
void finish_streams() { _mm_sfence(); }

#else

void stream_copy(std::uint8_t* to, const std::uint8_t* from, std::size_t bytes) { std::memcpy(to, from, bytes); }
void finish_streams() {}

#endif

}  // namespace

Writer::~Writer() {
    if (streams_) finish_streams();
}

void Writer::write(std::uint8_t* to, const std::uint8_t* from, std::size_t bytes) const {
    if (streams_) {
        stream_copy(to, from, bytes);
    } else {
        std::memcpy(to, from, bytes);
    }
}

}  // namespace flashmla::backends::cpu
