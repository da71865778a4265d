# Functions that make the project's targets: libraries, programs, and the two device variants.

function(vh_apply_settings target)
  target_compile_options(${target} PRIVATE
    $<$<COMPILE_LANGUAGE:CXX>:${VIT_HYBRID_COMPILE_OPTIONS}> $<$<COMPILE_LANGUAGE:CUDA>:${VIT_HYBRID_CUDA_OPTIONS}>)
  # In a unity build GCC takes every source for a header, in which members of types without linkage would be an error.
  set(is_united $<AND:$<COMPILE_LANG_AND_ID:CXX,GNU>,$<BOOL:$<TARGET_PROPERTY:UNITY_BUILD>>>)
  target_compile_options(${target} PRIVATE $<${is_united}:-Wno-subobject-linkage>)
  target_link_options(${target} PRIVATE ${VIT_HYBRID_LINK_OPTIONS})
endfunction()

# Two precompiled headers, each compiled once, used by every library and program. After those of ATen's operations the
# compiler instantiates for a second what nobody uses, at the end of every file: only files that include them get these,
# and, in a unity build, targets with such files. What a file includes is looked at when CMake runs; the wrong header
# costs time and nothing else.
set(VIT_HYBRID_OPERATION_HEADERS "#include <(ATen/(ops/|TensorOperators|Context|Dispatch|Version|cuda)|torch/)")

function(vh_use_precompiled_header target)
  set(with_operations "")
  get_target_property(sources ${target} SOURCES)
  list(FILTER sources INCLUDE REGEX "\\.cpp$")
  foreach(source IN LISTS sources)
    file(STRINGS ${source} includes REGEX "${VIT_HYBRID_OPERATION_HEADERS}" LIMIT_COUNT 1)
    if(includes)
      list(APPEND with_operations ${source})
    endif()
  endforeach()
  get_target_property(is_united ${target} UNITY_BUILD)
  if(is_united AND with_operations)
    target_precompile_headers(${target} REUSE_FROM vit_hybrid_precompiled_operations)
    return()
  endif()
  target_precompile_headers(${target} REUSE_FROM vit_hybrid_precompiled)
  if(with_operations AND CMAKE_CXX_COMPILER_ID STREQUAL GNU AND NOT CMAKE_DISABLE_PRECOMPILE_HEADERS)
    set(header ${PROJECT_BINARY_DIR}/src/base/CMakeFiles/vit_hybrid_precompiled_operations.dir/cmake_pch.hxx)
    set_source_files_properties(${with_operations} PROPERTIES SKIP_PRECOMPILE_HEADERS ON
      COMPILE_OPTIONS "-Winvalid-pch;-include;${header}" OBJECT_DEPENDS ${header}.gch)
  endif()
endfunction()

# What every one of our objects sees: the repository root as include directory, and ATen.
function(vh_use_common target)
  vh_apply_settings(${target})
  target_include_directories(${target} PUBLIC
    $<BUILD_INTERFACE:${PROJECT_SOURCE_DIR}> $<INSTALL_INTERFACE:${CMAKE_INSTALL_INCLUDEDIR}/vit_hybrid>)
  target_compile_features(${target} PUBLIC cxx_std_20)
  target_link_libraries(${target} PUBLIC LibTorchCpu::torch_cpu Threads::Threads)
  vh_use_precompiled_header(${target})
endfunction()

