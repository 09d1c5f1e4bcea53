# Flags that every target of the project shares: heed_flags(target).

set(CMAKE_CXX_STANDARD 20)
set(CMAKE_CXX_STANDARD_REQUIRED ON)
set(CMAKE_CXX_EXTENSIONS OFF)
set(CMAKE_POSITION_INDEPENDENT_CODE ON)
set(CMAKE_EXPORT_COMPILE_COMMANDS ON)

if(PROJECT_IS_TOP_LEVEL AND NOT CMAKE_BUILD_TYPE AND NOT CMAKE_CONFIGURATION_TYPES)
  set(CMAKE_BUILD_TYPE Release CACHE STRING "" FORCE)
endif()

find_program(CCACHE ccache)
if(CCACHE AND NOT CMAKE_CXX_COMPILER_LAUNCHER)
  set(CMAKE_CXX_COMPILER_LAUNCHER ${CCACHE})
endif()

function(heed_flags target)
  target_compile_features(${target} PUBLIC cxx_std_20)
  target_compile_options(${target} PRIVATE
    -Wall -Wextra -Wconversion -Wshadow $<$<BOOL:${HEED_WERROR}>:-Werror>
    # Every rounding is where the source says it is; see docs/numerics.md.
    -ffp-contract=off)
  if(HEED_SANITIZE)
    target_compile_options(${target} PUBLIC -fsanitize=${HEED_SANITIZE} -fno-omit-frame-pointer
                           -fno-sanitize-recover=all -g)
    target_link_options(${target} PUBLIC -fsanitize=${HEED_SANITIZE})
  endif()
  if(HEED_COVERAGE)
    target_compile_options(${target} PUBLIC --coverage)
    target_link_options(${target} PUBLIC --coverage)
  endif()
endfunction()
