# C++ tests: one GoogleTest program per folder that holds sources. The first folder below tests/ (two for tests/unit) names it,
# and the first folder is its label. Tests that need a GPU carry the label `gpu` and are left out of `make test`.
find_package(GTest REQUIRED)

file(GLOB_RECURSE support_sources CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/tests/support/*.cpp)
if(support_sources)
  add_library(flashmla_test_support STATIC ${support_sources})
  set(support_scope PUBLIC)
else()
  add_library(flashmla_test_support INTERFACE)
  set(support_scope INTERFACE)
endif()
target_include_directories(flashmla_test_support ${support_scope} ${PROJECT_SOURCE_DIR} ${PROJECT_SOURCE_DIR}/tests)
target_link_libraries(flashmla_test_support ${support_scope} flashmla_options flashmla_reference GTest::gtest)

# folder: relative to tests/; further arguments: libraries.
function(flashmla_add_test_folder folder)
  file(GLOB_RECURSE sources CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/tests/${folder}/*.cpp)
  if(NOT sources)
    return()
  endif()
  string(REPLACE "/" "_" name "${folder}")
  string(REGEX MATCH "^[^/]+" label "${folder}")
  add_executable(test_${name} ${sources})
  target_link_libraries(test_${name} PRIVATE flashmla_test_support GTest::gtest_main ${ARGN})
  add_test(NAME ${name} COMMAND test_${name})
  set_tests_properties(${name} PROPERTIES LABELS ${label} TIMEOUT 1200)
endfunction()

# Small programs through which Python tests reach internal code: one file each, bin/<file name>.
file(GLOB tool_sources CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/tests/tools/*.cpp)
foreach(source ${tool_sources})
  cmake_path(GET source STEM tool)
  add_executable(${tool} ${source})
  target_link_libraries(${tool} PRIVATE flashmla_options)
endforeach()

file(GLOB unit_folders RELATIVE ${PROJECT_SOURCE_DIR}/tests CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/tests/unit/*)
foreach(folder ${unit_folders})
  flashmla_add_test_folder(${folder})
endforeach()
# They emulate 64-byte vectors, which the compiler notes are passed differently with AVX-512; there every such call is inlined.
set_source_files_properties(${PROJECT_SOURCE_DIR}/tests/cpu/emulated_kernels.cpp
                            ${PROJECT_SOURCE_DIR}/tests/cpu/cache_values_test.cpp PROPERTIES COMPILE_OPTIONS -Wno-psabi)
flashmla_add_test_folder(cpu)
if(TARGET test_cpu AND NOT FLASHMLA_PLANTED_FAULT)
  include(cmake/planted_faults.cmake)
endif()
if(TARGET flashmla_program)
  flashmla_add_test_folder(cli flashmla_cli)
endif()
if(FLASHMLA_WITH_CUDA)
  flashmla_add_test_folder(gpu CUDA::cudart_static)
endif()

if(FLASHMLA_KERNELS)
  find_package(Python COMPONENTS Interpreter REQUIRED)
  add_test(NAME ptxas_limits
           COMMAND ${Python_EXECUTABLE} ${PROJECT_SOURCE_DIR}/tests/lint/ptxas_limits.py ${PROJECT_BINARY_DIR})
  set_tests_properties(ptxas_limits PROPERTIES LABELS lint)
endif()
