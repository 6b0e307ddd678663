// The C interface on spoilt arguments: every call is served, or refused with a message that names an argument; nothing
// is touched but the outputs of a call that was served.
#include "fuzz/c_call.hpp"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
    using namespace flashmla::fuzz;
    static constexpr MakeCall kCalls[] = {
        make_decode, make_append, make_gather,         make_convert,       make_copy_pages,
        make_merge,  make_absorb, make_sparse_prefill, make_dense_prefill, make_dense_prefill_backward};
    Input input({data, size});
    if (input.below(8) == 0) {
        fuzz_plans_and_facts(input);
        return 0;
    }
    input.pick(kCalls)(input)->fuzz(input);
    return 0;
}
