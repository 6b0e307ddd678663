// Runs a fuzz target without a fuzzing engine: inputs are functions of (seed, number), so any compiler can build it, a
// run is bounded, and a failure can be repeated.
//
//   fuzz_NAME [--seconds S] [--runs N] [--seed X] [--first I]     random inputs; --seconds 0: no limit
//   fuzz_NAME FILE...                                             these inputs
#include <chrono>
#include <csignal>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <iterator>
#include <string>
#include <string_view>
#include <vector>

#include "core/random.hpp"
#include "fuzz/input.hpp"

// The sanitizers end in an abort, whose handler says which input it was.
extern "C" const char* __asan_default_options() { return "abort_on_error=1"; }
extern "C" const char* __ubsan_default_options() { return "abort_on_error=1:print_stacktrace=1"; }

namespace {

struct Options {
    double seconds = 10;
    std::uint64_t runs = UINT64_MAX;
    std::uint64_t seed = 1;
    std::uint64_t first = 0;
};

constexpr std::uint64_t kMaxBytes = 512;

Options options;
std::uint64_t current = 0;
const char* current_file = nullptr;

void say_which_input() {
    if (current_file != nullptr) {
        std::fprintf(stderr, "fuzz: failed on %s\n", current_file);
    } else {
        std::fprintf(stderr, "fuzz: failed on --seed %llu --first %llu --runs 1\n",
                     static_cast<unsigned long long>(options.seed), static_cast<unsigned long long>(current));
    }
}

void on_signal(int signal) {
    say_which_input();
    std::signal(signal, SIG_DFL);
    std::raise(signal);
}

std::vector<std::uint8_t> input_number(std::uint64_t number) {
    using flashmla::core::random_bits;
    const std::uint64_t stream = random_bits(options.seed, number);
    std::vector<std::uint8_t> bytes(flashmla::core::random_below(stream, 0, kMaxBytes) + 1);
    for (std::size_t i = 0; i < bytes.size(); ++i) bytes[i] = static_cast<std::uint8_t>(random_bits(stream, i + 1));
    return bytes;
}

bool read_options(const std::vector<std::string>& arguments) {
    for (std::size_t i = 0; i < arguments.size(); i += 2) {
        if (i + 1 == arguments.size()) return false;
        const char* value = arguments[i + 1].c_str();
        char* end = nullptr;
        if (arguments[i] == "--seconds")
            options.seconds = std::strtod(value, &end);
        else if (arguments[i] == "--runs")
            options.runs = std::strtoull(value, &end, 10);
        else if (arguments[i] == "--seed")
            options.seed = std::strtoull(value, &end, 10);
        else if (arguments[i] == "--first")
            options.first = std::strtoull(value, &end, 10);
        if (end == nullptr || end == value || *end != '\0') return false;
    }
    return true;
}

void run_files(const std::vector<std::string>& paths) {
    for (const std::string& path : paths) {
        current_file = path.c_str();
        std::ifstream file(path, std::ios::binary);
        const std::vector<char> bytes{std::istreambuf_iterator<char>(file), {}};
        LLVMFuzzerTestOneInput(reinterpret_cast<const std::uint8_t*>(bytes.data()), bytes.size());
    }
    std::printf("fuzz: %zu files\n", paths.size());
}

void run_random() {
    const auto start = std::chrono::steady_clock::now();
    const auto seconds = [start] {
        return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
    };
    std::uint64_t done = 0;
    for (; done < options.runs && (options.seconds <= 0 || seconds() < options.seconds); ++done) {
        current = options.first + done;
        const std::vector<std::uint8_t> bytes = input_number(current);
        LLVMFuzzerTestOneInput(bytes.data(), bytes.size());
    }
    std::printf("fuzz: %llu inputs of seed %llu in %.1f s\n", static_cast<unsigned long long>(done),
                static_cast<unsigned long long>(options.seed), seconds());
}

}  // namespace

int main(int argc, char** argv) {
    const std::vector<std::string> arguments(argv + 1, argv + argc);
    std::signal(SIGABRT, on_signal);
#if !defined(__SANITIZE_ADDRESS__)  // which reports these itself
    for (const int signal : {SIGSEGV, SIGBUS, SIGFPE, SIGILL}) std::signal(signal, on_signal);
#endif
    const bool files = !arguments.empty() && !arguments[0].starts_with("--");
    if (files) {
        run_files(arguments);
    } else if (read_options(arguments)) {
        run_random();
    } else {
        std::fprintf(stderr, "usage: [--seconds S] [--runs N] [--seed X] [--first I] or FILE...\n");
        return 2;
    }
}
