# Each planted fault (src/core/planted_fault.hpp), built into the CPU backend, must turn the CPU tests and `flashmla verify` red:
# tests/planted_faults.sh builds the target `planted_faults` and demands it. Not part of the default build. The backend's
# objects come before the library, so the library's own copies are never pulled in; everything but the backend is shared.
set(planted_tests oracle_test.cpp paths.cpp emulated_kernels.cpp)
list(TRANSFORM planted_tests PREPEND ${PROJECT_SOURCE_DIR}/tests/cpu/)
add_library(flashmla_planted_tests OBJECT EXCLUDE_FROM_ALL ${planted_tests})
target_link_libraries(flashmla_planted_tests PRIVATE flashmla_test_support GTest::gtest)

file(GLOB_RECURSE backend_sources CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/src/backends/cpu/*.cpp)
flashmla_set_isa_flags(backend_sources)
set(sources ${backend_sources})
add_custom_target(planted_faults)
foreach(fault RANGE 1 5)
  if(fault EQUAL 2)
    # The per-ISA files honor fault 1 alone; from here on the library's own objects do. (A mistake here would show as a fault
    # that is not detected.)
    list(FILTER sources EXCLUDE REGEX "/kernels_[a-z0-9_]+\\.cpp$")
  endif()
  add_library(flashmla_planted_${fault} OBJECT EXCLUDE_FROM_ALL ${sources})
  target_link_libraries(flashmla_planted_${fault} PRIVATE flashmla_options)
  target_compile_definitions(flashmla_planted_${fault} PRIVATE
      FLASHMLA_PLANTED_FAULT=${fault} $<TARGET_PROPERTY:flashmla_backends_cpu,COMPILE_DEFINITIONS>)
  add_executable(test_cpu_fault_${fault} EXCLUDE_FROM_ALL
      $<TARGET_OBJECTS:flashmla_planted_${fault}> $<TARGET_OBJECTS:flashmla_planted_tests>)
  target_link_libraries(test_cpu_fault_${fault} PRIVATE flashmla_test_support GTest::gtest_main)
  if(TARGET flashmla_program)
    add_executable(flashmla_fault_${fault} EXCLUDE_FROM_ALL $<TARGET_OBJECTS:flashmla_planted_${fault}> cli/main.cpp)
    target_link_libraries(flashmla_fault_${fault} PRIVATE flashmla_cli)
    add_dependencies(planted_faults flashmla_fault_${fault})
  endif()
  add_dependencies(planted_faults test_cpu_fault_${fault})
endforeach()
