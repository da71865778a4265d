# Installs the build into a scratch folder, builds the project in consumer/ against it, and runs both programs (cmake -P).
# Given: BUILD_DIR, SOURCE_DIR, WORK_DIR, GENERATOR, CXX_COMPILER, C_COMPILER, CXX_FLAGS, BIN_DIR (relative), MPIRUN.
function(run)
  execute_process(COMMAND ${ARGV} RESULT_VARIABLE failed)
  if(failed)
    string(REPLACE ";" " " command "${ARGV}")
    message(FATAL_ERROR "failed (${failed}): ${command}")
  endif()
endfunction()

file(REMOVE_RECURSE ${WORK_DIR})
run(${CMAKE_COMMAND} --install ${BUILD_DIR} --prefix ${WORK_DIR}/prefix)
run(${WORK_DIR}/prefix/${BIN_DIR}/vit_hybrid --version)
run(${CMAKE_COMMAND} -S ${SOURCE_DIR}/consumer -B ${WORK_DIR}/build -G ${GENERATOR}
  -DCMAKE_PREFIX_PATH=${WORK_DIR}/prefix -DCMAKE_C_COMPILER=${C_COMPILER} -DCMAKE_CXX_COMPILER=${CXX_COMPILER}
  "-DCMAKE_CXX_FLAGS=${CXX_FLAGS}")
run(${CMAKE_COMMAND} --build ${WORK_DIR}/build)
separate_arguments(MPIRUN)
run(${MPIRUN} 2 ${WORK_DIR}/build/consumer)
file(REMOVE_RECURSE ${WORK_DIR})
