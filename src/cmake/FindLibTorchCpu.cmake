# FindLibTorchCpu: LibTorch's C++ libraries, linked by path.
#
# TorchConfig.cmake's `torch` target drags every CUDA library into a program that only needs the CPU, so it is not used.
# Looked at, in this order: LIBTORCH_ROOT and CMAKE_PREFIX_PATH (a LibTorch archive, a site-packages folder or the torch
# folder in it), the torch of the Python interpreter, and the folder that launch/install_dependencies fills.
#
# Gives LibTorchCpu::torch_cpu (whoever links it is compiled with -fopenmp: without it at::parallel_for silently runs on
# one thread), LibTorchCpu_VERSION, LibTorchCpu_LIBRARY_DIR and LibTorchCpu_WHEEL_DIR (the folder that holds torch/).

if(TARGET LibTorchCpu::torch_cpu)
  set(LibTorchCpu_FOUND TRUE)
  return()
endif()

set(LibTorchCpu_PINNED 2.11.0)
set(_oldest 2.7)
set(_too_new 2.12)

# Sets VERSION to the version of the LibTorch whose include directory is given, or to nothing.
function(_libtorch_version include_dir variable)
  set(version "")
  foreach(header torch/headeronly/version.h torch/csrc/api/include/torch/version.h)
    if(EXISTS ${include_dir}/${header} AND NOT version)
      file(STRINGS ${include_dir}/${header} lines REGEX "#define TORCH_VERSION_(MAJOR|MINOR|PATCH) ")
      string(REGEX MATCHALL "[0-9]+" numbers "${lines}")
      list(JOIN numbers "." version)
    endif()
  endforeach()
  set(${variable} "${version}" PARENT_SCOPE)
endfunction()

set(_where "")
set(_refused "")

# 1. What the user points to: unfit there is an error, not a reason to take another one silently.
file(TO_CMAKE_PATH "$ENV{CMAKE_PREFIX_PATH}" _environment_prefixes)
find_path(LibTorchCpu_INCLUDE_DIR ATen/core/TensorBody.h
  HINTS ${LIBTORCH_ROOT} $ENV{LIBTORCH_ROOT} ${CMAKE_PREFIX_PATH} ${_environment_prefixes}
  PATH_SUFFIXES include torch/include NO_DEFAULT_PATH)

# 2. The Python that has torch (asked where it is, not made to import it, which takes seconds).
if(NOT LibTorchCpu_INCLUDE_DIR)
  find_program(VIT_HYBRID_PYTHON NAMES python3 python DOC "Python whose torch is looked at")
  if(VIT_HYBRID_PYTHON)
    execute_process(
      COMMAND ${VIT_HYBRID_PYTHON} -c
        "import importlib.util as u; s = u.find_spec('torch'); print(s.submodule_search_locations[0] if s else '')"
      OUTPUT_VARIABLE _python_torch OUTPUT_STRIP_TRAILING_WHITESPACE ERROR_QUIET)
  endif()
  if(_python_torch AND EXISTS ${_python_torch}/include/ATen/core/TensorBody.h)
    _libtorch_version(${_python_torch}/include _version)
    if(_version VERSION_LESS _oldest OR _version VERSION_GREATER_EQUAL _too_new)
      string(APPEND _refused "  ${_python_torch} is ${_version}\n")
    else()
      set(LibTorchCpu_INCLUDE_DIR ${_python_torch}/include CACHE PATH "LibTorch's include directory" FORCE)
    endif()
  endif()
endif()

# 3. What launch/install_dependencies fetched.
if(NOT LibTorchCpu_INCLUDE_DIR)
  set(_cache "$ENV{XDG_CACHE_HOME}")
  if(NOT _cache)
    set(_cache "$ENV{HOME}/.cache")
  endif()
  set(_where "${_cache}/vit_hybrid/libtorch-${LibTorchCpu_PINNED}")
  find_path(LibTorchCpu_INCLUDE_DIR ATen/core/TensorBody.h HINTS ${_where}/torch/include NO_DEFAULT_PATH)
endif()

