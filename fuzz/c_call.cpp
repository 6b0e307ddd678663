#include "fuzz/c_call.hpp"

#include <algorithm>
#include <limits>
#include <set>
#include <string_view>
#include <utility>

namespace flashmla::fuzz {
namespace {

std::int64_t element_bytes(flashmla_dtype dtype) {
    switch (dtype) {
        case FLASHMLA_BFLOAT16:
        case FLASHMLA_FLOAT16: return 2;
        case FLASHMLA_FLOAT32:
        case FLASHMLA_INT32: return 4;
        case FLASHMLA_FLOAT8_E4M3:
        case FLASHMLA_UINT8: return 1;
        case FLASHMLA_INT64: return 8;
        default: return 0;
    }
}

bool is_integer(flashmla_dtype dtype) { return dtype == FLASHMLA_INT32 || dtype == FLASHMLA_INT64; }

using Wide = __int128;  // holds sums of products of any two strides and extents

// Bytes from the tensor's first to its last; of the records of a page, the unit they may be rounded up to counts too.
// -1 for a tensor that has no elements or makes no sense.
Wide reach(const flashmla_tensor& view, bool is_cache) {
    const std::int64_t bytes = element_bytes(view.dtype);
    if (bytes == 0 || view.rank < 1 || view.rank > FLASHMLA_MAX_RANK) return -1;
    Wide elements = 1;
    for (int axis = 0; axis < view.rank; ++axis) {
        if (view.shape[axis] < 1 || (view.stride[axis] < 0 && view.shape[axis] > 1)) return -1;
        if (view.shape[axis] > 1) elements += static_cast<Wide>(view.shape[axis] - 1) * view.stride[axis];
        if (elements > std::numeric_limits<std::int64_t>::max()) return elements;
    }
    if (!is_cache || view.rank != 4) return elements * bytes;
    constexpr Wide kGranule = 576;
    const Wide records = static_cast<Wide>(view.shape[1]) * view.shape[2];
    if (records > std::numeric_limits<std::int64_t>::max()) return records;
    const Wide page = (records * view.shape[3] * bytes + kGranule - 1) / kGranule * kGranule;
    const Wide last_page = view.shape[0] > 1 ? static_cast<Wide>(view.shape[0] - 1) * view.stride[0] * bytes : 0;
    return std::max(elements * bytes, last_page + page);
}

// Words by which messages may name what they complain about: fields, struct members and axes.
const std::set<std::string_view>& argument_words() {
    static const std::set<std::string_view> words = {"args",
                                                     "options",
                                                     "device",
                                                     "shape",
                                                     "plan",
                                                     "workspace",
                                                     "workspace_bytes",
                                                     "stream",
                                                     "kernel",
                                                     "num_workers",
                                                     "batch_invariant",
                                                     "name",
                                                     "arch",
                                                     "info",
                                                     "build",
                                                     "bytes",
                                                     "format",
                                                     "dtype",
                                                     "type",
                                                     "index",
                                                     "operation",
                                                     "causal",
                                                     "attn_sink",
                                                     "has_softmax_scale",
                                                     "softmax_scale",
                                                     "q",
                                                     "k",
                                                     "v",
                                                     "kv",
                                                     "k_cache",
                                                     "block_table",
                                                     "cache_seqlens",
                                                     "cu_seqlens_k",
                                                     "cu_seqlens_q",
                                                     "cu_seqlens_kv",
                                                     "cu_seqlens",
                                                     "indices",
                                                     "topk_length",
                                                     "extra_k_cache",
                                                     "extra_indices",
                                                     "extra_topk_length",
                                                     "descale_q",
                                                     "descale_k",
                                                     "out",
                                                     "lse",
                                                     "max_logits",
                                                     "dout",
                                                     "dlse",
                                                     "dq",
                                                     "dk",
                                                     "dv",
                                                     "forward",
                                                     "latent",
                                                     "rope",
                                                     "cache",
                                                     "slot_ids",
                                                     "positions",
                                                     "cos_sin",
                                                     "cache_scale",
                                                     "has_cache_scale",
                                                     "scale_rounding",
                                                     "rotary_style",
                                                     "source",
                                                     "destination",
                                                     "page_pairs",
                                                     "source_scale",
                                                     "destination_scale",
                                                     "has_source_scale",
                                                     "has_destination_scale",
                                                     "count",
                                                     "outs",
                                                     "lses",
                                                     "x",
                                                     "weight",
                                                     "b",
                                                     "s_q",
                                                     "h_q",
                                                     "h_kv",
                                                     "d_qk",
                                                     "d_v",
                                                     "page_size",
                                                     "max_pages",
                                                     "topk",
                                                     "extra_topk",
                                                     "extra_page_size",
                                                     "total_q",
                                                     "total_kv",
                                                     "max_seqlen_q",
                                                     "max_seqlen_kv",
                                                     "compute_capability",
                                                     "num_processors",
                                                     "smem_per_block_bytes",
                                                     "l2_bytes",
                                                     "memory"};
    return words;
}

}  // namespace

std::int64_t wild(Input& input, std::int64_t near) {
    constexpr std::int64_t kMax = std::numeric_limits<std::int64_t>::max();
    near = std::clamp<std::int64_t>(near, -(std::int64_t{1} << 40), std::int64_t{1} << 40);
    const std::int64_t values[] = {near - 1,
                                   near + 1,
                                   -near,
                                   2 * near,
                                   near / 2,
                                   0,
                                   1,
                                   2,
                                   -1,
                                   16,
                                   64,
                                   576,
                                   kMax,
                                   -kMax - 1,
                                   kMax / 2,
                                   kMax / 656,
                                   std::int64_t{1} << 32,
                                   std::int64_t{1} << 31,
                                   (std::int64_t{1} << 31) - 1,
                                   -(std::int64_t{1} << 31),
                                   static_cast<std::int64_t>(input.below(1000)),
                                   input.take<std::int64_t>()};
    return input.pick(values);
}

double wild_real(Input& input) {
    using Limits = std::numeric_limits<double>;
    const double values[] = {0,
                             -0.0,
                             1,
                             -1,
                             1e-300,
                             -1e300,
                             1e39,
                             Limits::infinity(),
                             -Limits::infinity(),
                             Limits::quiet_NaN(),
                             Limits::denorm_min(),
                             Limits::max(),
                             input.take<double>()};
    return input.pick(values);
}

void require_named_argument(flashmla_status status) {
    const std::string text = flashmla_last_error();
    require(status >= FLASHMLA_INVALID_ARGUMENT && status <= FLASHMLA_RUNTIME_ERROR,
            "status " + std::to_string(status) + " does not exist");
    // A failed launch does not happen on a CPU, and an exception is a mistake.
    require(status != FLASHMLA_RUNTIME_ERROR, "runtime error: " + text);
    std::string word;
    for (const char c : text + " ") {
        if (c == '_' || (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9')) {
            word += c;
            continue;
        }
        if (argument_words().count(word) != 0) return;
        word.clear();
    }
    require(false, "no argument is named: '" + text + "'");
}

void CCall::tensor(const char* name, const flashmla_tensor*& field, flashmla_dtype dtype,
                   std::initializer_list<std::int64_t> shape, Role role, std::int64_t limit) {
    auto added = std::make_unique<Tensor>();
    added->name = name;
    added->role = role;
    added->view = flashmla_contiguous(nullptr, dtype, static_cast<int32_t>(shape.size()), shape.begin());
    const bool is_cache = role == Role::kCache || role == Role::kWrittenCache;
    added->memory.resize(static_cast<std::size_t>(std::max<Wide>(reach(added->view, is_cache), 0)), std::byte{0x3c});
    added->view.data = added->memory.data();
    for (std::size_t i = 0;
         is_integer(dtype) && i < added->memory.size() / static_cast<std::size_t>(element_bytes(dtype)); ++i) {
        const auto value = static_cast<std::int64_t>(i) % limit;
        std::memcpy(added->memory.data() + i * static_cast<std::size_t>(element_bytes(dtype)), &value,
                    static_cast<std::size_t>(element_bytes(dtype)));
    }
    field = &added->view;
    fields_.push_back({&field, role == Role::kOutput || role == Role::kWrittenCache});
    tensors_.push_back(std::move(added));
}

void CCall::spoil_tensor(Input& input) {
    Tensor& tensor = *tensors_[input.below(tensors_.size())];
    flashmla_tensor& view = tensor.view;
    const std::size_t axis = input.below(4);
    switch (input.below(14)) {
        case 0: view.rank = static_cast<std::int32_t>(wild(input, view.rank)); break;
        case 1: view.dtype = static_cast<std::int32_t>(input.below(10)) - 1; break;
        case 2:  // with a GPU in the machine, host memory must not be passed for its own
            if (flashmla_cuda_device_count() == 0) view.device_type = static_cast<std::int32_t>(input.below(4)) - 1;
            break;
        case 3: view.device_index = static_cast<std::int32_t>(wild(input, 0)); break;
        case 4: view.data = nullptr; break;
        case 5:
            if (view.data != nullptr && tensor.memory.size() > 16) {
                view.data = tensor.memory.data() + input.below(16);
            }
            break;
        case 6:
        case 7: view.shape[axis] = wild(input, view.shape[axis]); break;
        case 8: view.stride[axis] = wild(input, view.stride[axis]); break;
        case 9: view.struct_size = static_cast<std::uint32_t>(wild(input, view.struct_size)); break;
        case 10: view.reserved = static_cast<std::int32_t>(wild(input, 0)); break;
        case 11: {
            const std::size_t other = input.below(4);
            std::swap(view.shape[axis], view.shape[other]);
            std::swap(view.stride[axis], view.stride[other]);
            break;
        }
        default:  // contents; before the call, so that they count as what was there
            if (tensor.memory.size() >= 8) {
                const auto value = is_integer(view.dtype) ? wild(input, 8) : input.take<std::int64_t>();
                const std::size_t places = tensor.memory.size() / 4 - 1;
                std::memcpy(tensor.memory.data() + 4 * input.below(std::min<std::size_t>(places, 60'000)), &value, 4);
            }
    }
}

void CCall::spoil_field(Input& input) {
    const std::size_t which = input.below(6);
    if (which == 0 && !integers_.empty()) {
        std::int32_t& field = *integers_[input.below(integers_.size())];
        field = static_cast<std::int32_t>(wild(input, field));
    } else if (which == 1 && !long_integers_.empty()) {
        std::int64_t& field = *long_integers_[input.below(long_integers_.size())];
        field = wild(input, field);
    } else if (which == 2 && !reals_.empty()) {
        *reals_[input.below(reals_.size())] = wild_real(input);
    } else if (which == 3 && !struct_sizes_.empty()) {
        std::uint32_t& field = *struct_sizes_[input.below(struct_sizes_.size())];
        field = static_cast<std::uint32_t>(wild(input, field));
    } else if (which == 4) {
        *fields_[input.below(fields_.size())].pointer = nullptr;
    } else {
        *fields_[input.below(fields_.size())].pointer = &tensors_[input.below(tensors_.size())]->view;
    }
}

void CCall::spoil(Input& input) {
    if (input.below(4) == 0)
        spoil_field(input);
    else
        spoil_tensor(input);
}

// Tensors that would reach past their memory lose it.
void CCall::keep_inside() {
    for (const auto& tensor : tensors_) {
        flashmla_tensor& view = tensor->view;
        if (view.data == nullptr) continue;
        const Wide offset = static_cast<std::byte*>(view.data) - tensor->memory.data();
        const bool is_cache = tensor->role == Role::kCache || tensor->role == Role::kWrittenCache;
        const Wide reached = reach(view, is_cache || element_bytes(view.dtype) == 1);  // one byte: may pass for a cache
        if (reached < 0 || offset + reached > static_cast<Wide>(tensor->memory.size())) view.data = nullptr;
    }
}

bool CCall::is_written(const Tensor& tensor) const {
    return std::any_of(fields_.begin(), fields_.end(),
                       [&](const Field& field) { return field.written && *field.pointer == &tensor.view; });
}

void CCall::check_memory(bool refused) const {
    for (const auto& tensor : tensors_) {
        if (!refused && is_written(*tensor)) continue;
        require(tensor->memory == tensor->before,
                tensor->name +
                    (refused ? " was written by a call that was refused: " : " is an input and was written: ") +
                    flashmla_last_error());
    }
}

void CCall::fuzz(Input& input) {
    const std::size_t changes = input.below(5);  // none now and then: then the call must be served
    for (std::size_t i = 0; i < changes; ++i) spoil(input);
    keep_inside();
    for (const auto& tensor : tensors_) tensor->before = tensor->memory;
    const flashmla_status status = call(input);
    require(changes > 0 || status == FLASHMLA_OK, std::string("a legal call refused: ") + flashmla_last_error());
    if (status != FLASHMLA_OK) require_named_argument(status);
    check_memory(status != FLASHMLA_OK);
}

}  // namespace flashmla::fuzz
