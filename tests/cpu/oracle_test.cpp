// Every path against the oracle, within the derived bound, on the families of hard cases.
#include <gtest/gtest.h>

#include "cpu/paths.hpp"
#include "support/check_decode.hpp"
#include "support/decode_families.hpp"
#include "support/field_families.hpp"
#include "support/sparse_families.hpp"

namespace flashmla::cpu_tests {
namespace {

using testing_support::Family;

struct PathCase {
    CpuPath path;
    reference::DecodeSpec spec;
};

void PrintTo(const PathCase& value, std::ostream* stream) {
    *stream << value.path.name << ": " << describe(value.spec);
}

class Oracle : public testing::TestWithParam<PathCase> {};

TEST_P(Oracle, Matches) {
    const auto& [path, spec] = GetParam();
    // Rows that the oracle computes cost far more than the kernel; the emulated paths repeat what the native ones
    // check.
    const std::int64_t oracle_keys = kSanitized ? 1'000 : path.emulated ? 20'000 : 60'000;
    EXPECT_TRUE(testing_support::matches_oracle(
        spec, [&](const DecodeArgs& args) { return run(path, args); },
        rounding_model(path, spec.dtype, cache_format(spec)), oracle_keys));
}

std::vector<PathCase> on_every_path(const Family& family, bool emulated_too) {
    std::vector<PathCase> cases;
    for (const CpuPath& path : cpu_paths()) {
        if (path.emulated && !emulated_too) continue;
        const std::size_t step = kSanitized ? 5 : 1;  // a prime, so that alternating properties of the specs all occur
        for (std::size_t i = 0; i < family.size(); i += step) cases.push_back({path, family[i]});
    }
    return cases;
}

// Many cases: all on the widest path, every fifth on the other native ones.
std::vector<PathCase> mostly_on_the_widest_path(const Family& family) {
    std::vector<PathCase> cases;
    std::size_t step = kSanitized ? 11 : 1;  // primes: see above
    for (const CpuPath& path : native_paths()) {
        for (std::size_t i = 0; i < family.size(); i += step) cases.push_back({path, family[i]});
        step = kSanitized ? 11 : 5;
    }
    return cases;
}

// Seconds a case: on the widest path only, and not under a sanitizer.
std::vector<PathCase> on_the_widest_path(const testing_support::Family& family) {
    std::vector<PathCase> cases;
    if (kSanitized) return cases;
    const CpuPath& widest = cpu_paths().front();  // native paths stand first, from the widest on
    for (std::size_t i = 0; i < family.size(); ++i) cases.push_back({widest, family[i]});
    return cases;
}

std::string name_of(const testing::TestParamInfo<PathCase>& info) {
    return info.param.path.name + "_" + testing_support::test_name({info.param.spec, info.index});
}

#define FLASHMLA_FAMILY(title, family, emulated_too) \
    INSTANTIATE_TEST_SUITE_P(title, Oracle, testing::ValuesIn(on_every_path(family, emulated_too)), name_of)

FLASHMLA_FAMILY(HardData, testing_support::hard_data(), true);
FLASHMLA_FAMILY(EmptyAndShort, testing_support::empty_and_short(), true);
FLASHMLA_FAMILY(PoisonedTails, testing_support::poisoned_tails(), true);
FLASHMLA_FAMILY(ContainedNan, testing_support::contained_nan(), true);
FLASHMLA_FAMILY(HeadsAndTokens, testing_support::heads_and_tokens(), true);
FLASHMLA_FAMILY(Layouts, testing_support::layouts(), false);
FLASHMLA_FAMILY(Fp8Caches, testing_support::fp8_caches(), true);
FLASHMLA_FAMILY(IndexLists, testing_support::index_lists(), true);
FLASHMLA_FAMILY(ExtraCaches, testing_support::extra_caches(), true);
FLASHMLA_FAMILY(RandomLatent, testing_support::random_latent(23000, 36), false);
INSTANTIATE_TEST_SUITE_P(DenseField, Oracle,
                         testing::ValuesIn(mostly_on_the_widest_path(testing_support::dense_field_cases())), name_of);
INSTANTIATE_TEST_SUITE_P(SparseField, Oracle,
                         testing::ValuesIn(mostly_on_the_widest_path(testing_support::sparse_field_cases())), name_of);
INSTANTIATE_TEST_SUITE_P(LongField, Oracle, testing::ValuesIn(on_the_widest_path(testing_support::long_field_cases())),
                         name_of);
INSTANTIATE_TEST_SUITE_P(Large, Oracle, testing::ValuesIn(on_the_widest_path(testing_support::large())), name_of);

}  // namespace
}  // namespace flashmla::cpu_tests
