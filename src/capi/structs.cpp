#include "capi/structs.hpp"

namespace flashmla::capi {

Status check_struct_size(const char* argument, const void* given, const StructSizes& sizes) {
    if (given == nullptr) return null_pointer(argument, std::string("a ") + sizes.type);
    std::uint32_t size = 0;
    std::memcpy(&size, given, sizeof size);
    if (size >= sizes.smallest && size <= sizes.largest) return {};
    return invalid_argument(std::string(argument) + ".struct_size: got " + std::to_string(size) + ", wanted sizeof(" +
                            sizes.type + ") = " + std::to_string(sizes.largest) + ", as FLASHMLA_INIT sets it");
}

Status null_pointer(const char* argument, const std::string& wanted) {
    return invalid_argument(std::string(argument) + ": got a null pointer, wanted " + wanted);
}

}  // namespace flashmla::capi
