// Facts about the library that is running, for bug reports and capability checks.
#pragma once

namespace flashmla {

struct BuildInfo {
    const char* version;       // "0.1.0"
    const char* git_revision;  // short hash, "-dirty" appended when the tree had changes; "unknown" outside git
    const char* source_hash;   // of the public headers and of what computes; bench/source_hash.py gives that of a tree
    const char* compiler;      // host compiler and version
    const char* cuda_toolkit;  // "13.0.88", or "" when built without CUDA
    const char* cuda_architectures;  // "90a", or ""
    const char* cpu_paths;           // the CPU paths compiled in, widest first, comma separated
};

BuildInfo build_info();

}  // namespace flashmla
