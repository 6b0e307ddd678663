// The scale of the softmax as the tile kernels want it, and the LSE that callers see.
#pragma once

namespace flashmla::backends::cpu {

// |scale| * log2(e), held to fp32's range: a finite scale must not turn 0 * scale into NaN.
float scale_to_log2(float scale);

// Scores are unscaled: exact where fp32 would overflow on the way.
double scaled(float score, float scale);

// From the largest unscaled score and the sum of weights.
double natural_lse(float max, float sum, float scale);

}  // namespace flashmla::backends::cpu
