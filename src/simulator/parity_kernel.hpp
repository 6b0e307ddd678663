// The parity computation, written once over GCC vectors of Isa::kLanes floats (Isa::Vector) and compiled once for each
// instruction set.
//
// Nearly all the time goes into expanding: context_len x 2 x head_dim x latent_dim multiply-adds for each (request,
// head). The inner block keeps 6 tokens x 2 vectors of outputs in registers and walks the latent dimension: 12
// multiply-adds for 2 vector loads and 6 broadcasts, enough to keep two FMA pipes busy on any x86 with AVX2.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>

#include "simulator/parity.hpp"

namespace flashmla::simulator {

inline constexpr int kTokenBlock = 6;
inline constexpr int kTokenTile = 16 * kTokenBlock;

template <class Isa>
struct ParityKernel {
    static constexpr int kLanes = Isa::kLanes;
    static constexpr int kPanel = 2 * kLanes;  // outputs a register block computes for each token
    using Vector = typename Isa::Vector;

    // One head's weights (head_dim, latent_dim) as panels of kPanel rows, each stored latent-major; rows past the end
    // are 0.
    static void pack(const float* w, std::int64_t head_dim, std::int64_t latent_dim, float* packed) {
        for (std::int64_t first = 0; first < head_dim; first += kPanel) {
            for (std::int64_t j = 0; j < kPanel; ++j) {
                for (std::int64_t l = 0; l < latent_dim; ++l) {
                    packed[l * kPanel + j] = first + j < head_dim ? w[(first + j) * latent_dim + l] : 0.0F;
                }
            }
            packed += latent_dim * kPanel;
        }
    }

    // out[token][0, kPanel) = panel * row[token] for a block of tokens.
    static void expand_block(const float* const* rows, const float* panel, std::int64_t latent_dim, float* out,
                             std::int64_t out_stride) {
        Vector sum[kTokenBlock][2] = {};
        for (std::int64_t l = 0; l < latent_dim; ++l) {
            const Vector w0 = *reinterpret_cast<const Vector*>(panel + l * kPanel);
            const Vector w1 = *reinterpret_cast<const Vector*>(panel + l * kPanel + kLanes);
#pragma GCC unroll 6
            for (int t = 0; t < kTokenBlock; ++t) {
                sum[t][0] += w0 * rows[t][l];
                sum[t][1] += w1 * rows[t][l];
            }
        }
#pragma GCC unroll 6
        for (int t = 0; t < kTokenBlock; ++t) {
            *reinterpret_cast<Vector*>(out + t * out_stride) = sum[t][0];
            *reinterpret_cast<Vector*>(out + t * out_stride + kLanes) = sum[t][1];
        }
    }

    // Expanded rows of a whole tile: (kTokenTile, padded head_dim).
    static void expand_tile(const float* const* rows, int tokens, const float* packed, std::int64_t latent_dim,
                            std::int64_t padded_dim, float* out) {
        for (std::int64_t first = 0; first < padded_dim; first += kPanel) {
            const float* panel = packed + first * latent_dim;
            for (int t = 0; t < tokens; t += kTokenBlock) {
                expand_block(rows + t, panel, latent_dim, out + t * padded_dim + first, padded_dim);
            }
        }
    }

    static float dot(const float* a, const float* b, std::int64_t n) {
        Vector sum[4] = {};
        std::int64_t i = 0;
        for (; i + 4 * kLanes <= n; i += 4 * kLanes) {
#pragma GCC unroll 4
            for (int part = 0; part < 4; ++part) {
                sum[part] += *reinterpret_cast<const Vector*>(a + i + part * kLanes) *
                             *reinterpret_cast<const Vector*>(b + i + part * kLanes);
            }
        }
        sum[0] = (sum[0] + sum[1]) + (sum[2] + sum[3]);
        float total = 0;
        for (int lane = 0; lane < kLanes; ++lane) total += sum[0][lane];
        for (; i < n; ++i) total += a[i] * b[i];
        return total;
    }

