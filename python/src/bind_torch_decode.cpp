// Dense decode on torch tensors in one call from Python. Every step that moved here from Python took 0.1 to 0.7 us of a
// call there, where a launch takes 3.5.
#include <array>
#include <cstdint>

#include "bind.hpp"
#include "planned_decode.hpp"

namespace nb = nanobind;

namespace flashmla::python {
namespace {

// Whether metadata that a call like `config` has filled serves this one: None, or what flash_mla calls a Config.
bool serves(nb::handle config, const DecodeArgs& args) {
    if (config.is_none()) return true;
    constexpr Py_ssize_t kSizes = 5, kFields = 10;
    if (!PyTuple_Check(config.ptr()) || PyTuple_Size(config.ptr()) != kFields) return false;
    const auto field = [&](Py_ssize_t i) { return nb::handle(PyTuple_GetItem(config.ptr(), i)); };
    const std::int64_t sizes[kSizes] = {args.q.shape[0], args.q.shape[1], args.q.shape[2], args.k_cache.shape[1],
                                        args.k_cache.shape[2]};
    for (Py_ssize_t i = 0; i < kSizes; ++i) {
        std::int64_t size = 0;
        if (!nb::try_cast(field(i), size) || size != sizes[i]) return false;
    }
    return field(5).is(args.causal ? Py_True : Py_False) && field(6).is(Py_False) && field(7).is_none();
}

bool is_true(nb::handle value) {
    const int truth = PyObject_IsTrue(value.ptr());
    if (truth < 0) throw nb::python_error();
    return truth == 1;
}

// The arguments of one allocation call, (shape, strides, dtype), made anew when another shape or dtype comes: making
// them takes 0.1 us, and most calls have the shape of the one before. Used under the GIL; the tuple is never freed,
// because nothing may be once Python is gone.
class AllocationArguments {
public:
    // Owned by the caller: an allocation may let go of the GIL, and another thread put its own tuple here meanwhile.
    nb::object of(const TensorView& packed, nb::handle dtype) {
        if (tuple_ != nullptr && shape_ == packed.shape && dtype.is(dtype_)) return nb::borrow(tuple_);
        const nb::object made =
            nb::make_tuple(list(packed.shape, packed.rank), list(packed.stride, packed.rank), dtype);
        Py_XDECREF(tuple_);
        tuple_ = made.inc_ref().ptr();
        shape_ = packed.shape;
        dtype_ = dtype.ptr();  // alive in the tuple
        return made;
    }

private:
    static nb::object list(const std::array<std::int64_t, kMaxRank>& values, int rank) {
        nb::object result = nb::steal(PyTuple_New(rank));
        for (int i = 0; i < rank; ++i) PyTuple_SetItem(result.ptr(), i, PyLong_FromLongLong(values[i]));
        return result;
    }

    std::array<std::int64_t, kMaxRank> shape_{};
    PyObject* dtype_ = nullptr;
    PyObject* tuple_ = nullptr;
};

// How flash_mla._dense allocates: a tuple (empty_strided on the CPU, the same on the current GPU, that GPU's index,
// float32, bfloat16, float16).
class TorchAllocation {
public:
    TorchAllocation(nb::handle parts, const TensorView& q) : parts_(parts), q_(q) {}

    // Whether it serves q's device and dtype.
    bool serves() const {
        if (q_.dtype != DType::kBFloat16 && q_.dtype != DType::kFloat16) return false;
        return q_.device.type == DeviceType::kCpu || nb::cast<int>(part(2)()) == q_.device.index;
    }
    nb::object out(std::int64_t d_v) const {
        static AllocationArguments arguments;
        const auto [b, s_q, h_q, d_qk] = q_.shape;
        const TensorView packed = contiguous_view(nullptr, q_.dtype, {b, s_q, h_q, d_v});
        return allocate(arguments.of(packed, part(q_.dtype == DType::kBFloat16 ? 4 : 5)));
    }
    nb::object lse() const {
        static AllocationArguments arguments;
        const auto [b, s_q, h_q, d_qk] = q_.shape;
        return allocate(arguments.of(contiguous_view(nullptr, DType::kFloat32, {b, h_q, s_q}), part(3)));
    }

private:
    nb::handle part(Py_ssize_t i) const { return PyTuple_GetItem(parts_.ptr(), i); }

    nb::object allocate(const nb::object& arguments) const {
        const nb::handle empty = part(q_.device.type == DeviceType::kCpu ? 0 : 1);
        PyObject* const tensor = PyObject_Call(empty.ptr(), arguments.ptr(), nullptr);
        if (tensor == nullptr) throw nb::python_error();
        return nb::steal(tensor);
    }

    nb::handle parts_;
    const TensorView& q_;
};

// A dense call on torch tensors in one go, outputs and Python's part of the checks included: what flash_mla calls when
// there is nothing special about a call. Returns (out, lse), or None, having done nothing, when there is: q's device is
// not the current one, metadata of another kind of call, shapes without outputs. The longer way then finds the words.
nb::object decode_torch(nb::handle q, nb::handle k_cache, nb::handle block_table, nb::handle cache_seqlens,
                        nb::handle head_dim_v, nb::handle softmax_scale, nb::handle causal, bool batch_invariant,
                        nb::handle out, nb::handle config, nb::handle allocation) {
    if (allocation.is_none()) return nb::none();
    Arguments kept;
    DecodeArgs args;
    args.q = kept.read("q", q);
    args.k_cache = kept.read("k_cache", k_cache);
    args.causal = is_true(causal);
    std::int64_t d_v = 0;
    if (args.q.rank != 4 || args.k_cache.rank != 4 || !nb::try_cast(head_dim_v, d_v)) return nb::none();
    if (d_v < 1 || d_v > args.q.shape[3]) return nb::none();
    if (!serves(config, args)) return nb::none();
    const TorchAllocation torch(allocation, args.q);
    if (!torch.serves()) return nb::none();
    args.block_table = kept.read("block_table", block_table);
    args.cache_seqlens = kept.read_if_given("cache_seqlens", cache_seqlens);
    set_scale(softmax_scale, args.softmax_scale, args.has_softmax_scale);

    const nb::object out_tensor = out.is_none() ? torch.out(d_v) : nb::borrow(out);
    const nb::object lse_tensor = torch.lse();
    args.out = kept.write("out", out_tensor);
    args.lse = kept.write("lse", lse_tensor);
    check_width(args.out, 4, d_v);
    run_planned(kept, args, {.batch_invariant = batch_invariant, .kernel = {}, .num_workers = 0}, nb::none(),
                nb::none());
    return nb::make_tuple(out_tensor, lse_tensor);
}

}  // namespace

void bind_torch_decode(nb::module_& module) {
    module.def("decode_torch", &decode_torch, nb::arg(), nb::arg().none(), nb::arg().none(), nb::arg().none(),
               nb::arg(), nb::arg().none(), nb::arg(), nb::arg(), nb::arg().none(), nb::arg().none(), nb::arg().none());
}

}  // namespace flashmla::python
