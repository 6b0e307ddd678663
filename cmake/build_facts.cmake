# flashmla::build_info(): compiler and toolkit are known now; the git revision is read again on every build.
set(FLASHMLA_FACT_COMPILER "${CMAKE_CXX_COMPILER_ID} ${CMAKE_CXX_COMPILER_VERSION}")
set(FLASHMLA_FACT_TOOLKIT "${CUDAToolkit_VERSION}")
set(FLASHMLA_FACT_ARCHITECTURES "")
if(FLASHMLA_WITH_CUDA)
  set(FLASHMLA_FACT_ARCHITECTURES "90a")
else()
  set(FLASHMLA_FACT_TOOLKIT "")
endif()
string(REPLACE ";" "," FLASHMLA_FACT_CPU_PATHS "${FLASHMLA_CPU_PATHS}")
configure_file(cmake/build_info.cpp.in ${PROJECT_BINARY_DIR}/generated/build_info.cpp @ONLY)

add_custom_target(flashmla_git_revision
    COMMAND ${CMAKE_COMMAND} -DSOURCE_DIR=${PROJECT_SOURCE_DIR}
            -DHEADER=${PROJECT_BINARY_DIR}/generated/flashmla_git_revision.hpp -P ${PROJECT_SOURCE_DIR}/cmake/git_revision.cmake
    BYPRODUCTS ${PROJECT_BINARY_DIR}/generated/flashmla_git_revision.hpp
    COMMENT "Reading the git revision")
add_library(flashmla_build_info OBJECT ${PROJECT_BINARY_DIR}/generated/build_info.cpp)
target_link_libraries(flashmla_build_info PRIVATE flashmla_options)
target_include_directories(flashmla_build_info PRIVATE ${PROJECT_BINARY_DIR}/generated)
add_dependencies(flashmla_build_info flashmla_git_revision)
