# FindXxHash: xxhash.h and its library (Debian's package brings no CMake files). Gives XxHash::xxhash.
if(TARGET XxHash::xxhash)
  set(XxHash_FOUND TRUE)
  return()
endif()
find_path(XxHash_INCLUDE_DIR xxhash.h)
find_library(XxHash_LIBRARY xxhash)
if(XxHash_INCLUDE_DIR)
  file(STRINGS ${XxHash_INCLUDE_DIR}/xxhash.h _lines REGEX "#define +XXH_VERSION_(MAJOR|MINOR|RELEASE) +[0-9]+")
  string(REGEX MATCHALL "[0-9]+" _numbers "${_lines}")
  list(JOIN _numbers "." XxHash_VERSION)
endif()
mark_as_advanced(XxHash_INCLUDE_DIR XxHash_LIBRARY)
include(FindPackageHandleStandardArgs)
find_package_handle_standard_args(XxHash REQUIRED_VARS XxHash_LIBRARY XxHash_INCLUDE_DIR VERSION_VAR XxHash_VERSION
  REASON_FAILURE_MESSAGE "Debian, Ubuntu: apt-get install libxxhash-dev")
add_library(XxHash::xxhash UNKNOWN IMPORTED)
set_target_properties(XxHash::xxhash PROPERTIES
  IMPORTED_LOCATION "${XxHash_LIBRARY}" INTERFACE_INCLUDE_DIRECTORIES "${XxHash_INCLUDE_DIR}")