    // y += factor * x
    static void add_scaled(float factor, const float* x, std::int64_t n, float* y) {
        std::int64_t i = 0;
        for (; i + kLanes <= n; i += kLanes) {
            *reinterpret_cast<Vector*>(y + i) += factor * *reinterpret_cast<const Vector*>(x + i);
        }
        for (; i < n; ++i) y[i] += factor * x[i];
    }

    // Streaming softmax over weighted rows: sum holds the weighted rows, relative to the running maximum.
    struct Softmax {
        float maximum = -std::numeric_limits<float>::infinity();
        float weight = 0;

        void add(float score, const float* row, std::int64_t n, float* sum) {
            if (score > maximum) {
                const float shrink = std::exp(maximum - score);
                for (std::int64_t i = 0; i < n; ++i) sum[i] *= shrink;
                weight *= shrink;
                maximum = score;
            }
            const float p = std::exp(score - maximum);
            weight += p;
            add_scaled(p, row, n, sum);
        }
    };

    static void item(const ParityProblem& problem, std::int64_t request, std::int64_t head, ParityScratch& scratch) {
        const std::int64_t head_dim = problem.head_dim;
        const std::int64_t latent_dim = problem.latent_dim;
        const std::int64_t padded_dim = (head_dim + kPanel - 1) / kPanel * kPanel;
        const float* w_uk = problem.w_uk + head * head_dim * latent_dim;
        const float* w_uv = problem.w_uv + head * head_dim * latent_dim;
        const float* q = problem.q + (request * problem.heads + head) * (head_dim + problem.rope_dim);
        const float* q_rope = q + head_dim;

        scratch.packed_uk.resize(padded_dim * latent_dim);
        scratch.packed_uv.resize(padded_dim * latent_dim);
        scratch.k_tile.resize(kTokenTile * padded_dim);
        scratch.v_tile.resize(kTokenTile * padded_dim);
        pack(w_uk, head_dim, latent_dim, scratch.packed_uk.data());
        pack(w_uv, head_dim, latent_dim, scratch.packed_uv.data());
        scratch.expanded.assign(head_dim, 0.0F);
        scratch.absorbed.assign(head_dim, 0.0F);
        scratch.o_latent.assign(latent_dim, 0.0F);
        scratch.q_latent.assign(problem.row_dim(), 0.0F);
        for (std::int64_t d = 0; d < head_dim; ++d) {
            add_scaled(q[d], w_uk + d * latent_dim, latent_dim, scratch.q_latent.data());
        }
        std::copy(q_rope, q_rope + problem.rope_dim, scratch.q_latent.begin() + latent_dim);

        Softmax expanding;
        Softmax absorbing;
        const float* rows[kTokenTile];
        for (std::int64_t first = 0; first < problem.context_len; first += kTokenTile) {
            const int tokens = static_cast<int>(std::min<std::int64_t>(kTokenTile, problem.context_len - first));
            for (int t = 0; t < kTokenTile;
                 ++t) {  // the last block of a short tile repeats a row and ignores the result
                rows[t] = problem.cache_row(request, first + std::min(t, tokens - 1));
            }
            expand_tile(rows, tokens, scratch.packed_uk.data(), latent_dim, padded_dim, scratch.k_tile.data());
            expand_tile(rows, tokens, scratch.packed_uv.data(), latent_dim, padded_dim, scratch.v_tile.data());
            for (int t = 0; t < tokens; ++t) {
                const float* k = scratch.k_tile.data() + t * padded_dim;
                const float* v = scratch.v_tile.data() + t * padded_dim;
                const float score = dot(q, k, head_dim) + dot(q_rope, rows[t] + latent_dim, problem.rope_dim);
                expanding.add(problem.scale * score, v, head_dim, scratch.expanded.data());
                const float latent_score = dot(scratch.q_latent.data(), rows[t], problem.row_dim());
                absorbing.add(problem.scale * latent_score, rows[t], latent_dim, scratch.o_latent.data());
            }
        }
        for (std::int64_t d = 0; d < head_dim; ++d) {
            scratch.expanded[d] /= expanding.weight;
            scratch.absorbed[d] = dot(w_uv + d * latent_dim, scratch.o_latent.data(), latent_dim) / absorbing.weight;
        }
    }
};

}  // namespace flashmla::simulator
