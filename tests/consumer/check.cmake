# Installs heed into an empty prefix, moves it, and builds consumers against it: by find_package,
# without and, if IO, with heed::io, and by pkg-config.
#
#   cmake -D BUILD=.. -D WORK=.. -D CXX=.. -D IO=.. -P check.cmake

function(run)
  execute_process(COMMAND ${ARGV} RESULT_VARIABLE status OUTPUT_VARIABLE output ERROR_VARIABLE output)
  if(NOT status EQUAL 0)
    list(JOIN ARGV " " line)
    message(FATAL_ERROR "${line}\n${output}")
  endif()
  string(STRIP "${output}" output)
  set(output "${output}" PARENT_SCOPE)
endfunction()

# expect_three(program args..): it prints 3
function(expect_three)
  run(${ARGV})
  if(NOT output STREQUAL "3")
    message(FATAL_ERROR "${ARGV0} printed ${output}; 3 was expected")
  endif()
endfunction()

# build_consumer(name flags..)
function(build_consumer name)
  run(${CMAKE_COMMAND} -S ${CMAKE_CURRENT_LIST_DIR} -B ${WORK}/${name} -G Ninja ${ARGN}
    -D CMAKE_PREFIX_PATH=${WORK}/prefix -D CMAKE_CXX_COMPILER=${CXX} -D CMAKE_BUILD_TYPE=Release)
  run(${CMAKE_COMMAND} --build ${WORK}/${name})
endfunction()

file(REMOVE_RECURSE ${WORK})
run(${CMAKE_COMMAND} --install ${BUILD} --prefix ${WORK}/elsewhere)
file(RENAME ${WORK}/elsewhere ${WORK}/prefix)

# heed::heed is to need neither JSON nor libzip, so this consumer is not allowed to find them.
build_consumer(plain
  -D CMAKE_DISABLE_FIND_PACKAGE_nlohmann_json=ON -D CMAKE_DISABLE_FIND_PACKAGE_PkgConfig=ON)
expect_three(${WORK}/plain/consumer)

if(IO)
  build_consumer(io -D IO=ON)
  expect_three(${WORK}/io/consumer ${WORK}/prefix/share/heed/it.safetensors)
endif()

file(GLOB_RECURSE description ${WORK}/prefix/heed.pc)
cmake_path(GET description PARENT_PATH folder)
set(ENV{PKG_CONFIG_PATH} ${folder})
run(pkg-config --cflags --libs heed)
separate_arguments(flags UNIX_COMMAND "${output}")
run(${CXX} -std=c++20 ${CMAKE_CURRENT_LIST_DIR}/main.cc -o ${WORK}/by_pkg_config ${flags})
set(ENV{LD_LIBRARY_PATH} ${folder}/..)
expect_three(${WORK}/by_pkg_config)
