// Writing, reading, moving and converting the pages of a latent KV cache.
//
// A cache is a tensor (num_pages, page_size, 1, record) whose dtype and last axis tell its format (cache_format.hpp).
// 16-bit formats have their dtype; fp8 formats come as float8_e4m3fn or uint8 (int8 callers pass uint8). The last axis
// is contiguous, page and token strides are free (pools packed with other layers, pages padded); of an fp8_584 cache
// only the page stride describes real bytes, and 1 to 4,096 values make a record of the other formats. A *slot* is
// page * page_size + token within the page. Writers touch the bytes of the records they write and no others.
//
// None of these needs a plan or a workspace. On CUDA the work is enqueued on `stream`, on the CPU it is finished on
// return, spread over the machine's threads. Every error comes before the first write.
#pragma once

#include "flashmla/cache_format.hpp"
#include "flashmla/status.hpp"
#include "flashmla/tensor_view.hpp"

namespace flashmla {

enum class RotaryStyle : std::uint8_t {
    kInterleaved,  // pairs (x[2i], x[2i + 1]), as DeepSeek's models have it
    kHalves,       // pairs (x[i], x[i + d_rope / 2])
};

struct AppendArgs {
    TensorView latent{};    // (n, d_qk - d_rope) bf16, fp16 or fp32
    TensorView rope{};      // (n, d_rope), latent's dtype; rank 0 when the record has no separate rope part
    TensorView cache{};     // written; d_qk is latent's width plus rope's. fp8_656 takes 512 + 64, fp8_584 448 + 64
    TensorView slot_ids{};  // (n,) int32 or int64; negative = skip this token. A slot given twice: the last token wins

    // Optional rotary embedding of the rope part, before it is stored; both or neither.
    TensorView positions{};  // (n,) int32 or int64
    TensorView cos_sin{};    // (max_position, d_rope) fp32: d_rope / 2 cosines, then as many sines
    RotaryStyle rotary_style = RotaryStyle::kInterleaved;

    double cache_scale = 1.0;         // fp8_flat: stored = e4m3(x / cache_scale)
    bool power_of_two_scales = true;  // fp8_656: scales rounded up to powers of two; fp8_584 always does so
};

// Quantises as it goes: scale = max(amax / 448, 1e-4), value = round-to-nearest-even, saturating, of x / scale, where
// amax is the largest finite magnitude of the group. NaN stays NaN; infinity saturates; neither changes what becomes of
// the other values. The pad byte of fp8_584 is written as 0. On the CPU a slot id past the cache is an error (on a
// device it cannot be seen before the launch).
Status append(const AppendArgs& args, StreamHandle stream = nullptr);

struct GatherArgs {
    TensorView cache{};
    std::int64_t d_qk = 576;  // values a record holds
    // Which rows: slot ids, or whole requests one after the other (the others have rank 0).
    TensorView slot_ids{};     // (n,) int32 or int64; negative = a row of zeros
    TensorView block_table{};  // (b, max_pages) int32
    TensorView cu_seqlens{};   // (b + 1,) int32: request i fills rows [cu[i], cu[i + 1]) with its first tokens
    TensorView out{};          // (n, d_qk) bf16, fp16 or fp32; written in full
    double cache_scale = 1.0;  // fp8_flat: value = e4m3 * cache_scale
};

Status gather(const GatherArgs& args, StreamHandle stream = nullptr);

struct CopyPagesArgs {
    TensorView source{};       // (num_pages, page_size, 1, record)
    TensorView destination{};  // same page_size, record and dtype; may be the same cache
    std::int64_t d_qk = 576;
    // (n, 2) int32 or int64: source page, destination page. No page may be both read and written, or written twice.
    TensorView page_pairs{};
};

// Copies every record of a page, bytes as they are; padding and other layers beside them stay as they were.
Status copy_pages(const CopyPagesArgs& args, StreamHandle stream = nullptr);

struct ConvertArgs {
    TensorView source{};
    TensorView destination{};  // memory of its own, same num_pages and page_size; every token is converted
    std::int64_t d_qk = 576;
    double source_scale = 1.0;       // fp8_flat source
    double destination_scale = 1.0;  // fp8_flat destination
    bool power_of_two_scales = true;
};

// From any format to any other of the same d_qk, through fp32.
Status convert(const ConvertArgs& args, StreamHandle stream = nullptr);

}  // namespace flashmla
