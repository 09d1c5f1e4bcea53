# Flags that every target of the project shares, heed_flags(target), and those of what users get,
# heed_shipped(target).

set(CMAKE_CXX_STANDARD 20)
set(CMAKE_CXX_STANDARD_REQUIRED ON)
set(CMAKE_CXX_EXTENSIONS OFF)
set(CMAKE_POSITION_INDEPENDENT_CODE ON)
# What is linked remembers where it finds shared libraries in the build folder; after installing, only how long that was. By
# $ORIGIN it is as long in every folder.
set(CMAKE_BUILD_RPATH_USE_ORIGIN ON)
set(CMAKE_EXPORT_COMPILE_COMMANDS ON)
include(CheckPIESupported)
check_pie_supported(LANGUAGES CXX)  # else CMake compiles for it and leaves the linking to the compiler's taste

if(PROJECT_IS_TOP_LEVEL AND NOT CMAKE_BUILD_TYPE AND NOT CMAKE_CONFIGURATION_TYPES)
  set(CMAKE_BUILD_TYPE Release CACHE STRING "" FORCE)
endif()

find_program(CCACHE ccache)
if(CCACHE AND NOT CMAKE_CXX_COMPILER_LAUNCHER)
  set(CMAKE_CXX_COMPILER_LAUNCHER ${CCACHE})
endif()

# heed_flags(target [UNWATCHED]): UNWATCHED code calls what sanitizers watch and is not watched itself.
function(heed_flags target)
  target_compile_features(${target} PUBLIC cxx_std_20)
  target_compile_options(${target} PRIVATE
    -Wall -Wextra -Wconversion -Wshadow $<$<BOOL:${HEED_WERROR}>:-Werror>
    # Every rounding is where the source says it is; see docs/numerics.md.
    -ffp-contract=off)
  if(HEED_SANITIZE)
    target_link_options(${target} PUBLIC -fsanitize=${HEED_SANITIZE})
  endif()
  if(HEED_SANITIZE AND NOT "UNWATCHED" IN_LIST ARGN)
    # Reports name functions and lines, no variables: with -g a kernel takes 1.4 times as long to compile.
    # In Release, -O1: with -O2 files take longer, and the tests run no faster, but for kernels: see src/kernels.
    target_compile_options(${target} PRIVATE -fsanitize=${HEED_SANITIZE} -fno-omit-frame-pointer
                           -fno-sanitize-recover=all -g1 $<$<CONFIG:Release>:-O1>)
    if(CMAKE_CXX_COMPILER_ID STREQUAL Clang AND HEED_SANITIZE MATCHES address)
      target_compile_definitions(${target} PRIVATE __SANITIZE_ADDRESS__=1)  # as g++ does by itself
    endif()
  endif()
endfunction()

# What is installed: a shared library shows only what HEED_API says, and is hardened as Debian's packages are.
# The kernels keep their speed: src/kernels takes the stack protector off again.
function(heed_shipped target)
  set_target_properties(${target} PROPERTIES CXX_VISIBILITY_PRESET hidden VISIBILITY_INLINES_HIDDEN ON)
  get_target_property(type ${target} TYPE)
  if(type STREQUAL SHARED_LIBRARY)
    target_link_options(${target} PRIVATE -Wl,--version-script=${PROJECT_SOURCE_DIR}/cmake/heed.map)
    set_target_properties(${target} PROPERTIES DEFINE_SYMBOL "" LINK_DEPENDS ${PROJECT_SOURCE_DIR}/cmake/heed.map)
  endif()
  if(HEED_COVERAGE)
    # The tests themselves, and the kernels (src/kernels takes these off again), keep their speed.
    target_compile_options(${target} PRIVATE -O0 --coverage -fprofile-update=prefer-atomic)
    target_link_options(${target} PUBLIC --coverage)
  endif()
  if(NOT HEED_HARDEN OR HEED_SANITIZE OR HEED_COVERAGE)
    return()
  endif()
  target_compile_options(${target} PRIVATE -fstack-protector-strong -Wformat -Wformat-security
    # A compiler may define another level, and without optimisation glibc has none.
    $<$<CONFIG:Release,RelWithDebInfo,MinSizeRel>:-U_FORTIFY_SOURCE -D_FORTIFY_SOURCE=2>)
  target_link_options(${target} PRIVATE -Wl,-z,relro,-z,now)
endfunction()
