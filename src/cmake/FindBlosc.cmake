# FindBlosc: blosc.h and its library (Debian's package brings no CMake files). Gives Blosc::blosc.
if(TARGET Blosc::blosc)
  set(Blosc_FOUND TRUE)
  return()
endif()
find_path(Blosc_INCLUDE_DIR blosc.h)
find_library(Blosc_LIBRARY blosc)
if(Blosc_INCLUDE_DIR)
  file(STRINGS ${Blosc_INCLUDE_DIR}/blosc.h _lines REGEX "#define +BLOSC_VERSION_(MAJOR|MINOR|RELEASE) +[0-9]+")
  string(REGEX MATCHALL "[0-9]+" _numbers "${_lines}")
  list(JOIN _numbers "." Blosc_VERSION)
endif()
mark_as_advanced(Blosc_INCLUDE_DIR Blosc_LIBRARY)
include(FindPackageHandleStandardArgs)
find_package_handle_standard_args(Blosc REQUIRED_VARS Blosc_LIBRARY Blosc_INCLUDE_DIR VERSION_VAR Blosc_VERSION
  REASON_FAILURE_MESSAGE "Debian, Ubuntu: apt-get install libblosc-dev")
add_library(Blosc::blosc UNKNOWN IMPORTED)
set_target_properties(Blosc::blosc PROPERTIES
  IMPORTED_LOCATION "${Blosc_LIBRARY}" INTERFACE_INCLUDE_DIRECTORIES "${Blosc_INCLUDE_DIR}")
