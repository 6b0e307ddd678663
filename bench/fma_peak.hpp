// Peak multiply-add rates of the CPU paths.
#pragma once

#include <string>

namespace flashmla::bench {

// Of a path ("portable", "avx2", "avx512", "avx512_bf16") on a number of threads at once, by the wall clock, in TFLOPS.
double measure_fma_tflops(const std::string& path, int threads);

// Of one thread, by the time it was given a core: what others do on the machine costs little of this figure. In TFLOPS.
double measure_fma_tflops_of_cpu_time(const std::string& path);

// CPU time that this process has used, in seconds, over all its threads.
double process_cpu_seconds();

}  // namespace flashmla::bench
