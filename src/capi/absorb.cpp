#include "flashmla/absorb.hpp"

#include "capi/guard.hpp"
#include "capi/reader.hpp"
#include "flashmla/c/absorb.h"

namespace flashmla::capi {
namespace {

flashmla_status project(Status (*operation)(const AbsorbArgs&, StreamHandle), const flashmla_absorb_args* given,
                        StreamHandle stream) noexcept {
    return guarded([&]() -> Status {
        Reader read;
        AbsorbArgs args;
        const auto c = read.structure("args", given);
        read.reserved("args.reserved", c.reserved);
        read.tensor("x", c.x, args.x);
        read.tensor("weight", c.weight, args.weight);
        read.tensor("out", c.out, args.out);
        return read.status().ok() ? operation(args, stream) : read.status();
    });
}

}  // namespace

extern "C" {

flashmla_status flashmla_absorb_query(const flashmla_absorb_args* args, flashmla_stream stream) {
    return project(absorb_query, args, stream);
}

flashmla_status flashmla_project_output(const flashmla_absorb_args* args, flashmla_stream stream) {
    return project(project_output, args, stream);
}

}  // extern "C"

}  // namespace flashmla::capi
