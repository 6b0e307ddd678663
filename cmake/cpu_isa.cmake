# CPU paths: a file whose name ends in _avx2, _avx512 or _avx512_bf16 is compiled for that instruction set and defines
# nothing that other files could be linked to by accident; which one runs is decided at run time. Never -march=native.
# FLASHMLA_CPU_<PATH>=1 is defined for the CPU backend when the path is compiled in.
include(CheckCXXCompilerFlag)

set(flashmla_isa_flags_avx2 -mavx2 -mfma -mf16c)
set(flashmla_isa_flags_avx512 ${flashmla_isa_flags_avx2} -mavx512f -mavx512bw -mavx512vl -mavx512dq)
set(flashmla_isa_flags_avx512_bf16 ${flashmla_isa_flags_avx512} -mavx512bf16)

if(CMAKE_CXX_COMPILER_ID STREQUAL GNU AND CMAKE_CXX_COMPILER_VERSION VERSION_LESS 13)
  # GCC 12's own AVX-512 header reads what it calls undefined (its bug 105593).
  list(APPEND flashmla_isa_flags_avx512 -Wno-maybe-uninitialized)
  list(APPEND flashmla_isa_flags_avx512_bf16 -Wno-maybe-uninitialized)
endif()

# Widest first: FLASHMLA_CPU_PATHS is what flashmla::build_info() reports.
set(FLASHMLA_CPU_PATHS "")
foreach(path avx512_bf16 avx512 avx2)
  string(REPLACE ";" " " flags "${flashmla_isa_flags_${path}}")
  check_cxx_compiler_flag("${flags}" FLASHMLA_COMPILER_HAS_${path})
  file(GLOB_RECURSE files CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/src/backends/cpu/*_${path}.cpp)
  if(files AND FLASHMLA_COMPILER_HAS_${path})
    list(APPEND FLASHMLA_CPU_PATHS ${path})
  endif()
endforeach()
list(APPEND FLASHMLA_CPU_PATHS portable)

# Sets the flags of per-ISA sources in the named list variable, and drops those the compiler cannot build.
function(flashmla_set_isa_flags list_name)
  set(kept "")
  foreach(file ${${list_name}})
    if(file MATCHES "_(avx512_bf16|avx512|avx2)\\.cpp$")
      set(path ${CMAKE_MATCH_1})
      if(NOT FLASHMLA_COMPILER_HAS_${path})
        continue()
      endif()
      set_source_files_properties(${file} PROPERTIES COMPILE_OPTIONS "${flashmla_isa_flags_${path}}")
    endif()
    list(APPEND kept ${file})
  endforeach()
  set(${list_name} "${kept}" PARENT_SCOPE)
endfunction()
