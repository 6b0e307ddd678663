cmake_minimum_required(VERSION 3.25)
# Run at build time: writes HEADER with the revision of SOURCE_DIR, only when it changed.
execute_process(COMMAND git -C ${SOURCE_DIR} describe --always --dirty --exclude=* OUTPUT_VARIABLE revision
                ERROR_QUIET OUTPUT_STRIP_TRAILING_WHITESPACE RESULT_VARIABLE failed)
execute_process(COMMAND git -C ${SOURCE_DIR} rev-parse --show-toplevel OUTPUT_VARIABLE toplevel
                ERROR_QUIET OUTPUT_STRIP_TRAILING_WHITESPACE)
# A tree unpacked inside another repository must not report that repository's revision.
file(REAL_PATH ${SOURCE_DIR} source_dir)
if(failed OR NOT toplevel STREQUAL source_dir)
  set(revision unknown)
endif()
file(CONFIGURE OUTPUT ${HEADER} CONTENT "#define FLASHMLA_GIT_REVISION \"@revision@\"\n" @ONLY)
