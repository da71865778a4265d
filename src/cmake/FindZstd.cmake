# FindZstd: zstd.h and its library (Debian's package brings no CMake files). Gives Zstd::zstd.
if(TARGET Zstd::zstd)
  set(Zstd_FOUND TRUE)
  return()
endif()
find_path(Zstd_INCLUDE_DIR zstd.h)
find_library(Zstd_LIBRARY zstd)
if(Zstd_INCLUDE_DIR)
  file(STRINGS ${Zstd_INCLUDE_DIR}/zstd.h _lines REGEX "#define +ZSTD_VERSION_(MAJOR|MINOR|RELEASE) +[0-9]+")
  string(REGEX MATCHALL "[0-9]+" _numbers "${_lines}")
  list(JOIN _numbers "." Zstd_VERSION)
endif()
mark_as_advanced(Zstd_INCLUDE_DIR Zstd_LIBRARY)
include(FindPackageHandleStandardArgs)
find_package_handle_standard_args(Zstd REQUIRED_VARS Zstd_LIBRARY Zstd_INCLUDE_DIR VERSION_VAR Zstd_VERSION
  REASON_FAILURE_MESSAGE "Debian, Ubuntu: apt-get install libzstd-dev")
add_library(Zstd::zstd UNKNOWN IMPORTED)
set_target_properties(Zstd::zstd PROPERTIES
  IMPORTED_LOCATION "${Zstd_LIBRARY}" INTERFACE_INCLUDE_DIRECTORIES "${Zstd_INCLUDE_DIR}")
