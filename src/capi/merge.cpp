#include "flashmla/merge.hpp"

#include <string>
#include <vector>

#include "capi/guard.hpp"
#include "capi/reader.hpp"
#include "flashmla/c/merge.h"

namespace flashmla::capi {
namespace {

void read_parts(Reader& read, const char* name, const flashmla_tensor* const* given, std::int32_t count,
                std::vector<TensorView>& views) {
    read.pointer(name, given, "count tensors");
    for (std::int32_t i = 0; i < count && read.status().ok(); ++i) {
        const std::string element = std::string(name) + "[" + std::to_string(i) + "]";
        read.pointer(element.c_str(), given[i], "a flashmla_tensor");
        TensorView view;
        read.tensor(element.c_str(), given[i], view);
        views.push_back(view);
    }
}

Status merge_parts(const flashmla_merge_args* given, StreamHandle stream) {
    Reader read;
    const auto c = read.structure("args", given);
    read.range("count", c.count, 1, INT32_MAX);
    MergeArgs args;
    std::vector<TensorView> outs, lses;
    read_parts(read, "outs", c.outs, c.count, outs);
    read_parts(read, "lses", c.lses, c.count, lses);
    read.tensor("out", c.out, args.out);
    read.tensor("lse", c.lse, args.lse);
    if (!read.status().ok()) return read.status();
    args.outs = outs;
    args.lses = lses;
    return merge(args, stream);
}

}  // namespace

extern "C" flashmla_status flashmla_merge(const flashmla_merge_args* args, flashmla_stream stream) {
    return guarded([&] { return merge_parts(args, stream); });
}

}  // namespace flashmla::capi
