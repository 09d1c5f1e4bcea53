# Installs heed of a build folder into an empty prefix, or copies a prefix that there is, moves it, and
# builds consumers against it: by find_package, without and, if IO, with heed::io, and by pkg-config.
#
#   cmake -D BUILD=..|-D PREFIX=.. -D WORK=.. -D CXX=.. -D IO=.. -P check.cmake

function(run)
  execute_process(COMMAND ${ARGV} RESULT_VARIABLE status OUTPUT_VARIABLE output ERROR_VARIABLE output)
  if(NOT status EQUAL 0)
    list(JOIN ARGV " " line)
    message(FATAL_ERROR "${line}: ${status}\n${output}")
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
if(PREFIX)
  file(COPY ${PREFIX}/ DESTINATION ${WORK}/elsewhere)
else()
  run(${CMAKE_COMMAND} --install ${BUILD} --prefix ${WORK}/elsewhere)
endif()
file(RENAME ${WORK}/elsewhere ${WORK}/prefix)

# heed::heed is to need neither JSON nor libzip, so this consumer is not allowed to find them.
build_consumer(plain
  -D CMAKE_DISABLE_FIND_PACKAGE_nlohmann_json=ON -D CMAKE_DISABLE_FIND_PACKAGE_PkgConfig=ON)
expect_three(${WORK}/plain/consumer)

# 0.1.x serves 0.1 and no other minor release, as docs/versioning.md says.
foreach(other 0.0 0.2 1.0)
  execute_process(COMMAND ${CMAKE_COMMAND} -S ${CMAKE_CURRENT_LIST_DIR} -B ${WORK}/refused_${other} -G Ninja
      -D WANTED=${other} -D CMAKE_PREFIX_PATH=${WORK}/prefix -D CMAKE_CXX_COMPILER=${CXX}
    RESULT_VARIABLE status OUTPUT_VARIABLE output ERROR_VARIABLE output)
  if(status EQUAL 0 OR NOT output MATCHES "version: 0\\.1")
    message(FATAL_ERROR "find_package(heed ${other}) was not refused for its version:\n${output}")
  endif()
endforeach()

if(IO)
  build_consumer(io -D IO=ON)
  expect_three(${WORK}/io/consumer ${WORK}/prefix/share/heed/it.safetensors)

  # A static heed::io needs libzip. Where there is none, who can do without it finds heed all the same.
  run(${CMAKE_COMMAND} -S ${CMAKE_CURRENT_LIST_DIR} -B ${WORK}/maybe_io -G Ninja -D MAYBE_IO=ON
    -D CMAKE_PREFIX_PATH=${WORK}/prefix -D CMAKE_CXX_COMPILER=${CXX})
  if(NOT output MATCHES "heed::io found: TRUE")
    message(FATAL_ERROR "OPTIONAL_COMPONENTS io was not found:\n${output}")
  endif()
  file(GLOB_RECURSE archive ${WORK}/prefix/libheed_io.a)
  if(archive)
    set(without_libzip ${CMAKE_COMMAND} -E env --unset=PKG_CONFIG_PATH PKG_CONFIG_LIBDIR=${WORK}/nowhere ${CMAKE_COMMAND}
      -S ${CMAKE_CURRENT_LIST_DIR} -G Ninja -D CMAKE_PREFIX_PATH=${WORK}/prefix -D CMAKE_CXX_COMPILER=${CXX})
    run(${without_libzip} -B ${WORK}/maybe_without -D MAYBE_IO=ON)
    if(NOT output MATCHES "heed::io found: FALSE")
      message(FATAL_ERROR "OPTIONAL_COMPONENTS io was found without libzip:\n${output}")
    endif()
    execute_process(COMMAND ${without_libzip} -B ${WORK}/refused_io -D IO=ON
      RESULT_VARIABLE status OUTPUT_VARIABLE output ERROR_VARIABLE output)
    if(status EQUAL 0 OR NOT output MATCHES "needs libzip")
      message(FATAL_ERROR "COMPONENTS io without libzip was not refused for it:\n${output}")
    endif()
  endif()
endif()

file(GLOB_RECURSE description ${WORK}/prefix/heed.pc)
cmake_path(GET description PARENT_PATH folder)
set(ENV{PKG_CONFIG_PATH} ${folder})
set(ENV{LD_LIBRARY_PATH} ${folder}/..)

# pkgconf joins what another pkg-config refuses to read.
file(GLOB descriptions ${folder}/heed*.pc)
foreach(description IN LISTS descriptions)
  file(STRINGS ${description} fields REGEX "^[A-Z][A-Za-z.]*:")
  list(TRANSFORM fields REPLACE ":.*" "")
  set(once ${fields})
  list(REMOVE_DUPLICATES once)
  if(NOT once STREQUAL fields)
    message(FATAL_ERROR "${description} has a field twice: ${fields}")
  endif()
endforeach()

# build_by_pkg_config(package source): the program ${WORK}/by_pkg_config_PACKAGE
function(build_by_pkg_config package source)
  run(pkg-config --cflags --libs ${package})
  separate_arguments(flags UNIX_COMMAND "${output}")
  run(${CXX} -std=c++20 ${CMAKE_CURRENT_LIST_DIR}/${source} -o ${WORK}/by_pkg_config_${package} ${flags})
endfunction()

build_by_pkg_config(heed main.cc)
expect_three(${WORK}/by_pkg_config_heed)
if(IO)
  build_by_pkg_config(heed_io io.cc)
  expect_three(${WORK}/by_pkg_config_heed_io ${WORK}/prefix/share/heed/it.safetensors)
endif()

# Every public header is there, and no other: rules.public_headers_stand_alone compiles each alone.
file(GLOB given RELATIVE ${CMAKE_CURRENT_LIST_DIR}/../../include/heed ${CMAKE_CURRENT_LIST_DIR}/../../include/heed/*.h)
file(GLOB installed RELATIVE ${WORK}/prefix/include/heed ${WORK}/prefix/include/heed/*)
if(NOT IO)
  list(REMOVE_ITEM given io.h modules_io.h)
endif()
if(NOT given STREQUAL installed)
  message(FATAL_ERROR "include/heed has ${given}; installed are ${installed}")
endif()
