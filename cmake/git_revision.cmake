cmake_minimum_required(VERSION 3.25)
# Run at build time: writes HEADER with the revision of SOURCE_DIR and the hash of what its measurements depend on, only when
# one of them changed.
execute_process(COMMAND git -C ${SOURCE_DIR} describe --always --dirty --exclude=* OUTPUT_VARIABLE revision
                ERROR_QUIET OUTPUT_STRIP_TRAILING_WHITESPACE RESULT_VARIABLE failed)
execute_process(COMMAND git -C ${SOURCE_DIR} rev-parse --show-toplevel OUTPUT_VARIABLE toplevel
                ERROR_QUIET OUTPUT_STRIP_TRAILING_WHITESPACE)
# A tree unpacked inside another repository must not report that repository's revision.
file(REAL_PATH ${SOURCE_DIR} source_dir)
if(failed OR NOT toplevel STREQUAL source_dir)
  set(revision unknown)
endif()

# The sources whose change makes a measurement stale. bench/source_hash.py computes the same.
set(files "")
foreach(room include src/core src/plan src/device src/api src/dispatch src/backends src/combine src/gpu)
  file(GLOB_RECURSE found RELATIVE ${SOURCE_DIR} ${SOURCE_DIR}/${room}/*.h ${SOURCE_DIR}/${room}/*.[ch]pp
       ${SOURCE_DIR}/${room}/*.cu ${SOURCE_DIR}/${room}/*.cuh)
  list(APPEND files ${found})
endforeach()
list(SORT files)
set(listing "")
foreach(file ${files})
  file(SHA256 ${SOURCE_DIR}/${file} hash)
  string(APPEND listing "${hash}  ${file}\n")
endforeach()
string(SHA256 source_hash "${listing}")
string(SUBSTRING ${source_hash} 0 16 source_hash)
file(CONFIGURE OUTPUT ${HEADER} CONTENT
     "#define FLASHMLA_GIT_REVISION \"@revision@\"\n#define FLASHMLA_SOURCE_HASH \"@source_hash@\"\n" @ONLY)
