#include "backends/sm90/decode_dense/kernel.cuh"
#include "backends/sm90/decode_dense/kernels.hpp"

namespace flashmla::backends::sm90::decode_dense {

const void* pair_bf16() { return reinterpret_cast<const void*>(&flash_fwd_splitkv_mla_kernel<PairBf16>); }

}  // namespace flashmla::backends::sm90::decode_dense
