# Fuzz targets (fuzz/): LLVMFuzzerTestOneInput with a driver of their own, or with libFuzzer when clang offers it
# (FLASHMLA_FUZZ_ENGINE=libfuzzer). A bounded run of each is a test; under the sanitizers it is worth most.
set(FLASHMLA_FUZZ_ENGINE "driver" CACHE STRING "What runs the fuzz targets: driver (bounded, seeded, any compiler) or libfuzzer")
set(FLASHMLA_FUZZ_SECONDS 2 CACHE STRING "Seconds that each fuzz target runs as a test")

# Further arguments: sources.
function(flashmla_add_fuzz_target name)
  add_executable(fuzz_${name} ${ARGN})
  target_include_directories(fuzz_${name} PRIVATE ${PROJECT_SOURCE_DIR})
  target_link_libraries(fuzz_${name} PRIVATE flashmla_options)
  if(FLASHMLA_FUZZ_ENGINE STREQUAL "libfuzzer")
    target_compile_options(fuzz_${name} PRIVATE -fsanitize=fuzzer)
    target_link_options(fuzz_${name} PRIVATE -fsanitize=fuzzer)
    return()
  endif()
  target_sources(fuzz_${name} PRIVATE ${PROJECT_SOURCE_DIR}/fuzz/driver.cpp)
  add_test(NAME fuzz_${name} COMMAND fuzz_${name} --seconds ${FLASHMLA_FUZZ_SECONDS})
  set_tests_properties(fuzz_${name} PROPERTIES LABELS fuzz TIMEOUT 300)
endfunction()

find_package(nlohmann_json QUIET)
if(nlohmann_json_FOUND)
  file(GLOB tensor_file_sources CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/cli/tensor_file/*.cpp)
  flashmla_add_fuzz_target(tensor_files fuzz/tensor_files.cpp ${tensor_file_sources})
  target_link_libraries(fuzz_tensor_files PRIVATE nlohmann_json::nlohmann_json)
endif()

set(argument_sources arguments.cpp c_call.cpp plans.cpp attention_calls.cpp cache_calls.cpp prefill_calls.cpp)
list(TRANSFORM argument_sources PREPEND ${PROJECT_SOURCE_DIR}/fuzz/)
flashmla_add_fuzz_target(arguments ${argument_sources})
target_link_libraries(fuzz_arguments PRIVATE flashmla)
