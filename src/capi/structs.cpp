#include "capi/structs.hpp"

namespace flashmla::capi {

Status wrong_struct_size(const char* argument, const char* type, std::size_t got, std::size_t wanted) {
    return invalid_argument(std::string(argument) + ".struct_size: got " + std::to_string(got) + ", wanted sizeof(" +
                            type + ") = " + std::to_string(wanted) + ", as FLASHMLA_INIT sets it");
}

Status null_pointer(const char* argument, const std::string& wanted) {
    return invalid_argument(std::string(argument) + ": got a null pointer, wanted " + wanted);
}

}  // namespace flashmla::capi
