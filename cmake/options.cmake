# Compile options and include path of every translation unit of the project, never of its users.
find_package(Threads REQUIRED)

add_library(flashmla_options INTERFACE)
target_compile_features(flashmla_options INTERFACE cxx_std_20)
target_include_directories(flashmla_options INTERFACE ${PROJECT_SOURCE_DIR}/include ${PROJECT_SOURCE_DIR}/src)
# No contraction of a * b + c on the host: results must not depend on what the optimizer fused. Kernels say fma where they want it.
target_compile_options(flashmla_options INTERFACE
    $<$<COMPILE_LANGUAGE:CXX>:-Wall -Wextra -ffp-contract=off>)
if(CMAKE_CXX_COMPILER_ID STREQUAL GNU AND CMAKE_CXX_COMPILER_VERSION VERSION_LESS 13)
  # GCC 12 warns about memcpy inside "literal" + std::string (its bug 105651).
  target_compile_options(flashmla_options INTERFACE $<$<COMPILE_LANGUAGE:CXX>:-Wno-restrict>)
endif()
target_link_libraries(flashmla_options INTERFACE Threads::Threads)
foreach(variant FLASHMLA_EVERY_LANE_ARRIVES FLASHMLA_JITTER)
  if(${variant})
    target_compile_definitions(flashmla_options INTERFACE $<$<COMPILE_LANGUAGE:CUDA>:${variant}>)
  endif()
endforeach()
if(FLASHMLA_PLANTED_FAULT)
  target_compile_definitions(flashmla_options INTERFACE FLASHMLA_PLANTED_FAULT=${FLASHMLA_PLANTED_FAULT})
endif()
if(FLASHMLA_SANITIZE)
  target_compile_options(flashmla_options INTERFACE
      $<$<COMPILE_LANGUAGE:CXX>:-fsanitize=${FLASHMLA_SANITIZE} -fno-sanitize-recover=all -fno-omit-frame-pointer>)
  target_link_options(flashmla_options INTERFACE -fsanitize=${FLASHMLA_SANITIZE})
endif()
if(FLASHMLA_WITH_CUDA)
  target_compile_definitions(flashmla_options INTERFACE FLASHMLA_WITH_CUDA=1)
  # CMAKE_CUDA_STANDARD 20 is dropped by CMake 3.25, hence the plain flag.
  target_compile_options(flashmla_options INTERFACE $<$<COMPILE_LANGUAGE:CUDA>:-std=c++20>)
  target_link_libraries(flashmla_options INTERFACE CUDA::cudart_static)
endif()
