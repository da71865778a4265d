# FindLibTorchCuda: LibTorch's CUDA libraries, the CUDA toolkit they were built with, and NCCL.
#
# Needs FindLibTorchCpu first. NCCL is looked for in NCCL_ROOT, the wheel beside LibTorch, and the toolkit.
# Gives LibTorchCuda::torch_cuda (with cudart, cuBLASLt and NCCL) for the objects and programs of the CUDA variant.

if(TARGET LibTorchCuda::torch_cuda)
  set(LibTorchCuda_FOUND TRUE)
  return()
endif()

find_package(CUDAToolkit REQUIRED)

if(NOT EXISTS ${LibTorchCpu_LIBRARY_DIR}/libtorch_cuda.so)
  message(FATAL_ERROR "The LibTorch in ${LibTorchCpu_LIBRARY_DIR} is a CPU-only build (it has no libtorch_cuda.so); "
    "VIT_HYBRID_ENABLE_CUDA needs one with CUDA, which launch/install_dependencies --cuda fetches.\n")
endif()

# The toolkit must be of the major version LibTorch was built with: there is one libcudart in a process.
file(STRINGS ${LibTorchCpu_LIBRARY_DIR}/libc10_cuda.so _cudart REGEX "libcudart\\.so\\.[0-9]+" LIMIT_COUNT 1)
string(REGEX MATCH "libcudart\\.so\\.([0-9]+)" _ "${_cudart}")
if(CMAKE_MATCH_1 AND NOT CMAKE_MATCH_1 EQUAL CUDAToolkit_VERSION_MAJOR)
  message(FATAL_ERROR "LibTorch ${LibTorchCpu_VERSION} was built with CUDA ${CMAKE_MATCH_1}, the toolkit found in "
    "${CUDAToolkit_LIBRARY_DIR} is ${CUDAToolkit_VERSION}; point CUDAToolkit_ROOT to one of version ${CMAKE_MATCH_1}.\n")
endif()

set(_hints ${NCCL_ROOT} $ENV{NCCL_ROOT} ${LibTorchCpu_WHEEL_DIR}/nvidia/nccl)
find_path(NCCL_INCLUDE_DIR nccl.h HINTS ${_hints} ${CUDAToolkit_INCLUDE_DIRS} PATH_SUFFIXES include)
find_library(NCCL_LIBRARY NAMES nccl libnccl.so.2
  HINTS ${_hints} ${CUDAToolkit_LIBRARY_DIR} PATH_SUFFIXES lib lib64)
mark_as_advanced(NCCL_INCLUDE_DIR NCCL_LIBRARY)

# libtorch_cuda.so needs these, which are in no toolkit: name them here rather than in a page of linker errors.
set(_needed cufile cusparseLt)
if(EXISTS ${LibTorchCpu_LIBRARY_DIR}/libtorch_nvshmem.so)  # from 2.8 on
  list(APPEND _needed nvshmem_host)
endif()
set(_search_dirs ${CUDAToolkit_LIBRARY_DIR})
foreach(_library IN LISTS _needed)
  find_library(LibTorchCuda_${_library} NAMES ${_library} lib${_library}.so.0 lib${_library}.so.3
    HINTS ${LibTorchCpu_WHEEL_DIR}/nvidia/cu13/lib ${LibTorchCpu_WHEEL_DIR}/nvidia/cufile/lib
      ${LibTorchCpu_WHEEL_DIR}/nvidia/cusparselt/lib ${LibTorchCpu_WHEEL_DIR}/cusparselt/lib
      ${LibTorchCpu_WHEEL_DIR}/nvidia/nvshmem/lib ${CUDAToolkit_LIBRARY_DIR})
  mark_as_advanced(LibTorchCuda_${_library})
  if(LibTorchCuda_${_library})
    get_filename_component(_dir ${LibTorchCuda_${_library}} DIRECTORY)
    list(APPEND _search_dirs ${_dir})
  endif()
endforeach()

include(FindPackageHandleStandardArgs)
list(TRANSFORM _needed PREPEND LibTorchCuda_)
find_package_handle_standard_args(LibTorchCuda
  REQUIRED_VARS NCCL_LIBRARY NCCL_INCLUDE_DIR ${_needed}
  REASON_FAILURE_MESSAGE "launch/install_dependencies --cuda fetches what is not in the CUDA toolkit")

list(REMOVE_DUPLICATES _search_dirs)
# --no-as-needed: LibTorch's CUDA half registers itself when it is loaded, no symbol of it is called directly.
set(_link_options LINKER:--no-as-needed)
foreach(_dir IN LISTS _search_dirs)
  list(APPEND _link_options "LINKER:-rpath,${_dir}")
endforeach()

add_library(LibTorchCuda::c10_cuda SHARED IMPORTED)
set_target_properties(LibTorchCuda::c10_cuda PROPERTIES IMPORTED_LOCATION ${LibTorchCpu_LIBRARY_DIR}/libc10_cuda.so)
add_library(LibTorchCuda::nccl UNKNOWN IMPORTED)
set_target_properties(LibTorchCuda::nccl PROPERTIES
  IMPORTED_LOCATION ${NCCL_LIBRARY} INTERFACE_INCLUDE_DIRECTORIES ${NCCL_INCLUDE_DIR})
add_library(LibTorchCuda::torch_cuda SHARED IMPORTED)
set_target_properties(LibTorchCuda::torch_cuda PROPERTIES
  IMPORTED_LOCATION ${LibTorchCpu_LIBRARY_DIR}/libtorch_cuda.so
  INTERFACE_LINK_LIBRARIES
    "LibTorchCuda::c10_cuda;LibTorchCuda::nccl;CUDA::cublasLt;CUDA::cudart;LibTorchCpu::torch_cpu"
  INTERFACE_LINK_OPTIONS "${_link_options}")
