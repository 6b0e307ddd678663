# Decides whether CUDA parts are built: FLASHMLA_WITH_CUDA, and in FLASHMLA_CUDA_LEFT_OUT the reason when they are not.
# CUTLASS headers come from the PyPI package nvidia-cutlass (scripts/bootstrap installs it), or from FLASHMLA_CUTLASS_INCLUDE.
include(CheckLanguage)

set(FLASHMLA_WITH_CUDA OFF)
set(FLASHMLA_CUDA_LEFT_OUT "")

function(flashmla_find_cutlass)
  if(FLASHMLA_CUTLASS_INCLUDE)
    return()
  endif()
  set(locate "import importlib.util as u; print(u.find_spec('cutlass_library').submodule_search_locations[0])")
  foreach(python ${PROJECT_SOURCE_DIR}/.venv/bin/python ${Python_EXECUTABLE} python3)
    execute_process(COMMAND ${python} -c "${locate}" OUTPUT_VARIABLE root ERROR_QUIET
                    OUTPUT_STRIP_TRAILING_WHITESPACE RESULT_VARIABLE failed)
    if(NOT failed AND EXISTS ${root}/source/include/cute/tensor.hpp)
      set(FLASHMLA_CUTLASS_INCLUDE ${root}/source/include CACHE PATH "CUTLASS headers (the folder that holds cute/)")
      return()
    endif()
  endforeach()
endfunction()

if(FLASHMLA_CUDA STREQUAL "OFF")
  set(FLASHMLA_CUDA_LEFT_OUT "FLASHMLA_CUDA=OFF")
else()
  # check_language would start with the default architecture of nvcc; the kernels set their own (flashmla_add_kernel).
  if(NOT DEFINED CMAKE_CUDA_ARCHITECTURES)
    set(CMAKE_CUDA_ARCHITECTURES 90a-real)
  endif()
  if(NOT CMAKE_CUDA_COMPILER AND NOT DEFINED ENV{CUDACXX} AND EXISTS /usr/local/cuda/bin/nvcc)
    set(CMAKE_CUDA_COMPILER /usr/local/cuda/bin/nvcc)
  endif()
  check_language(CUDA)
  flashmla_find_cutlass()
  if(NOT CMAKE_CUDA_COMPILER)
    set(FLASHMLA_CUDA_LEFT_OUT "no nvcc found")
  elseif(NOT FLASHMLA_CUTLASS_INCLUDE)
    set(FLASHMLA_CUDA_LEFT_OUT
        "no CUTLASS headers found (pip install --no-deps nvidia-cutlass==4.2.0.0, or set FLASHMLA_CUTLASS_INCLUDE)")
  else()
    set(FLASHMLA_WITH_CUDA ON)
  endif()
  if(FLASHMLA_CUDA STREQUAL "ON" AND NOT FLASHMLA_WITH_CUDA)
    message(FATAL_ERROR "FLASHMLA_CUDA=ON, but ${FLASHMLA_CUDA_LEFT_OUT}")
  endif()
endif()

if(FLASHMLA_WITH_CUDA)
  enable_language(CUDA)
  find_package(CUDAToolkit 12.8 REQUIRED)
  # Keeps each kernel's ptxas report beside its object; ccache goes behind it and replays the report on a hit.
  set(CMAKE_CUDA_COMPILER_LAUNCHER ${PROJECT_SOURCE_DIR}/cmake/keep_ptxas_report.sh ${FLASHMLA_CCACHE})
endif()
