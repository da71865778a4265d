# The language of the device kernels (.cu files) and how they are compiled. Included after LibTorch's toolkit is found,
# so that the compiler is that toolkit's.

if(NOT CMAKE_CUDA_COMPILER AND NOT DEFINED ENV{CUDACXX} AND CUDAToolkit_NVCC_EXECUTABLE)
  set(CMAKE_CUDA_COMPILER ${CUDAToolkit_NVCC_EXECUTABLE})
endif()
# V100 (the last toolkits that know it are 12.x), T4, A100, H100 and H200, each compiled for; newer ones compile the
# intermediate code of the last at start. -DCMAKE_CUDA_ARCHITECTURES=90-real builds for one kind of GPU in a third of
# the time.
if(NOT DEFINED CMAKE_CUDA_ARCHITECTURES)
  set(CMAKE_CUDA_ARCHITECTURES 75-real 80-real 90)
  if(CUDAToolkit_VERSION VERSION_LESS 13)
    list(PREPEND CMAKE_CUDA_ARCHITECTURES 70-real)
  endif()
endif()
# One CUDA runtime in the process: the shared one that LibTorch uses.
set(CMAKE_CUDA_RUNTIME_LIBRARY Shared)
set(CMAKE_CUDA_STANDARD 17)
set(CMAKE_CUDA_STANDARD_REQUIRED ON)
set(CMAKE_CUDA_EXTENSIONS OFF)
enable_language(CUDA)
# -lineinfo: profilers show source lines, at no cost in speed.
set(CMAKE_CUDA_FLAGS_RELEASE "-O3 -lineinfo" CACHE STRING "" FORCE)
set(CMAKE_CUDA_FLAGS_DEBUG "-O0 -g" CACHE STRING "" FORCE)
if(VIT_HYBRID_CCACHE AND NOT CMAKE_CUDA_COMPILER_LAUNCHER)
  set(CMAKE_CUDA_COMPILER_LAUNCHER ${VIT_HYBRID_CCACHE})
endif()

# --expt-relaxed-constexpr: constexpr functions of the standard library (std::array's) in device code.
set(VIT_HYBRID_CUDA_OPTIONS --expt-relaxed-constexpr -Xcompiler=-Wall,-Wextra,-Wshadow)
if(VIT_HYBRID_WARNINGS_AS_ERRORS)
  list(APPEND VIT_HYBRID_CUDA_OPTIONS -Werror=all-warnings -Xcompiler=-Werror)
endif()
