# `cmake --install`: headers, library, program, and the package config behind find_package(flashmla).
include(CMakePackageConfigHelpers)

install(TARGETS flashmla EXPORT flashmla-targets COMPONENT development)
install(DIRECTORY include/flashmla DESTINATION ${CMAKE_INSTALL_INCLUDEDIR} COMPONENT development)
if(TARGET flashmla_program)
  install(TARGETS flashmla_program COMPONENT development)
endif()

set(flashmla_needs_toolkit OFF)
if(FLASHMLA_WITH_CUDA AND NOT BUILD_SHARED_LIBS)
  set(flashmla_needs_toolkit ON)
endif()
set(package_folder ${CMAKE_INSTALL_LIBDIR}/cmake/flashmla)
install(EXPORT flashmla-targets NAMESPACE flashmla:: DESTINATION ${package_folder} COMPONENT development)
configure_package_config_file(cmake/flashmla-config.cmake.in ${PROJECT_BINARY_DIR}/flashmla-config.cmake
                              INSTALL_DESTINATION ${package_folder} NO_SET_AND_CHECK_MACRO)
write_basic_package_version_file(${PROJECT_BINARY_DIR}/flashmla-config-version.cmake COMPATIBILITY SameMinorVersion)
install(FILES ${PROJECT_BINARY_DIR}/flashmla-config.cmake ${PROJECT_BINARY_DIR}/flashmla-config-version.cmake
        DESTINATION ${package_folder} COMPONENT development)
