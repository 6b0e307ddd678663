// The checks of a call that repeats the thread's last one, but for addresses and scale.
#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <iterator>
#include <utility>

#include "api/check.hpp"
#include "api/tensor_check.hpp"

namespace flashmla::api {
namespace {

constexpr TensorView DecodeArgs::*kTensors[] = {&DecodeArgs::q,
                                                &DecodeArgs::k_cache,
                                                &DecodeArgs::block_table,
                                                &DecodeArgs::cache_seqlens,
                                                &DecodeArgs::cu_seqlens_k,
                                                &DecodeArgs::indices,
                                                &DecodeArgs::topk_length,
                                                &DecodeArgs::extra_k_cache,
                                                &DecodeArgs::extra_indices,
                                                &DecodeArgs::extra_topk_length,
                                                &DecodeArgs::attn_sink,
                                                &DecodeArgs::descale_q,
                                                &DecodeArgs::descale_k,
                                                &DecodeArgs::out,
                                                &DecodeArgs::lse};

// Four numbers at once; operator== would call memcmp, 14 times a call and 5 ns each.
bool same(const std::array<std::int64_t, kMaxRank>& a, const std::array<std::int64_t, kMaxRank>& b) {
    std::int64_t difference = 0;
    for (std::size_t i = 0; i < kMaxRank; ++i) difference |= a[i] ^ b[i];
    return difference == 0;
}

bool same_layout(const TensorView& a, const TensorView& b) {
    if (a.rank != b.rank) return false;
    return !given(a) ||
           (a.dtype == b.dtype && a.device == b.device && same(a.shape, b.shape) && same(a.stride, b.stride));
}

struct Recent {
    bool known = false;
    DecodeArgs args;
    CheckedDecode checked;

    bool is_repeated_by(const DecodeArgs& now) const {
        if (!known || args.causal != now.causal) return false;
        const auto repeats = [&](TensorView DecodeArgs::*tensor) {
            const TensorView& view = now.*tensor;
            return same_layout(view, args.*tensor) && (!given(view) || (view.data != nullptr && is_aligned(view)));
        };
        return std::all_of(std::begin(kTensors), std::end(kTensors), repeats);
    }
};

}  // namespace

Result<const CheckedDecode*> check_decode_again(const DecodeArgs& args) {
    thread_local Recent recent;
    if (recent.is_repeated_by(args)) {
        set_addresses(args, recent.checked.shape, recent.checked.call);
        return &recent.checked;
    }
    recent.known = false;
    Result<CheckedDecode> checked = check_decode(args);
    if (!checked.ok()) return checked.status();
    recent = {true, args, std::move(checked).value()};
    return &recent.checked;
}

}  // namespace flashmla::api
