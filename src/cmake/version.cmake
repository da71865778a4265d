# vh_add_version(<target>): compiles into <target> what src/base/version.h declares.
#
# Versions of libraries are fixed when CMake configures. The git commit and the dirty flag are looked at in every build,
# by a script that leaves its output untouched where nothing changed, so that nothing is compiled in vain.

function(vh_add_version target)
  if(yaml-cpp_VERSION)
    set(yaml_cpp_version ${yaml-cpp_VERSION})
  else()
    set(yaml_cpp_version unknown)
  endif()
  set(VIT_HYBRID_YAML_CPP_VERSION ${yaml_cpp_version})
  set(generated ${CMAKE_BINARY_DIR}/generated)
  configure_file(${PROJECT_SOURCE_DIR}/src/base/version.cpp.in ${generated}/version.cpp @ONLY)
  find_package(Git QUIET)
  add_custom_target(vit_hybrid_git_version
    COMMAND ${CMAKE_COMMAND} -DGIT=${GIT_EXECUTABLE} -DSOURCE_DIR=${PROJECT_SOURCE_DIR}
      -DOUTPUT=${generated}/git_version.cpp -P ${PROJECT_SOURCE_DIR}/src/cmake/write_git_version.cmake
    BYPRODUCTS ${generated}/git_version.cpp
    COMMENT "Looking at the git commit"
    VERBATIM)
  target_sources(${target} PRIVATE ${generated}/version.cpp ${generated}/git_version.cpp)
  set_source_files_properties(${generated}/version.cpp ${generated}/git_version.cpp
    PROPERTIES SKIP_PRECOMPILE_HEADERS ON SKIP_UNITY_BUILD_INCLUSION ON)
  add_dependencies(${target} vit_hybrid_git_version)
endfunction()
