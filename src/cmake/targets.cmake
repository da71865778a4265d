# Functions that make the project's targets: libraries, programs, and the two device variants.

function(vh_apply_settings target)
  target_compile_options(${target} PRIVATE $<$<COMPILE_LANGUAGE:CXX>:${VIT_HYBRID_COMPILE_OPTIONS}>)
  target_link_options(${target} PRIVATE ${VIT_HYBRID_LINK_OPTIONS})
endfunction()

# One precompiled header, compiled once, used by every library and program.
function(vh_use_precompiled_header target)
  target_precompile_headers(${target} REUSE_FROM vit_hybrid_precompiled)
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
# vit_hybrid::<box>, from all .cpp files of the current folder and the folders below that are no boxes themselves (have no
# CMakeLists.txt).
#
# The sources are globbed, with CONFIGURE_DEPENDS, on purpose: a box is its folder, and a list beside the folder could
# only repeat it or be wrong. Files that know CUDA or NCCL, and their stubs, are left to the device libraries below.
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
  list(FILTER sources EXCLUDE REGEX "(nccl|cuda)[^/]*\\.cpp$")
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
endfunction()

# The device libraries: the only objects in which the CPU and the CUDA variant of a program differ.
#   vit_hybrid_device_cpu   the no_*.cpp stubs
#   vit_hybrid_device_cuda  the *nccl*.cpp and *cuda*.cpp files, with NCCL, cudart and LibTorch's CUDA libraries
# base and comm call into them, they call back: CMake resolves the cycle of static libraries. Which of the two a program
# gets is its own property VIT_HYBRID_DEVICE (cuda, else the CPU).
function(vh_add_device_libraries)
  file(GLOB device_sources CONFIGURE_DEPENDS
    ${PROJECT_SOURCE_DIR}/src/base/*cuda*.cpp ${PROJECT_SOURCE_DIR}/src/base/*nccl*.cpp
    ${PROJECT_SOURCE_DIR}/parallel/comm/*cuda*.cpp ${PROJECT_SOURCE_DIR}/parallel/comm/*nccl*.cpp)
  set(cpu_sources ${device_sources})
  list(FILTER cpu_sources INCLUDE REGEX "/no_[^/]*$")
  list(FILTER device_sources EXCLUDE REGEX "/no_[^/]*$")
  _vh_add_device_library(cpu "${cpu_sources}" "")
  set(choice $<TARGET_NAME:vit_hybrid_device_cpu>)
  if(VIT_HYBRID_ENABLE_CUDA)
    _vh_add_device_library(cuda "${device_sources}" LibTorchCuda::torch_cuda)
    set(choice
      $<IF:$<STREQUAL:$<TARGET_PROPERTY:VIT_HYBRID_DEVICE>,cuda>,$<TARGET_NAME:vit_hybrid_device_cuda>,${choice}>)
  endif()
  target_link_libraries(vit_hybrid_base INTERFACE ${choice})
  target_link_libraries(vit_hybrid_comm INTERFACE ${choice})
endfunction()

function(_vh_add_device_library device sources libraries)
  set(target vit_hybrid_device_${device})
  add_library(${target} STATIC ${sources} ${PROJECT_SOURCE_DIR}/src/cmake/device_anchor.cpp)
  vh_use_common(${target})
  target_link_libraries(${target} PUBLIC vit_hybrid_comm vit_hybrid_base ${libraries})
  set_target_properties(${target} PROPERTIES EXPORT_NAME device_${device})
  add_library(vit_hybrid::device_${device} ALIAS ${target})
  set_property(GLOBAL APPEND PROPERTY VIT_HYBRID_LIBRARIES ${target})
endfunction()

# vh_add_program(<name> SOURCES ... [LIBRARIES <target>...] [CUDA]): a program of ours; with CUDA, it is linked with the
# CUDA device library instead of the stubs.
function(vh_add_program name)
  cmake_parse_arguments(ARG "CUDA" "" "SOURCES;LIBRARIES" ${ARGN})
  add_executable(${name} ${ARG_SOURCES})
  vh_use_common(${name})
  target_link_libraries(${name} PRIVATE ${ARG_LIBRARIES})
  if(ARG_CUDA)
    set_target_properties(${name} PROPERTIES VIT_HYBRID_DEVICE cuda)
  endif()
endfunction()
