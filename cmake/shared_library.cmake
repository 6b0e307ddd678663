# libflashmla.so: the C interface and nothing else. The linker's version script hides every other symbol, those of the C++
# runtime's templates and of the CUDA runtime included; docs/decisions/c_abi.md says why C++ is not exported.
# C++ programs link the static library, target flashmla::flashmla.
option(FLASHMLA_SHARED "Build libflashmla.so, the C interface" ON)
if(NOT FLASHMLA_SHARED)
  return()
endif()
set(version_script ${PROJECT_SOURCE_DIR}/src/capi/exports.map)
add_library(flashmla_c SHARED)
add_library(flashmla::c ALIAS flashmla_c)
foreach(stage ${FLASHMLA_STAGES} flashmla_build_info)
  target_sources(flashmla_c PRIVATE $<TARGET_OBJECTS:${stage}>)
endforeach()
set_target_properties(flashmla_c PROPERTIES
    OUTPUT_NAME flashmla EXPORT_NAME c LINKER_LANGUAGE CXX VERSION ${PROJECT_VERSION} SOVERSION ${PROJECT_VERSION_MAJOR}
    LINK_DEPENDS ${version_script})
target_include_directories(flashmla_c PUBLIC
    $<BUILD_INTERFACE:${PROJECT_SOURCE_DIR}/include> $<INSTALL_INTERFACE:${CMAKE_INSTALL_INCLUDEDIR}>)
target_link_options(flashmla_c PRIVATE LINKER:--version-script=${version_script})
target_link_libraries(flashmla_c PRIVATE Threads::Threads)
if(FLASHMLA_WITH_CUDA)
  target_link_libraries(flashmla_c PRIVATE CUDA::cudart_static)
endif()
if(FLASHMLA_SANITIZE)
  target_link_options(flashmla_c PRIVATE -fsanitize=${FLASHMLA_SANITIZE})
else()
  target_link_options(flashmla_c PRIVATE LINKER:--no-undefined)
endif()
