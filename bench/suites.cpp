#include "bench/suites.hpp"

namespace flashmla::bench {

namespace {

std::vector<DecodeBenchCase> dense() {
    std::vector<DecodeBenchCase> cases;
    for (const bool causal : {false, true}) {
        for (const std::int64_t s_q : {1, 2}) {
            for (const std::int64_t len : {4096, 8192, 16384, 32768}) {
                cases.push_back({.b = 128, .h_q = 128, .s_q = s_q, .mean_len = len, .ragged = true, .causal = causal});
            }
        }
    }
    return cases;
}

std::vector<DecodeBenchCase> heads() {
    std::vector<DecodeBenchCase> cases;
    for (const std::int64_t h_q : {128, 64, 32, 16, 8}) cases.push_back({.b = 128, .h_q = h_q, .mean_len = 8192});
    for (const std::int64_t b : {16, 32}) {
        for (std::int64_t len = 512; len <= 65536; len *= 2) cases.push_back({.b = b, .h_q = 16, .mean_len = len});
    }
    return cases;
}

std::vector<DecodeBenchCase> latency() {
    std::vector<DecodeBenchCase> cases;
    for (const std::int64_t h_q : {128, 16}) {
        for (const std::int64_t len : {1024, 4096, 16384, 65536, 131072})
            cases.push_back({.h_q = h_q, .mean_len = len});
    }
    for (const std::int64_t b : {8, 32}) cases.push_back({.b = b, .mean_len = 4096});
    return cases;
}

std::vector<DecodeBenchCase> quick() {
    return {{.mean_len = 1024},
            {.mean_len = 8192},
            {.b = 4, .h_q = 16, .mean_len = 4096},
            {.b = 4, .s_q = 2, .mean_len = 1024, .ragged = true, .causal = true}};
}

}  // namespace

Result<std::vector<DecodeBenchCase>> decode_suite(const std::string& name) {
    if (name == "dense") return dense();
    if (name == "heads") return heads();
    if (name == "latency") return latency();
    if (name == "quick") return quick();
    return invalid_argument("suite: got '" + name + "', want dense, heads, latency or quick");
}

}  // namespace flashmla::bench
