# Functions that make tests. Every entry has a time limit, a number of processors that CTest counts (so that `ctest -j`
# does not start more ranks than it should), one environment, and labels: its tier (default or full), the number of its
# ranks, which is that of its processors (ranks-4), and gpu for what needs one: `ctest -L ranks-4`.

# 77 is how a test program says "skipped"; a test that is skipped in part prints a line with "[skipped]".
set(VIT_HYBRID_SKIP_CODE 77)

# Ranks outnumber the cores here and there: a waiting rank gives its core away, and each computes with one thread.
set(VIT_HYBRID_TEST_ENVIRONMENT
  OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 OMPI_MCA_rmaps_base_oversubscribe=1
  OMPI_MCA_mpi_yield_when_idle=1 OMPI_MCA_btl_base_warn_component_unused=0
  OMP_NUM_THREADS=1 MKL_NUM_THREADS=1)
if(VIT_HYBRID_SANITIZE)
  # MPI and LibTorch keep allocations until the end on purpose.
  list(APPEND VIT_HYBRID_TEST_ENVIRONMENT ASAN_OPTIONS=detect_leaks=0:allocator_may_return_null=1 UBSAN_OPTIONS=print_stacktrace=1)
endif()

set(VIT_HYBRID_MPIRUN ${MPIEXEC_EXECUTABLE})
if(VIT_HYBRID_MPI_IS_OPENMPI)
  # All jobs of a user on a node share a session folder, and all isolated singletons one below it, jf.0/1/0; the last one
  # removes it, and one that starts at that moment does not find it and fails (7 of 1,200 that ran four at a time). That
  # of the tests holds a file that Open MPI leaves alone. Not in the build tree, which may be on a network.
  string(MD5 sessions ${PROJECT_BINARY_DIR})
  string(SUBSTRING ${sessions} 0 8 sessions)
  set(sessions /tmp/vit_hybrid-tests-${sessions})
  cmake_host_system_information(RESULT host QUERY HOSTNAME)
  string(REGEX REPLACE "\\..*" "" host ${host})
  execute_process(COMMAND id -u OUTPUT_VARIABLE user OUTPUT_STRIP_TRAILING_WHITESPACE)
  file(WRITE ${sessions}/ompi.${host}.${user}/jf.0/1/0/output-kept "")
  # ob1 is what Open MPI uses on one node in the end; a start that need not look for networks takes 0.2 to 0.3 s less.
  list(APPEND VIT_HYBRID_TEST_ENVIRONMENT OMPI_MCA_orte_tmpdir_base=${sessions} OMPI_MCA_pml=ob1)
  list(APPEND VIT_HYBRID_MPIRUN -q --oversubscribe --bind-to none)
else()
  list(APPEND VIT_HYBRID_TEST_ENVIRONMENT MPIR_CVAR_POLLS_BEFORE_YIELD=1
    LD_PRELOAD=$<TARGET_FILE:vit_hybrid_test_polite_ucx>)
endif()
list(APPEND VIT_HYBRID_MPIRUN ${MPIEXEC_NUMPROC_FLAG})

# The sanitizers make everything several times slower.
set(VIT_HYBRID_TIMEOUT_FACTOR 1)
if(VIT_HYBRID_SANITIZE OR CMAKE_BUILD_TYPE STREQUAL Debug)
  set(VIT_HYBRID_TIMEOUT_FACTOR 4)
endif()

function(_vh_set_test_properties name processors timeout label)
  math(EXPR timeout "${timeout} * ${VIT_HYBRID_TIMEOUT_FACTOR}")
  set_tests_properties(${name} PROPERTIES
    TIMEOUT ${timeout} PROCESSORS ${processors} LABELS "${label};ranks-${processors}"
    ENVIRONMENT "${VIT_HYBRID_TEST_ENVIRONMENT}" SKIP_RETURN_CODE ${VIT_HYBRID_SKIP_CODE})
endfunction()

# A test is compiled once and run once: in a release build what O2 takes longer than O1 is more than it saves.
function(vh_compile_quickly target)
  # GCC sees less at O1 and takes empty tensors of optionals for uninitialized ones; clang-tidy does not know that warning.
  set(options -O1 -Wno-maybe-uninitialized -Wno-unknown-warning-option)
  target_compile_options(${target} PRIVATE "$<$<AND:$<CONFIG:Release>,$<COMPILE_LANGUAGE:CXX>>:${options}>")
