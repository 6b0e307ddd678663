# The extension module flashmla._core (nanobind) and the package around it; `cmake --install --component python` and
# scikit-build-core (pyproject.toml) lay both out the same way.
if(NOT FLASHMLA_PYTHON OR NOT EXISTS ${PROJECT_SOURCE_DIR}/python/CMakeLists.txt)
  return()
endif()
find_package(Python 3.10 REQUIRED COMPONENTS Interpreter Development.Module OPTIONAL_COMPONENTS Development.SABIModule)
# CMake before 3.26 does not look for SABIModule. Outside Windows nothing but its existence and the file suffix matter.
if(NOT TARGET Python::SABIModule AND NOT WIN32 AND Python_VERSION VERSION_GREATER_EQUAL 3.12)
  add_library(Python::SABIModule INTERFACE IMPORTED)
  set(Python_SOSABI abi3)
endif()
execute_process(COMMAND ${Python_EXECUTABLE} -m nanobind --cmake_dir OUTPUT_VARIABLE nanobind_ROOT
                OUTPUT_STRIP_TRAILING_WHITESPACE COMMAND_ERROR_IS_FATAL ANY)
find_package(nanobind CONFIG REQUIRED)
add_subdirectory(python)
