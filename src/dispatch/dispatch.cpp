#include "dispatch/dispatch.hpp"

#include <string>

#include "backends/cpu/absorb.hpp"
#include "backends/cpu/dense_prefill.hpp"
#include "backends/cpu/dense_prefill_backward.hpp"
#include "backends/cpu/latent_attention.hpp"
#include "backends/cpu/merge.hpp"
#include "device/cpu.hpp"
#include "device/cuda_runtime.hpp"
#include "dispatch/trace.hpp"
#if defined(FLASHMLA_WITH_CUDA)
#include "backends/sm90/decode_dense/launch.hpp"
#endif

namespace flashmla::dispatch {
namespace {

Status on_sm90(const core::DecodeCall& call) {
#if defined(FLASHMLA_WITH_CUDA)
    const device::CudaDeviceScope scope(call.plan->device.device.index);
    if (!scope.status().ok()) return scope.status();
    return backends::sm90::decode_dense::launch(call);
#else
    return unsupported("kernel " + call.plan->kernel + ": this build of flashmla was made without it");
#endif
}

Status launch(const core::DecodeCall& call) {
    switch (call.plan->kernel_id) {
        case KernelId::kCpuDecodeDense:
        case KernelId::kCpuDecodeSparse: return backends::cpu::decode(call);
        case KernelId::kSm90DecodeDense: return on_sm90(call);
        default: return invalid_argument("plan.kernel_id: not a decode kernel of the catalogue");
    }
}

Status launch(const core::SparsePrefillCall& call) {
    if (call.plan->kernel_id == KernelId::kCpuSparsePrefill) return backends::cpu::sparse_prefill(call);
    return invalid_argument("plan.kernel_id: not a sparse prefill kernel of the catalogue");
}

Status launch(const core::DensePrefillCall& call) {
    if (call.plan->kernel_id == KernelId::kCpuDensePrefill) return backends::cpu::dense_prefill(call);
    return invalid_argument("plan.kernel_id: not a dense prefill kernel of the catalogue");
}

Status launch(const core::DensePrefillBackwardCall& call) {
    if (call.forward.plan->kernel_id == KernelId::kCpuDensePrefillBackward) {
        return backends::cpu::dense_prefill_backward(call);
    }
    return invalid_argument("plan.kernel_id: not a kernel of the backward of dense prefill");
}

}  // namespace

Status decode(const core::DecodeCall& call) { return traced(call, launch); }
Status sparse_prefill(const core::SparsePrefillCall& call) { return traced(call, launch); }
Status dense_prefill(const core::DensePrefillCall& call) { return traced(call, launch); }
Status dense_prefill_backward(const core::DensePrefillBackwardCall& call) { return traced(call, launch); }

Status merge(core::MergeCall call) {
    call.threads = device::usable_threads();
    return traced(call, backends::cpu::merge);
}

Status absorb(core::AbsorbCall call) {
    call.threads = device::usable_threads();
    return traced(call, backends::cpu::absorb);
}

}  // namespace flashmla::dispatch
