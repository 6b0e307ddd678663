// Runs the conversions of core/float_formats.hpp on raw bytes, for tests/unit/core/test_float_formats.py:
//   float_formats FORMAT decode        writes every code's value as fp32
//   float_formats FORMAT encode <in    reads fp32 values, writes their codes
#include "core/float_formats.hpp"

#include <cstdint>
#include <cstdio>
#include <string>
#include <vector>

namespace core = flashmla::core;

namespace {

template <class Code>
void decode_all(float (*decode)(Code)) {
    std::vector<float> values;
    for (std::uint32_t code = 0; code < std::uint32_t{1} << (8 * sizeof(Code)); ++code) {
        values.push_back(decode(static_cast<Code>(code)));
    }
    std::fwrite(values.data(), sizeof(float), values.size(), stdout);
}

template <class Code>
void encode_input(Code (*encode)(float)) {
    std::vector<float> values(1 << 16);
    std::vector<Code> codes(values.size());
    while (const std::size_t count = std::fread(values.data(), sizeof(float), values.size(), stdin)) {
        for (std::size_t i = 0; i < count; ++i) codes[i] = encode(values[i]);
        std::fwrite(codes.data(), sizeof(Code), count, stdout);
    }
}

template <class Code>
void run(const std::string& direction, float (*decode)(Code), Code (*encode)(float)) {
    if (direction == "decode") {
        decode_all(decode);
    } else {
        encode_input(encode);
    }
}

}  // namespace

int main(int argc, char** argv) {
    const std::string format = argc == 3 ? argv[1] : "";
    const std::string direction = argc == 3 ? argv[2] : "";
    if (direction != "decode" && direction != "encode") return 2;
    if (format == "bf16") {
        run(direction, core::bf16_to_float, core::float_to_bf16);
    } else if (format == "fp16") {
        run(direction, core::fp16_to_float, core::float_to_fp16);
    } else if (format == "e4m3") {
        run(direction, core::e4m3_to_float, core::float_to_e4m3);
    } else if (format == "e8m0") {
        run(direction, core::e8m0_to_float, core::float_to_e8m0);
    } else {
        return 2;
    }
    return 0;
}
