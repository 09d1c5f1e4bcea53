# What building the Python package needs of the system, all of it looked for at once, so that somebody who
# calls pip install is told in one line what to install.
set(heed_missing)

find_package(Python 3.11 QUIET COMPONENTS Interpreter Development.Module)
if(NOT Python_FOUND)
  list(APPEND heed_missing python3-dev)
endif()
foreach(package hwy:libhwy-dev CLI11:libcli11-dev nlohmann_json:nlohmann-json3-dev PNG:libpng-dev
                PkgConfig:pkg-config)
  string(REPLACE ":" ";" package ${package})
  list(GET package 0 heed_name)
  list(GET package 1 heed_debian)
  find_package(${heed_name} QUIET)
  if(NOT ${heed_name}_FOUND)
    list(APPEND heed_missing ${heed_debian})
  endif()
endforeach()
if(PkgConfig_FOUND)
  pkg_check_modules(heed_libzip QUIET libzip)
endif()
if(NOT heed_libzip_FOUND)
  list(APPEND heed_missing libzip-dev)
endif()

if(heed_missing)
  list(JOIN heed_missing " " heed_missing)
  message(FATAL_ERROR "heed needs what Debian calls ${heed_missing}. There, as root:\n"
                      "  apt-get install ${heed_missing}\n")
endif()
