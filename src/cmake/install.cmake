# Installation: the program (the CUDA variant where it was built), the libraries, their headers, and a CMake package with
# the targets vit_hybrid::<box>.
include(CMakePackageConfigHelpers)
set(package_dir ${CMAKE_INSTALL_LIBDIR}/cmake/vit_hybrid)

if(TARGET vit_hybrid_cuda)
  install(TARGETS vit_hybrid_cuda)
elseif(TARGET vit_hybrid)
  install(TARGETS vit_hybrid)
endif()

get_property(libraries GLOBAL PROPERTY VIT_HYBRID_LIBRARIES)
install(TARGETS ${libraries} EXPORT vit_hybridTargets ARCHIVE DESTINATION ${CMAKE_INSTALL_LIBDIR}/vit_hybrid)
install(EXPORT vit_hybridTargets NAMESPACE vit_hybrid:: DESTINATION ${package_dir})

foreach(folder src/base src/kernels parallel model data src/config src/machine src/plan src/report src/checkpoint src/train src/infer)
  install(DIRECTORY ${folder} DESTINATION ${CMAKE_INSTALL_INCLUDEDIR}/vit_hybrid/${folder}/..
    FILES_MATCHING PATTERN "*.h")
endforeach()

configure_package_config_file(src/cmake/vit_hybridConfig.cmake.in ${CMAKE_BINARY_DIR}/generated/vit_hybridConfig.cmake
  INSTALL_DESTINATION ${package_dir})
write_basic_package_version_file(${CMAKE_BINARY_DIR}/generated/vit_hybridConfigVersion.cmake
  COMPATIBILITY SameMinorVersion)
install(FILES
  ${CMAKE_BINARY_DIR}/generated/vit_hybridConfig.cmake ${CMAKE_BINARY_DIR}/generated/vit_hybridConfigVersion.cmake
  src/cmake/FindParallelHDF5.cmake src/cmake/FindLibTorchCpu.cmake src/cmake/FindLibTorchCuda.cmake src/cmake/FindXxHash.cmake
  src/cmake/FindHwloc.cmake src/cmake/FindBlosc.cmake src/cmake/FindDeflate.cmake src/cmake/FindLz4.cmake
  src/cmake/FindZstd.cmake
  DESTINATION ${package_dir})
