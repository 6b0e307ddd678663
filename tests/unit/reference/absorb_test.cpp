// The oracle of the projections against products known without it.
#include "reference/absorb.hpp"

#include <gtest/gtest.h>

#include <vector>

namespace flashmla::reference {
namespace {

TEST(ProjectionOracle, FollowsAProductDoneByHand) {
    // Two heads of width 2, latent rank 3; weights of head 1 are ten times those of head 0.
    const std::vector<float> weight = {1, 2, 3, 4, 5, 6, 10, 20, 30, 40, 50, 60};
    const std::vector<float> query = {1, -1, 2, 0};        // (1, 2, 2)
    const std::vector<float> latent = {1, 0, 2, 0, 1, 0};  // (1, 2, 3)
    std::vector<float> out(6);
    AbsorbArgs args;
    args.weight = contiguous_view(weight.data(), DType::kFloat32, {2, 2, 3});
    args.x = contiguous_view(query.data(), DType::kFloat32, {1, 2, 2});
    args.out = contiguous_view(out.data(), DType::kFloat32, {1, 2, 3});
    EXPECT_EQ(project_row(args, Projection::kAbsorbQuery, 0, 0).out, (std::vector<double>{-3, -3, -3}));
    EXPECT_EQ(project_row(args, Projection::kAbsorbQuery, 0, 1).out, (std::vector<double>{20, 40, 60}));
    args.x = contiguous_view(latent.data(), DType::kFloat32, {1, 2, 3});
    args.out = contiguous_view(out.data(), DType::kFloat32, {1, 2, 2});
    EXPECT_EQ(project_row(args, Projection::kProjectOutput, 0, 0).out, (std::vector<double>{7, 16}));
    EXPECT_EQ(project_row(args, Projection::kProjectOutput, 0, 1).out, (std::vector<double>{20, 50}));
}

}  // namespace
}  // namespace flashmla::reference
