#include "core/cost_model.hpp"
#include "flashmla/simulator.hpp"

namespace flashmla {

namespace {

RooflineStep step(double bytes, double flops, const DeviceInfo& device) {
    const core::Roofline roofline = core::roofline(bytes, flops, device);
    return {.bytes = bytes,
            .flops = flops,
            .memory_ms = roofline.memory_seconds * 1e3,
            .compute_ms = roofline.compute_seconds * 1e3};
}

}  // namespace

Result<SimulatorRoofline> simulator_roofline(const SimulatorConfig& config, std::int64_t batch_size,
                                             std::int64_t context_len, const DeviceInfo& device) {
    if (!(device.memory_gbps > 0) || !(device.matrix_tflops > 0)) {
        return invalid_argument("device: " + device.name +
                                " has no known memory and matrix rates; name one that has, such as h200");
    }
    const std::int64_t tokens = batch_size * context_len;
    const DecodeShape latent{.b = batch_size,
                             .h_q = config.num_heads,
                             .d_qk = config.latent_dim + config.rope_dim,
                             .d_v = config.latent_dim};
    const core::DecodeCost latent_cost = core::decode_cost(latent, tokens);
    // Expanded, every head has keys and values of its own; the rotary part of a key takes part in the products but is
    // not counted as cached, as in the published comparison.
    const DecodeShape mha{
        .b = batch_size, .h_q = config.num_heads, .d_qk = config.head_dim + config.rope_dim, .d_v = config.head_dim};
    const double mha_bytes = core::mha_kv_bytes(config.num_heads, config.head_dim, tokens, DType::kBFloat16);
    return SimulatorRoofline{
        .mha = step(mha_bytes, core::decode_cost(mha, tokens).flops, device),
        .latent = step(latent_cost.kv_bytes, latent_cost.flops, device),
        .ridge_flops_per_byte = device.matrix_tflops * 1e3 / device.memory_gbps,
    };
}

}  // namespace flashmla
