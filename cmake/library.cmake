# The library of C++ users: all stages joined. Always static (the shared one is C: shared_library.cmake). No third-party
# dependency.
add_library(flashmla STATIC)
add_library(flashmla::flashmla ALIAS flashmla)
foreach(stage ${FLASHMLA_STAGES} flashmla_build_info)
  target_sources(flashmla PRIVATE $<TARGET_OBJECTS:${stage}>)
endforeach()
set_target_properties(flashmla PROPERTIES LINKER_LANGUAGE CXX)
target_compile_features(flashmla PUBLIC cxx_std_20)
target_include_directories(flashmla PUBLIC
    $<BUILD_INTERFACE:${PROJECT_SOURCE_DIR}/include> $<INSTALL_INTERFACE:${CMAKE_INSTALL_INCLUDEDIR}>)
target_link_libraries(flashmla PRIVATE Threads::Threads)
if(FLASHMLA_WITH_CUDA)
  target_link_libraries(flashmla PRIVATE CUDA::cudart_static)
endif()
if(FLASHMLA_SANITIZE)
  target_link_options(flashmla PUBLIC -fsanitize=${FLASHMLA_SANITIZE})
endif()

# The executable specification: for tests and `flashmla verify`, no part of the installed library.
file(GLOB_RECURSE reference_sources CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/src/reference/*.cpp)
if(reference_sources)
  add_library(flashmla_reference STATIC ${reference_sources})
  target_link_libraries(flashmla_reference PUBLIC flashmla_options flashmla)
else()
  add_library(flashmla_reference INTERFACE)
  target_link_libraries(flashmla_reference INTERFACE flashmla_options flashmla)
endif()
