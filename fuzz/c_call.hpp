// A call through the C interface that starts out legal and is then spoilt. Tensors lie in heap blocks of their exact
// size, so that the address sanitizer sees every access beside them; afterwards inputs must be as they were, and
// outputs too when the call was refused.
//
// The library cannot know how large the caller's memory is. A tensor that was spoilt into reaching past its block
// therefore loses its address: a null pointer is to be refused like any other, and nothing can be touched.
#pragma once

#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <memory>
#include <string>
#include <vector>

#include "flashmla/flashmla.h"
#include "fuzz/input.hpp"

namespace flashmla::fuzz {

enum class Role { kInput, kOutput, kCache, kWrittenCache };

class CCall {
public:
    CCall() = default;
    virtual ~CCall() = default;
    CCall(const CCall&) = delete;
    CCall& operator=(const CCall&) = delete;

    // Spoils the call if the input says so, makes it, and checks what must hold.
    void fuzz(Input& input);

protected:
    virtual flashmla_status call(Input& input) = 0;

    // Adds a packed tensor for a field of the arguments. Integers count up to `limit` and start over.
    void tensor(const char* name, const flashmla_tensor*& field, flashmla_dtype dtype,
                std::initializer_list<std::int64_t> shape, Role role = Role::kInput, std::int64_t limit = 1);
    // Fields of other kinds, for spoiling.
    void integer(std::int32_t& field) { integers_.push_back(&field); }
    void integer(std::int64_t& field) { long_integers_.push_back(&field); }
    void real(double& field) { reals_.push_back(&field); }
    void struct_size(std::uint32_t& field) { struct_sizes_.push_back(&field); }

private:
    struct Tensor {
        std::string name;
        flashmla_tensor view;
        Role role;
        std::vector<std::byte> memory;
        std::vector<std::byte> before;
    };
    struct Field {
        const flashmla_tensor** pointer;
        bool written;
    };

    void spoil(Input& input);
    void spoil_tensor(Input& input);
    void spoil_field(Input& input);
    void keep_inside();
    void check_memory(bool refused) const;
    bool is_written(const Tensor& tensor) const;

    std::vector<std::unique_ptr<Tensor>> tensors_;
    std::vector<Field> fields_;
    std::vector<std::int32_t*> integers_;
    std::vector<std::int64_t*> long_integers_;
    std::vector<double*> reals_;
    std::vector<std::uint32_t*> struct_sizes_;
};

// Numbers at the edges of types and beside `near`.
std::int64_t wild(Input& input, std::int64_t near);
double wild_real(Input& input);

// An error's words name something that a caller passes.
void require_named_argument(flashmla_status status);

// A kind of call: builds a legal one, of whatever variety the input picks.
using MakeCall = std::unique_ptr<CCall> (*)(Input& input);
std::unique_ptr<CCall> make_decode(Input& input);
std::unique_ptr<CCall> make_append(Input& input);
std::unique_ptr<CCall> make_gather(Input& input);
std::unique_ptr<CCall> make_copy_pages(Input& input);
std::unique_ptr<CCall> make_convert(Input& input);
std::unique_ptr<CCall> make_merge(Input& input);
std::unique_ptr<CCall> make_sparse_prefill(Input& input);
std::unique_ptr<CCall> make_dense_prefill(Input& input);
std::unique_ptr<CCall> make_dense_prefill_backward(Input& input);
std::unique_ptr<CCall> make_absorb(Input& input);

// Everything that takes no tensors: device, build, cache sizes, plans from made-up shapes for made-up devices.
void fuzz_plans_and_facts(Input& input);

}  // namespace flashmla::fuzz