endfunction()

# In a unity build tests are compiled with those of their own box alone, whatever is added to others.
function(_vh_group_by_box target)
  get_target_property(sources ${target} SOURCES)
  list(FILTER sources INCLUDE REGEX "\\.cpp$")
  foreach(source IN LISTS sources)
    file(RELATIVE_PATH box ${PROJECT_SOURCE_DIR}/tests ${source})
    while(box AND NOT EXISTS ${PROJECT_SOURCE_DIR}/${box}/CMakeLists.txt)
      get_filename_component(box ${box} DIRECTORY)
    endwhile()
    string(MAKE_C_IDENTIFIER "${box}" box)
    list(APPEND sources_of_${box} ${source})
    list(LENGTH sources_of_${box} count)
    math(EXPR group "(${count} - 1) / 8")
    set_source_files_properties(${source} PROPERTIES UNITY_GROUP ${box}_${group})
  endforeach()
  set_target_properties(${target} PROPERTIES UNITY_BUILD_MODE GROUP)
endfunction()

# vh_add_test_program(<name> MAIN unit|mpi|gpu SOURCES ... [CUDA] [LIBRARIES <target>...]): a program of doctest's cases.
# CUDA links the CUDA device library.
function(vh_add_test_program name)
  cmake_parse_arguments(ARG "CUDA" "MAIN" "SOURCES;LIBRARIES" ${ARGN})
  set(device "")
  if(ARG_CUDA)
    set(device CUDA)
  endif()
  vh_add_program(${name} ${device} SOURCES ${ARG_SOURCES} LIBRARIES vit_hybrid_test_${ARG_MAIN}_main ${ARG_LIBRARIES})
  vh_compile_quickly(${name})
  get_target_property(is_united ${name} UNITY_BUILD)
  if(is_united)
    _vh_group_by_box(${name})
  endif()
endfunction()

# vh_add_test(<name> COMMAND ... [TIMEOUT s] [PROCESSORS n] [LABEL default|full]): an entry that is one command.
function(vh_add_test name)
  cmake_parse_arguments(ARG "" "TIMEOUT;PROCESSORS;LABEL" "COMMAND" ${ARGN})
  _vh_test_defaults()
  add_test(NAME ${name} COMMAND ${ARG_COMMAND})
  _vh_set_test_properties(${name} ${ARG_PROCESSORS} ${ARG_TIMEOUT} ${ARG_LABEL})
endfunction()

# vh_add_mpi_test(<program> RANKS n... [NAME name] [ARGUMENTS ...] [TIMEOUT s] [LABEL default|full] [GPU]): the entries
# <name>_<n>, one for each number of ranks.
function(vh_add_mpi_test program)
  cmake_parse_arguments(ARG "GPU" "NAME;TIMEOUT;PROCESSORS;LABEL" "RANKS;ARGUMENTS" ${ARGN})
  _vh_test_defaults()
  if(NOT ARG_NAME)
    set(ARG_NAME ${program})
  endif()
  set(gpu "")
  if(ARG_GPU)
    set(gpu gpu)
  endif()
  foreach(ranks IN LISTS ARG_RANKS)
    add_test(NAME ${ARG_NAME}_${ranks}
      COMMAND ${VIT_HYBRID_MPIRUN} ${ranks} $<TARGET_FILE:${program}> ${ARG_ARGUMENTS})
    _vh_set_test_properties(${ARG_NAME}_${ranks} ${ranks} ${ARG_TIMEOUT} ${ARG_LABEL})
    set_property(TEST ${ARG_NAME}_${ranks} APPEND PROPERTY LABELS ${gpu})
  endforeach()
endfunction()

# vh_add_skipped_test(<name> <reason>): an entry that reports itself as skipped, for what this build cannot test.
function(vh_add_skipped_test name reason)
  add_test(NAME ${name} COMMAND ${CMAKE_COMMAND} -E echo "[skipped] ${reason}")
  set_tests_properties(${name} PROPERTIES LABELS default SKIP_REGULAR_EXPRESSION "\\[skipped\\]")
endfunction()

macro(_vh_test_defaults)
  if(NOT ARG_TIMEOUT)
    set(ARG_TIMEOUT 600)
  endif()
  if(NOT ARG_PROCESSORS)
    set(ARG_PROCESSORS 1)
  endif()
  if(NOT ARG_LABEL)
    set(ARG_LABEL default)
  endif()
endmacro()