# vh_add_library(<box> [DEPENDS <box>...] [LIBRARIES <target>...]): the static library vit_hybrid_<box>, alias
# vit_hybrid::<box>, from all .cpp files of the current folder and the folders below that are no boxes themselves (have
# no CMakeLists.txt).
#
# The sources are globbed, with CONFIGURE_DEPENDS, on purpose: a box is its folder, and a list beside the folder could
# only repeat it or be wrong. Files that know the libraries of GPUs go to the box's device library.
function(vh_add_library box)
  cmake_parse_arguments(ARG "" "" "DEPENDS;LIBRARIES" ${ARGN})
  file(GLOB_RECURSE sources CONFIGURE_DEPENDS ${CMAKE_CURRENT_SOURCE_DIR}/*.cpp)
  file(GLOB inner_boxes CONFIGURE_DEPENDS ${CMAKE_CURRENT_SOURCE_DIR}/*/CMakeLists.txt)
  foreach(inner_box IN LISTS inner_boxes)
    get_filename_component(folder ${inner_box} DIRECTORY)
    foreach(source IN LISTS sources)
      string(FIND ${source} ${folder}/ position)
      if(position EQUAL 0)
        list(REMOVE_ITEM sources ${source})
      endif()
    endforeach()
  endforeach()
  set(device_sources ${sources})
  list(FILTER sources EXCLUDE REGEX "${VIT_HYBRID_DEVICE_FILES}")
  list(FILTER device_sources INCLUDE REGEX "${VIT_HYBRID_DEVICE_FILES}")
  list(TRANSFORM ARG_DEPENDS PREPEND vit_hybrid_)
  set(target vit_hybrid_${box})
  if(sources)
    add_library(${target} STATIC ${sources})
    vh_use_common(${target})
    target_link_libraries(${target} PUBLIC ${ARG_DEPENDS} ${ARG_LIBRARIES})
  else()
    add_library(${target} INTERFACE)
    target_include_directories(${target} INTERFACE $<BUILD_INTERFACE:${PROJECT_SOURCE_DIR}>
      $<INSTALL_INTERFACE:${CMAKE_INSTALL_INCLUDEDIR}/vit_hybrid>)
    target_link_libraries(${target} INTERFACE LibTorchCpu::torch_cpu Threads::Threads ${ARG_DEPENDS} ${ARG_LIBRARIES})
  endif()
  set_target_properties(${target} PROPERTIES EXPORT_NAME ${box})
  add_library(vit_hybrid::${box} ALIAS ${target})
  set_property(GLOBAL APPEND PROPERTY VIT_HYBRID_LIBRARIES ${target})
  if(device_sources)
    set(device_library $<TARGET_NAME:vit_hybrid_no_cuda>)
    if(VIT_HYBRID_ENABLE_CUDA)
      _vh_add_cuda_library(${box} "${device_sources}")
      set(device_library
        $<IF:$<STREQUAL:$<TARGET_PROPERTY:VIT_HYBRID_DEVICE>,cuda>,$<TARGET_NAME:vit_hybrid_${box}_cuda>,${device_library}>)
    endif()
    target_link_libraries(${target} INTERFACE ${device_library})
  endif()
endfunction()

# The only objects in which the CPU and the CUDA variant of a program differ: a box's device files and .cu files, with
# LibTorch's CUDA libraries and NCCL, are the library vit_hybrid_<box>_cuda; programs without CUDA have vit_hybrid_no_cuda
# for all of them (src/no_cuda.cpp). The box calls into them and they call back: CMake resolves the cycle of static
# libraries. Which of the two a program gets is its own property VIT_HYBRID_DEVICE (cuda, else the CPU).
set(VIT_HYBRID_DEVICE_FILES "(cuda|cublas|cudnn|nccl)[^/]*\\.cpp$")

function(_vh_add_cuda_library box sources)
  file(GLOB_RECURSE kernels CONFIGURE_DEPENDS ${CMAKE_CURRENT_SOURCE_DIR}/*.cu)
  set(CMAKE_UNITY_BUILD OFF)  # tests replace single objects by fakes
  vh_add_device_library(${box}_cuda ${sources} ${kernels})
  target_link_libraries(vit_hybrid_${box}_cuda PUBLIC vit_hybrid_${box} LibTorchCuda::torch_cuda)
endfunction()

# vh_add_device_library(<name> <source>...): the static library vit_hybrid_<name>, alias vit_hybrid::<name>.
function(vh_add_device_library name)
  set(target vit_hybrid_${name})
  add_library(${target} STATIC ${ARGN})
  vh_use_common(${target})
  set_target_properties(${target} PROPERTIES EXPORT_NAME ${name})
  add_library(vit_hybrid::${name} ALIAS ${target})
  set_property(GLOBAL APPEND PROPERTY VIT_HYBRID_LIBRARIES ${target})
endfunction()

# vh_add_program(<name> SOURCES ... [LIBRARIES <target>...] [CUDA]): a program of ours; with CUDA, it is linked with the
# CUDA device libraries instead of vit_hybrid_no_cuda.
function(vh_add_program name)
  cmake_parse_arguments(ARG "CUDA" "" "SOURCES;LIBRARIES" ${ARGN})
  add_executable(${name} ${ARG_SOURCES})
  vh_use_common(${name})
  target_link_libraries(${name} PRIVATE ${ARG_LIBRARIES})
  if(ARG_CUDA)
    set_target_properties(${name} PROPERTIES VIT_HYBRID_DEVICE cuda)
  endif()
endfunction()
