# `cmake --install`: headers, libraries, program, and what finds them: find_package(flashmla), pkg-config.
include(CMakePackageConfigHelpers)

install(TARGETS flashmla EXPORT flashmla-targets COMPONENT development)
if(TARGET flashmla_c)
  install(TARGETS flashmla_c EXPORT flashmla-targets COMPONENT development)
  file(RELATIVE_PATH flashmla_pc_include ${CMAKE_INSTALL_FULL_LIBDIR}/pkgconfig ${CMAKE_INSTALL_FULL_INCLUDEDIR})
  configure_file(cmake/flashmla.pc.in ${PROJECT_BINARY_DIR}/flashmla.pc @ONLY)
  install(FILES ${PROJECT_BINARY_DIR}/flashmla.pc DESTINATION ${CMAKE_INSTALL_LIBDIR}/pkgconfig COMPONENT development)
endif()
install(DIRECTORY include/flashmla DESTINATION ${CMAKE_INSTALL_INCLUDEDIR} COMPONENT development)
if(TARGET flashmla_program)
  install(TARGETS flashmla_program COMPONENT development)
endif()

set(flashmla_needs_toolkit ${FLASHMLA_WITH_CUDA})
set(package_folder ${CMAKE_INSTALL_LIBDIR}/cmake/flashmla)
install(EXPORT flashmla-targets NAMESPACE flashmla:: DESTINATION ${package_folder} COMPONENT development)
configure_package_config_file(cmake/flashmla-config.cmake.in ${PROJECT_BINARY_DIR}/flashmla-config.cmake
                              INSTALL_DESTINATION ${package_folder} NO_SET_AND_CHECK_MACRO)
write_basic_package_version_file(${PROJECT_BINARY_DIR}/flashmla-config-version.cmake COMPATIBILITY SameMinorVersion)
install(FILES ${PROJECT_BINARY_DIR}/flashmla-config.cmake ${PROJECT_BINARY_DIR}/flashmla-config-version.cmake
        DESTINATION ${package_folder} COMPONENT development)
