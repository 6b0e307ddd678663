#include <cstring>
#include <new>
#include <string>

#include "fuzz/planned_call.hpp"

namespace flashmla::fuzz {
namespace {

constexpr std::align_val_t kAlignment{FLASHMLA_WORKSPACE_ALIGNMENT};

// Fills a struct with bytes of the input, but now and then its size.
template <class T>
void scramble(Input& input, T& value) {
    auto* bytes = reinterpret_cast<std::uint8_t*>(&value);
    for (std::size_t i = 0; i < 1 + input.below(8); ++i) {
        bytes[input.below(sizeof value)] = input.take<std::uint8_t>();
    }
    if (input.below(4) != 0) value.struct_size = sizeof value;
}

void fuzz_decode_plan(Input& input) {
    flashmla_decode_shape shape;
    FLASHMLA_INIT(&shape);
    shape.dtype = FLASHMLA_BFLOAT16;
    shape.b = 3;
    shape.s_q = 2;
    shape.h_q = 16;
    shape.h_kv = 1;
    shape.d_qk = 576;
    shape.d_v = 512;
    shape.page_size = 64;
    shape.max_pages = 20;
    std::int64_t* fields[] = {
        &shape.b,         &shape.s_q,       &shape.h_q,  &shape.h_kv,       &shape.d_qk,           &shape.d_v,
        &shape.page_size, &shape.max_pages, &shape.topk, &shape.extra_topk, &shape.extra_page_size};
    for (std::size_t i = input.below(3); i > 0; --i) {
        std::int64_t& field = *input.pick(fields);
        field = wild(input, field);
    }
    if (input.below(8) == 0) scramble(input, shape);
    flashmla_device_info device = this_cpu();
    if (input.below(2) == 0) require(flashmla_named_device("h200", &device) == FLASHMLA_OK, "h200 is not known");
    if (input.below(4) == 0) scramble(input, device);
    flashmla_plan_options options;
    pick_options(input, options);
    flashmla_plan* made = nullptr;
    const flashmla_status status = flashmla_plan_decode(&shape, &device, &options, &made);
    const PlanHandle plan(made);
    require((status == FLASHMLA_OK) == (made != nullptr), "a plan without success or success without a plan");
    if (made == nullptr) return require_named_argument(status);
    flashmla_plan_info info;
    FLASHMLA_INIT(&info);
    require(flashmla_query_plan(made, &info) == FLASHMLA_OK, "a good plan says nothing");
    require(std::strlen(info.kernel) > 0 && info.num_workers >= 1, "a plan without a kernel or workers");
}

void fuzz_facts(Input& input) {
    flashmla_device_info device;
    FLASHMLA_INIT(&device);
    if (input.below(2) == 0) scramble(input, device);
    char name[9] = "h200";
    for (std::size_t i = input.below(3); i > 0; --i)
        name[input.below(8)] = static_cast<char>(input.take<std::uint8_t>());
    std::int64_t bytes = 77;
    flashmla_build_info build;
    FLASHMLA_INIT(&build);
    if (input.below(2) == 0) scramble(input, build);
    const auto format = static_cast<flashmla_cache_format>(wild(input, 4));
    const flashmla_status statuses[] = {
        flashmla_query_device(static_cast<flashmla_device_type>(wild(input, 0)), static_cast<int32_t>(wild(input, 0)),
                              &device),
        flashmla_named_device(name, &device),
        flashmla_query_build(&build),
        flashmla_cache_record_bytes(format, wild(input, 576), &bytes),
        flashmla_cache_page_bytes(format, wild(input, 576), wild(input, 64), &bytes),
    };
    require(bytes > 0, "a cache size of " + std::to_string(bytes));
    for (const flashmla_status status : statuses) {
        require(status >= FLASHMLA_OK && status <= FLASHMLA_OUT_OF_MEMORY, "status " + std::to_string(status));
    }
    (void)flashmla_kernel_name(static_cast<int32_t>(wild(input, 0)));
}

}  // namespace

Workspace::Workspace(std::size_t bytes) : data_(static_cast<std::byte*>(::operator new(bytes, kAlignment))) {}
Workspace::~Workspace() { ::operator delete(data_, kAlignment); }

flashmla_device_info this_cpu() {
    flashmla_device_info device;
    FLASHMLA_INIT(&device);
    require(flashmla_query_device(FLASHMLA_CPU, 0, &device) == FLASHMLA_OK, "the CPU is not known");
    return device;
}

void pick_options(Input& input, flashmla_plan_options& options) {
    static const char* const kernels[] = {nullptr, "", "cpu_decode_dense", "sm90_decode_dense", "no such kernel"};
    FLASHMLA_INIT(&options);
    options.num_workers = 1;
    if (input.below(4) != 0) return;
    options.batch_invariant = static_cast<std::int32_t>(input.below(3));
    options.kernel = input.pick(kernels);
    // A thread or a few: more would only take time.
    options.num_workers = static_cast<std::int32_t>(input.below(2) == 0 ? input.below(5) : wild(input, 0) & ~0xffff);
    if (input.below(8) == 0) options.struct_size = static_cast<std::uint32_t>(wild(input, options.struct_size));
}

void fuzz_plans_and_facts(Input& input) {
    if (input.below(2) == 0)
        fuzz_decode_plan(input);
    else
        fuzz_facts(input);
}

}  // namespace flashmla::fuzz
