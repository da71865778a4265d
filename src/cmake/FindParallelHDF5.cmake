# FindParallelHDF5: the parallel build of HDF5 that belongs to the MPI that find_package(MPI) chose.
#
# CMake's own FindHDF5 takes the serial library where both are installed (Debian), and knows nothing of two MPIs side by
# side. Looked at, in this order: HDF5_ROOT (variable or environment; also the environment's HDF5_DIR, which cluster
# modules set), Debian's place for the MPI in use, CMAKE_PREFIX_PATH and the system.
#
# Gives the target ParallelHDF5::hdf5 and ParallelHDF5_VERSION.

if(TARGET ParallelHDF5::hdf5)
  set(ParallelHDF5_FOUND TRUE)
  return()
endif()

if(NOT MPI_C_FOUND)
  message(FATAL_ERROR "FindParallelHDF5 needs find_package(MPI) to have been called first.")
endif()

# Which MPI is it? Asked of mpi.h itself, without running anything (login nodes often cannot run MPI programs).
include(CheckSymbolExists)
set(CMAKE_REQUIRED_LIBRARIES MPI::MPI_C)
check_symbol_exists(OPEN_MPI mpi.h VIT_HYBRID_MPI_IS_OPENMPI)
check_symbol_exists(MPICH_VERSION mpi.h VIT_HYBRID_MPI_IS_MPICH)
unset(CMAKE_REQUIRED_LIBRARIES)
if(VIT_HYBRID_MPI_IS_OPENMPI)
  set(_flavour openmpi)
  set(_foreign_mpi "libmpich|libmpi_gnu")
elseif(VIT_HYBRID_MPI_IS_MPICH)
  set(_flavour mpich)
  set(_foreign_mpi "libmpi\\.so\\.40|libopen-rte|libopen-pal")
else()
  set(_flavour other)
  set(_foreign_mpi "^$")
endif()

set(_roots ${HDF5_ROOT} $ENV{HDF5_ROOT} $ENV{HDF5_DIR})
find_path(ParallelHDF5_INCLUDE_DIR hdf5.h PATHS ${_roots} PATH_SUFFIXES include NO_DEFAULT_PATH)
find_library(ParallelHDF5_LIBRARY hdf5 PATHS ${_roots} PATH_SUFFIXES lib lib64 NO_DEFAULT_PATH)
find_path(ParallelHDF5_INCLUDE_DIR hdf5.h PATHS /usr/include/hdf5/${_flavour} NO_DEFAULT_PATH)
find_library(ParallelHDF5_LIBRARY hdf5
  PATHS /usr/lib/${CMAKE_LIBRARY_ARCHITECTURE}/hdf5/${_flavour} NO_DEFAULT_PATH)
find_path(ParallelHDF5_INCLUDE_DIR hdf5.h)
find_library(ParallelHDF5_LIBRARY hdf5)

set(_advice
  "  Debian, Ubuntu: apt-get install libhdf5-openmpi-dev (with Open MPI) or libhdf5-mpich-dev (with MPICH)\n\
  Fedora, RHEL:   dnf install hdf5-openmpi-devel or hdf5-mpich-devel, and load the MPI module\n\
  clusters:       load the parallel HDF5 module (Cray: cray-hdf5-parallel)\n\
  elsewhere:      -DHDF5_ROOT=<where an HDF5 configured with --enable-parallel is installed>\n")
if(NOT ParallelHDF5_INCLUDE_DIR OR NOT ParallelHDF5_LIBRARY)
  message(FATAL_ERROR "HDF5 was not found; its parallel build is needed.\n${_advice}")
endif()

set(_is_parallel FALSE)
set(ParallelHDF5_VERSION "")
file(GLOB _config_headers ${ParallelHDF5_INCLUDE_DIR}/H5pubconf*.h)
foreach(_header IN LISTS _config_headers)
  file(STRINGS ${_header} _lines REGEX "#define H5_(HAVE_PARALLEL|VERSION) ")
  foreach(_line IN LISTS _lines)
    if(_line MATCHES "H5_HAVE_PARALLEL 1")
      set(_is_parallel TRUE)
    elseif(_line MATCHES "H5_VERSION \"([^\"]+)\"")
      set(ParallelHDF5_VERSION "${CMAKE_MATCH_1}")
    endif()
  endforeach()
endforeach()
if(NOT _is_parallel)
  message(FATAL_ERROR "The HDF5 in ${ParallelHDF5_INCLUDE_DIR} is the serial one; the parallel build is needed.\n${_advice}")
endif()
if(ParallelHDF5_VERSION VERSION_LESS 1.10)
  message(FATAL_ERROR "HDF5 ${ParallelHDF5_VERSION} in ${ParallelHDF5_INCLUDE_DIR} is too old; 1.10 or later is needed.")
endif()

# A parallel HDF5 of the other MPI links, and then crashes in its first call: refuse it here.
if(CMAKE_READELF AND ParallelHDF5_LIBRARY MATCHES "\\.so")
  execute_process(COMMAND ${CMAKE_READELF} -d ${ParallelHDF5_LIBRARY} OUTPUT_VARIABLE _needed ERROR_QUIET)
  string(REGEX MATCHALL "\\(NEEDED\\)[^\n]*" _needed "${_needed}")
  if("${_needed}" MATCHES "${_foreign_mpi}")
    message(FATAL_ERROR "${ParallelHDF5_LIBRARY} was built with another MPI than the one found (${MPI_C_COMPILER}, "
      "${_flavour}).\n${_advice}")
  endif()
endif()

include(FindPackageHandleStandardArgs)
find_package_handle_standard_args(ParallelHDF5
  REQUIRED_VARS ParallelHDF5_LIBRARY ParallelHDF5_INCLUDE_DIR VERSION_VAR ParallelHDF5_VERSION)
add_library(ParallelHDF5::hdf5 UNKNOWN IMPORTED)
set_target_properties(ParallelHDF5::hdf5 PROPERTIES
  IMPORTED_LOCATION "${ParallelHDF5_LIBRARY}"
  INTERFACE_INCLUDE_DIRECTORIES "${ParallelHDF5_INCLUDE_DIR}"
  INTERFACE_LINK_LIBRARIES MPI::MPI_C)
mark_as_advanced(ParallelHDF5_INCLUDE_DIR ParallelHDF5_LIBRARY)