if(NOT LibTorchCpu_INCLUDE_DIR)
  message(FATAL_ERROR "LibTorch ${_oldest} or later, before ${_too_new}, was not found.\n${_refused}"
    "  launch/install_dependencies fetches ${LibTorchCpu_PINNED} into ${_where};\n"
    "  or give -DCMAKE_PREFIX_PATH=<folder of a LibTorch, or the site-packages folder that holds torch>.\n")
endif()

_libtorch_version(${LibTorchCpu_INCLUDE_DIR} LibTorchCpu_VERSION)
if(LibTorchCpu_VERSION VERSION_LESS _oldest OR LibTorchCpu_VERSION VERSION_GREATER_EQUAL _too_new)
  message(FATAL_ERROR "LibTorch ${LibTorchCpu_VERSION} in ${LibTorchCpu_INCLUDE_DIR} cannot be used: "
    "${_oldest} or later, before ${_too_new}, is needed (${LibTorchCpu_PINNED} is the one the project is tested with).\n")
endif()

get_filename_component(_root ${LibTorchCpu_INCLUDE_DIR} DIRECTORY)
get_filename_component(LibTorchCpu_WHEEL_DIR ${_root} DIRECTORY)
find_path(LibTorchCpu_LIBRARY_DIR libtorch_cpu.so HINTS ${_root}/lib ${_root}/lib64 NO_DEFAULT_PATH)

include(FindPackageHandleStandardArgs)
find_package_handle_standard_args(LibTorchCpu
  REQUIRED_VARS LibTorchCpu_LIBRARY_DIR LibTorchCpu_INCLUDE_DIR VERSION_VAR LibTorchCpu_VERSION)
mark_as_advanced(LibTorchCpu_INCLUDE_DIR LibTorchCpu_LIBRARY_DIR VIT_HYBRID_PYTHON)

# libtorch_cpu.so needs libcupti and libcudart even where no GPU is used. Its own RPATH finds the small wheels beside it;
# else they come from the CUDA toolkit. RPATH, not RUNPATH, in our programs, because only that is searched for the
# libraries that our libraries need.
set(_search_dirs ${LibTorchCpu_LIBRARY_DIR})
file(GLOB _beside ${LibTorchCpu_WHEEL_DIR}/nvidia/*/lib)
list(APPEND _search_dirs ${_beside})
foreach(_toolkit $ENV{CUDA_HOME} $ENV{CUDA_PATH} /usr/local/cuda)
  foreach(_sub lib64 extras/CUPTI/lib64)
    if(EXISTS ${_toolkit}/${_sub})
      list(APPEND _search_dirs ${_toolkit}/${_sub})
    endif()
  endforeach()
endforeach()
set(_link_options -Wl,--disable-new-dtags)
foreach(_dir IN LISTS _search_dirs)
  list(APPEND _link_options "LINKER:-rpath,${_dir}")
endforeach()

# One OpenMP runtime in the process: the one that LibTorch brings, if it brings one.
file(GLOB _openmp ${LibTorchCpu_LIBRARY_DIR}/libgomp*.so* ${LibTorchCpu_LIBRARY_DIR}/libiomp5.so)
if(NOT _openmp)
  find_package(OpenMP REQUIRED COMPONENTS CXX)
  set(_openmp OpenMP::OpenMP_CXX)
endif()

add_library(LibTorchCpu::c10 SHARED IMPORTED)
set_target_properties(LibTorchCpu::c10 PROPERTIES IMPORTED_LOCATION ${LibTorchCpu_LIBRARY_DIR}/libc10.so)
add_library(LibTorchCpu::torch_cpu SHARED IMPORTED)
set_target_properties(LibTorchCpu::torch_cpu PROPERTIES
  IMPORTED_LOCATION ${LibTorchCpu_LIBRARY_DIR}/libtorch_cpu.so
  INTERFACE_INCLUDE_DIRECTORIES "${LibTorchCpu_INCLUDE_DIR};${LibTorchCpu_INCLUDE_DIR}/torch/csrc/api/include"
  INTERFACE_COMPILE_OPTIONS "$<$<COMPILE_LANGUAGE:CXX>:-fopenmp>"
  INTERFACE_COMPILE_DEFINITIONS AT_PER_OPERATOR_HEADERS
  INTERFACE_LINK_LIBRARIES "LibTorchCpu::c10;${_openmp}"
  INTERFACE_LINK_OPTIONS "${_link_options}")
