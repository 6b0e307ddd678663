// Fuzz input as a stream of decisions: zeros once it has run dry, so every input is a complete one.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <span>
#include <string>

namespace flashmla::fuzz {

class Input {
public:
    explicit Input(std::span<const std::uint8_t> bytes) : bytes_(bytes) {}

    bool empty() const { return bytes_.empty(); }
    std::span<const std::uint8_t> rest() const { return bytes_; }

    template <class T>
    T take() {
        T value{};
        const std::size_t count = bytes_.size() < sizeof(T) ? bytes_.size() : sizeof(T);
        std::memcpy(&value, bytes_.data(), count);
        bytes_ = bytes_.subspan(count);
        return value;
    }

    // In [0, n), n from 1 to 2^16.
    std::size_t below(std::size_t n) { return take<std::uint16_t>() % n; }

    template <class T, std::size_t N>
    T pick(const T (&choices)[N]) {
        return choices[below(N)];
    }

private:
    std::span<const std::uint8_t> bytes_;
};

// What must hold, whatever the input; the driver says which input it was.
inline void require(bool holds, const std::string& what) {
    if (holds) return;
    std::fprintf(stderr, "fuzz: %s\n", what.c_str());
    std::abort();
}

}  // namespace flashmla::fuzz

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size);
