# The planted faults (src/core/planted_fault.hpp), built into the CPU backend, must turn the CPU tests and `flashmla verify` red:
# tests/planted_faults.sh builds the target `planted_faults` and demands it. Not part of the default build. One build serves all
# of them: the environment says which fault a process has. The backend's objects come before the library, so the library's own
# copies are never pulled in; everything but the backend is shared.
set(planted_tests oracle_test.cpp cache_append_test.cpp sparse_prefill_test.cpp prefill_backward_test.cpp merge_test.cpp
    absorb_test.cpp paths.cpp emulated_kernels.cpp)
list(TRANSFORM planted_tests PREPEND ${PROJECT_SOURCE_DIR}/tests/cpu/)

file(GLOB_RECURSE planted_backend CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/src/backends/cpu/*.cpp)
flashmla_set_isa_flags(planted_backend)
add_library(flashmla_planted OBJECT EXCLUDE_FROM_ALL ${planted_backend})
target_link_libraries(flashmla_planted PRIVATE flashmla_options)
target_compile_definitions(flashmla_planted PRIVATE
    "FLASHMLA_PLANTED_FAULT=(-1)" $<TARGET_PROPERTY:flashmla_backends_cpu,COMPILE_DEFINITIONS>)

add_custom_target(planted_faults)
add_executable(test_cpu_planted EXCLUDE_FROM_ALL $<TARGET_OBJECTS:flashmla_planted> ${planted_tests})
target_link_libraries(test_cpu_planted PRIVATE flashmla_test_support GTest::gtest_main)
add_dependencies(planted_faults test_cpu_planted)
if(TARGET flashmla_program)
  add_executable(flashmla_planted_program EXCLUDE_FROM_ALL $<TARGET_OBJECTS:flashmla_planted> cli/main.cpp)
  set_target_properties(flashmla_planted_program PROPERTIES OUTPUT_NAME flashmla_planted)
  target_link_libraries(flashmla_planted_program PRIVATE flashmla_cli)
  add_dependencies(planted_faults flashmla_planted_program)
endif()
