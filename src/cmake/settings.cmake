# How everything is compiled: language, baseline instruction set, optimisation, warnings, sanitizers, ccache.

if(CMAKE_CXX_COMPILER_ID STREQUAL GNU AND CMAKE_CXX_COMPILER_VERSION VERSION_LESS 12)
  message(FATAL_ERROR "This is GCC ${CMAKE_CXX_COMPILER_VERSION}; 12 or later is needed (set CXX, or load a module).")
endif()

set(CMAKE_CXX_STANDARD 20)
set(CMAKE_CXX_STANDARD_REQUIRED ON)
set(CMAKE_CXX_EXTENSIONS OFF)
set(CMAKE_EXPORT_COMPILE_COMMANDS ON)
set(CMAKE_RUNTIME_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/bin)
set(CMAKE_ARCHIVE_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/lib)

if(NOT CMAKE_BUILD_TYPE)
  set(CMAKE_BUILD_TYPE Release CACHE STRING "Release or Debug" FORCE)
endif()
# Unity builds: most of a file's time goes into headers, and into templates of the standard library, ATen and
# nlohmann::json, which the files of a box share when they are compiled eight at a time.
option(CMAKE_UNITY_BUILD "Compile the files of a box eight at a time; OFF: each alone, for who edits one" ON)
# Assertions stay on in every build (VH_ASSERT does not look at NDEBUG). -g1: line numbers in a stack trace at a fraction
# of the compile time and size of -g.
set(CMAKE_CXX_FLAGS_RELEASE "-O2 -g1" CACHE STRING "" FORCE)
set(CMAKE_CXX_FLAGS_DEBUG "-O0 -g -D_GLIBCXX_ASSERTIONS" CACHE STRING "" FORCE)

# Flags that all our targets share; vh_apply_settings() hands them out. They must be the same for all of them, because
# one precompiled header serves all.
# -fno-trapping-math: nobody asks for traps, but GCC takes a choice between two numbers for a branch that may keep one
# from happening, and without AVX-512's masks makes no vectors of such loops (GELU and softmax on AVX2 were five to seven
# times as slow). Clang assumes it anyway.
set(VIT_HYBRID_COMPILE_OPTIONS -Wall -Wextra -Wpedantic -Wshadow -fopenmp -fno-trapping-math)
if(VIT_HYBRID_WARNINGS_AS_ERRORS)
  list(APPEND VIT_HYBRID_COMPILE_OPTIONS -Werror)
endif()
# A baseline that every x86 cluster of the last decade has; kernels that want more choose it at run time.
if(CMAKE_SYSTEM_PROCESSOR MATCHES "^(x86_64|AMD64|amd64)$")
  list(APPEND VIT_HYBRID_COMPILE_OPTIONS -march=x86-64-v2)
endif()
# GCC's collector goes through all of the precompiled header's memory each time: with fewer of them a file takes an
# eighth less, and 40 MB more.
if(CMAKE_CXX_COMPILER_ID STREQUAL GNU AND NOT CMAKE_DISABLE_PRECOMPILE_HEADERS)
  list(APPEND VIT_HYBRID_COMPILE_OPTIONS --param=ggc-min-expand=1000 --param=ggc-min-heapsize=2097152)
endif()
set(VIT_HYBRID_LINK_OPTIONS "")
if(VIT_HYBRID_SANITIZE)
  # -fno-sanitize=vptr: LibTorch is built without it, and its classes would all be reported.
  set(sanitizers -fsanitize=address,undefined -fno-sanitize=vptr -fno-sanitize-recover=undefined)
  list(APPEND VIT_HYBRID_COMPILE_OPTIONS -O1 -fno-omit-frame-pointer ${sanitizers})
  list(APPEND VIT_HYBRID_LINK_OPTIONS ${sanitizers})
endif()

# ccache when it is there, which has what a file includes from the compiler's own list. The sloppiness is what it asks for
# before it serves files that use a precompiled header.
find_program(VIT_HYBRID_CCACHE ccache DOC "ccache, used when present")
mark_as_advanced(VIT_HYBRID_CCACHE)
if(VIT_HYBRID_CCACHE AND NOT CMAKE_CXX_COMPILER_LAUNCHER)
  set(CMAKE_CXX_COMPILER_LAUNCHER ${CMAKE_COMMAND} -E env
    CCACHE_DEPEND=1 CCACHE_SLOPPINESS=pch_defines,time_macros,include_file_mtime,include_file_ctime ${VIT_HYBRID_CCACHE})
  if(CMAKE_CXX_COMPILER_ID STREQUAL GNU)
    list(APPEND VIT_HYBRID_COMPILE_OPTIONS -fpch-preprocess)
  endif()
endif()
