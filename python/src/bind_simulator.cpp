// simulate_decoding_step under the published simulator's result keys.
#include <cstdint>

#include "bind.hpp"
#include "flashmla/simulator.hpp"
#include "raise.hpp"

namespace nb = nanobind;

namespace flashmla::python {
namespace {

nb::dict simulate_decoding_step(std::int64_t num_heads, std::int64_t head_dim, std::int64_t latent_dim,
                                std::int64_t rope_dim, std::int64_t page_block_size, std::int64_t batch_size,
                                std::int64_t context_len, std::uint64_t seed, int num_threads) {
    const SimulatorConfig config{.num_heads = num_heads,
                                 .head_dim = head_dim,
                                 .latent_dim = latent_dim,
                                 .rope_dim = rope_dim,
                                 .page_block_size = page_block_size};
    SimulatorOptions options;
    options.seed = seed;
    options.num_threads = num_threads;
    const Result<SimulatedStep> result = [&] {
        const nb::gil_scoped_release released;
        return flashmla::simulate_decoding_step(config, batch_size, context_len, options);
    }();
    raise_if_failed(result.status());
    const SimulatedStep& step = result.value();
    nb::dict named;
    named["batch_size"] = step.batch_size;
    named["context_len"] = step.context_len;
    named["total_tokens_evaluated"] = step.total_tokens_evaluated;
    named["mha_memory_mb"] = step.mha_memory_mb;
    named["flashmla_memory_mb"] = step.flashmla_memory_mb;
    named["memory_reduction_ratio"] = step.memory_reduction_ratio;
    named["numerical_max_error"] = step.numerical_max_error;
    named["mathematical_parity"] = step.mathematical_parity;
    return named;
}

}  // namespace

void bind_simulator(nb::module_& module) {
    module.def("simulate_decoding_step", &simulate_decoding_step, nb::arg("num_heads"), nb::arg("head_dim"),
               nb::arg("latent_dim"), nb::arg("rope_dim"), nb::arg("page_block_size"), nb::arg("batch_size"),
               nb::arg("context_len"), nb::arg("seed"), nb::arg("num_threads"));
}

}  // namespace flashmla::python
