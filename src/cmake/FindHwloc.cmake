# FindHwloc: hwloc.h and its library (Debian's package brings no CMake files). Gives Hwloc::hwloc.
if(TARGET Hwloc::hwloc)
  set(Hwloc_FOUND TRUE)
  return()
endif()
find_path(Hwloc_INCLUDE_DIR hwloc.h)
find_library(Hwloc_LIBRARY hwloc)
if(Hwloc_INCLUDE_DIR)
  file(STRINGS ${Hwloc_INCLUDE_DIR}/hwloc.h _line REGEX "#define +HWLOC_API_VERSION +0x[0-9a-fA-F]+")
  if(_line MATCHES "0x(....)(..)(..)")  # of its interface: major, minor, release
    math(EXPR _major "0x${CMAKE_MATCH_1}")
    math(EXPR _minor "0x${CMAKE_MATCH_2}")
    set(Hwloc_VERSION ${_major}.${_minor})
  endif()
endif()
mark_as_advanced(Hwloc_INCLUDE_DIR Hwloc_LIBRARY)
include(FindPackageHandleStandardArgs)
find_package_handle_standard_args(Hwloc REQUIRED_VARS Hwloc_LIBRARY Hwloc_INCLUDE_DIR VERSION_VAR Hwloc_VERSION
  REASON_FAILURE_MESSAGE "Debian, Ubuntu: apt-get install libhwloc-dev")
add_library(Hwloc::hwloc UNKNOWN IMPORTED)
set_target_properties(Hwloc::hwloc PROPERTIES
  IMPORTED_LOCATION "${Hwloc_LIBRARY}" INTERFACE_INCLUDE_DIRECTORIES "${Hwloc_INCLUDE_DIR}")
