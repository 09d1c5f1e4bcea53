# What `cmake --install` puts where: headers, libraries, the command, the sample, and what finds them.
#
#   include/heed/            lib/libheed.a, libheed_io.a    bin/heed
#   share/heed/              it.safetensors and what it is
#   lib/cmake/heed/          find_package(heed), find_package(heed COMPONENTS io)
#   lib/pkgconfig/heed.pc, heed_io.pc

include(CMakePackageConfigHelpers)

set(heed_cmake_dir ${CMAKE_INSTALL_LIBDIR}/cmake/heed)
set_target_properties(heed PROPERTIES
  VERSION ${PROJECT_VERSION}
  SOVERSION ${PROJECT_VERSION_MAJOR}.${PROJECT_VERSION_MINOR})

install(DIRECTORY include/heed DESTINATION ${CMAKE_INSTALL_INCLUDEDIR} FILES_MATCHING PATTERN "*.h"
  PATTERN io.h EXCLUDE PATTERN modules_io.h EXCLUDE)
install(TARGETS heed EXPORT heedTargets)
install(EXPORT heedTargets NAMESPACE heed:: DESTINATION ${heed_cmake_dir})

# heed::io is an export of its own: who wants only heed::heed needs neither JSON nor libzip.
if(TARGET heed_io)
  install(FILES include/heed/io.h include/heed/modules_io.h DESTINATION ${CMAKE_INSTALL_INCLUDEDIR}/heed)
  set_target_properties(heed_io PROPERTIES
    VERSION ${PROJECT_VERSION}
    SOVERSION ${PROJECT_VERSION_MAJOR}.${PROJECT_VERSION_MINOR})
  install(TARGETS heed_io EXPORT heedIoTargets)
  install(EXPORT heedIoTargets NAMESPACE heed:: DESTINATION ${heed_cmake_dir})
endif()

if(TARGET heed_cli)
  install(TARGETS heed_cli)
endif()

install(FILES examples/data/it.safetensors examples/data/README.md
  DESTINATION ${CMAKE_INSTALL_DATADIR}/heed)
install(FILES LICENSE DESTINATION ${CMAKE_INSTALL_DOCDIR})

get_target_property(heed_library_type heed TYPE)
configure_package_config_file(cmake/heedConfig.cmake.in ${PROJECT_BINARY_DIR}/heedConfig.cmake
  INSTALL_DESTINATION ${heed_cmake_dir})
write_basic_package_version_file(${PROJECT_BINARY_DIR}/heedConfigVersion.cmake
  COMPATIBILITY SameMinorVersion)
install(FILES ${PROJECT_BINARY_DIR}/heedConfig.cmake ${PROJECT_BINARY_DIR}/heedConfigVersion.cmake
  DESTINATION ${heed_cmake_dir})

# heed.pc finds its prefix from its own place, so that an installed tree can be moved. Whoever links
# a static heed links Highway too; a shared one has it inside its list of needed libraries. A field
# stands once: pkg-config 0.29 refuses a file that has one twice, where pkgconf joins them.
file(RELATIVE_PATH heed_pc_prefix /${CMAKE_INSTALL_LIBDIR}/pkgconfig /)
set(heed_pc_requires Requires.private)
set(heed_pc_requires_too "\nRequires.private: ")
if(heed_library_type STREQUAL STATIC_LIBRARY)
  set(heed_pc_requires Requires)
  set(heed_pc_requires_too ", ")
endif()
configure_file(cmake/heed.pc.in ${PROJECT_BINARY_DIR}/heed.pc @ONLY)
install(FILES ${PROJECT_BINARY_DIR}/heed.pc DESTINATION ${CMAKE_INSTALL_LIBDIR}/pkgconfig)
if(TARGET heed_io)
  configure_file(cmake/heed_io.pc.in ${PROJECT_BINARY_DIR}/heed_io.pc @ONLY)
  install(FILES ${PROJECT_BINARY_DIR}/heed_io.pc DESTINATION ${CMAKE_INSTALL_LIBDIR}/pkgconfig)
endif()
