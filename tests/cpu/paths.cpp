#include "cpu/paths.hpp"

#include <cstdlib>

#include "api/check.hpp"
#include "backends/cpu/config.hpp"
#include "backends/cpu/select_kernels.hpp"
#include "backends/cpu/worker.hpp"
#include "core/cpu_isa.hpp"
#include "cpu/emulated_kernels.hpp"

namespace flashmla::cpu_tests {
namespace {

#if defined(__SANITIZE_THREAD__)
constexpr bool kThreadSanitized = true;
#else
constexpr bool kThreadSanitized = false;
#endif

Status run_native(const CpuPath& path, const DecodeArgs& args, int num_workers) {
    const ForcedIsa forced(path.name.c_str());
    return decode(args, {.batch_invariant = false, .kernel = {}, .num_workers = num_workers});
}

// What decode() does, but with the emulated functions.
Status run_emulated(const CpuPath& path, const DecodeArgs& args, int num_workers) {
    Result<api::CheckedDecode> checked = api::check_decode(args);
    if (!checked.ok()) return checked.status();
    Result<DeviceInfo> device = query_device(args.q.device);
    if (!device.ok()) return device.status();
    Result<DecodePlan> plan = plan_decode(checked.value().shape, device.value(),
                                          {.batch_invariant = false, .kernel = {}, .num_workers = num_workers});
    if (!plan.ok()) return plan.status();
    std::vector<float> workspace(plan.value().workspace_bytes / sizeof(float));
    core::DecodeCall call = checked.value().call;
    call.plan = &plan.value();
    call.workspace = workspace.data();
    const bool pairs =
        path.name == "emulated_avx512_bf16" && backends::cpu::product_type(checked.value().shape) == DType::kBFloat16;
    backends::cpu::run_threads(backends::cpu::latent_call(call),
                               pairs ? emulated_avx512_bf16_kernels() : emulated_avx512_kernels());
    return {};
}

}  // namespace

const std::vector<CpuPath>& cpu_paths() {
    static const std::vector<CpuPath> paths = [] {
        std::vector<CpuPath> list;
        const char* only = std::getenv("FLASHMLA_CPU_ISA");
        for (core::CpuIsa isa : core::kAllCpuIsas) {
            const std::string name = core::name(isa);
            if (only != nullptr ? name == only : isa <= core::detect_cpu_isa())
                list.push_back({name, false, &run_native});
        }
        if (only == nullptr && !kThreadSanitized) {
            list.push_back({"emulated_avx512", true, &run_emulated});
            list.push_back({"emulated_avx512_bf16", true, &run_emulated});
        }
        return list;
    }();
    return paths;
}

std::vector<CpuPath> native_paths() {
    std::vector<CpuPath> paths = cpu_paths();
    std::erase_if(paths, [](const CpuPath& path) { return path.emulated; });
    return paths;
}

reference::RoundingModel rounding_model(const CpuPath& path, DType dtype, CacheFormat format) {
    return reference::cpu_model(path.name, dtype, backends::cpu::kChunkTokens, format);
}

ForcedIsa::ForcedIsa(const char* value) {
    if (const char* old = std::getenv("FLASHMLA_CPU_ISA")) {
        was_set_ = true;
        before_ = old;
    }
    setenv("FLASHMLA_CPU_ISA", value, 1);
}

ForcedIsa::~ForcedIsa() {
    if (was_set_) {
        setenv("FLASHMLA_CPU_ISA", before_.c_str(), 1);
    } else {
        unsetenv("FLASHMLA_CPU_ISA");
    }
}

}  // namespace flashmla::cpu_tests
