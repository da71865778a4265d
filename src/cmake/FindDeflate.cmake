# FindDeflate: libdeflate.h and its library (Debian's package brings no CMake files). Gives Deflate::deflate.
if(TARGET Deflate::deflate)
  set(Deflate_FOUND TRUE)
  return()
endif()
find_path(Deflate_INCLUDE_DIR libdeflate.h)
find_library(Deflate_LIBRARY deflate)
if(Deflate_INCLUDE_DIR)
  file(STRINGS ${Deflate_INCLUDE_DIR}/libdeflate.h _lines REGEX "#define +LIBDEFLATE_VERSION_(MAJOR|MINOR)[ \t]+[0-9]+")
  string(REGEX MATCHALL "[0-9]+" _numbers "${_lines}")
  list(JOIN _numbers "." Deflate_VERSION)
endif()
mark_as_advanced(Deflate_INCLUDE_DIR Deflate_LIBRARY)
include(FindPackageHandleStandardArgs)
find_package_handle_standard_args(Deflate REQUIRED_VARS Deflate_LIBRARY Deflate_INCLUDE_DIR VERSION_VAR Deflate_VERSION
  REASON_FAILURE_MESSAGE "Debian, Ubuntu: apt-get install libdeflate-dev")
add_library(Deflate::deflate UNKNOWN IMPORTED)
set_target_properties(Deflate::deflate PROPERTIES
  IMPORTED_LOCATION "${Deflate_LIBRARY}" INTERFACE_INCLUDE_DIRECTORIES "${Deflate_INCLUDE_DIR}")
