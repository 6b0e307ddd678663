// Kernel entries, one a translation unit (inst_*.cu).
#pragma once

namespace flashmla::backends::sm90::decode_dense {

const void* single_bf16();
const void* single_fp16();
const void* pair_bf16();
const void* pair_fp16();

}  // namespace flashmla::backends::sm90::decode_dense
