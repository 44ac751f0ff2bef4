# package.cmake - what an installation has beside the program, and the packages that are made of it:
#   cmake --build build --target deb         a .deb of this release and processor (build/bitrain_VERSION_ARCH.deb)
#   cmake --build build --target archive     the sources of the commit with the chart library (build/bitrain-VERSION.tar.gz)
# The version is that of project() in CMakeLists.txt.
include(GNUInstallDirs)
set(doc ${CMAKE_INSTALL_DOCDIR})
set(package ${CMAKE_CURRENT_LIST_DIR})

# pages at their places in the tree, so that their links lead to each other
file(GLOB_RECURSE pages RELATIVE ${CMAKE_SOURCE_DIR} CONFIGURE_DEPENDS cli/*.md engine/*.md store/*.md monitor/*.md web/*.md tests/*.md cli/pictures/*)
file(GLOB recipes RELATIVE ${CMAKE_SOURCE_DIR} CONFIGURE_DEPENDS cli/launch/Containerfile cli/launch/*.service cli/launch/*.yaml cli/launch/*.sbatch tests/examples/*)
foreach(file IN LISTS pages recipes ITEMS README.md)
  cmake_path(GET file PARENT_PATH folder)
  install(FILES ${CMAKE_SOURCE_DIR}/${file} DESTINATION ${doc}/${folder})
endforeach()
install(FILES ${package}/copyright DESTINATION ${doc})
file(GLOB units CONFIGURE_DEPENDS ${CMAKE_SOURCE_DIR}/cli/launch/*.service)
install(FILES ${units} DESTINATION lib/systemd/system)

cmake_host_system_information(RESULT system QUERY DISTRIB_ID)
cmake_host_system_information(RESULT release QUERY DISTRIB_VERSION_ID)       # "": a release that has no number yet
set(CPACK_GENERATOR DEB)
set(CPACK_PACKAGE_NAME bitrain)
set(CPACK_PACKAGE_VENDOR "the bitrain authors")
set(BITRAIN_MAINTAINER "" CACHE STRING "maintainer of the package, 'NAME <ADDRESS>'; empty: who builds it (maintainer.cmake)")
set(CPACK_PACKAGE_CONTACT "${BITRAIN_MAINTAINER}")
set(CPACK_PROJECT_CONFIG_FILE ${package}/maintainer.cmake)
set(CPACK_PACKAGE_DESCRIPTION_SUMMARY "train ternary language models on CPUs over MPI, and watch it")
set(CPACK_DEBIAN_PACKAGE_DESCRIPTION "bitrain trains BitNet language models, whose weights are -1, 0 or +1, on the
processors of one machine or of an MPI cluster. Every step of every rank is
recorded in one SQLite file, which a terminal view, a browser dashboard and
SQL read. Models are exchanged as Hugging Face folders and GGUF files, and
served behind an API that clients of OpenAI's API understand.")
set(CPACK_PACKAGING_INSTALL_PREFIX /usr)
set(CPACK_STRIP_FILES ON)
set(CPACK_DEBIAN_FILE_NAME DEB-DEFAULT)
# the libraries have other names in other releases
set(CPACK_DEBIAN_PACKAGE_VERSION ${PROJECT_VERSION}~${system}${release})
set(CPACK_DEBIAN_PACKAGE_SECTION science)
set(CPACK_DEBIAN_PACKAGE_SHLIBDEPS ON)
set(CPACK_DEBIAN_PACKAGE_DEPENDS openmpi-bin)
set(CPACK_DEBIAN_PACKAGE_RECOMMENDS "libopenblas0-pthread | libopenblas0, openssh-client")      # other processors, other machines
set(CPACK_DEBIAN_PACKAGE_SUGGESTS bible-kjv)                                                     # the built-in text
set(CPACK_PRE_BUILD_SCRIPTS ${package}/compress.cmake)
set(package_env)
if(CMAKE_CROSSCOMPILING)
  set(CPACK_DEBIAN_PACKAGE_ARCHITECTURE ${BITRAIN_CROSS})
  set(CPACK_DEBIAN_PACKAGE_SHLIBDEPS_PRIVATE_DIRS ${BITRAIN_SYSROOT}/usr/lib/${CMAKE_LIBRARY_ARCHITECTURE} ${BITRAIN_SYSROOT}/usr/lib/${CMAKE_LIBRARY_ARCHITECTURE}/openmpi/lib)
  set(package_env ${CMAKE_COMMAND} -E env DEB_HOST_ARCH=${BITRAIN_CROSS})
endif()
include(CPack)
# unlike CPack's target 'package' without the tests
add_custom_target(deb COMMAND ${package_env} ${CMAKE_CPACK_COMMAND} --config ${CMAKE_BINARY_DIR}/CPackConfig.cmake WORKING_DIRECTORY ${CMAKE_BINARY_DIR} VERBATIM)
add_dependencies(deb bitrain docs)

# The two files of the chart library with their notice, which a build without a network needs (web/CMakeLists.txt)
find_program(BITRAIN_GIT git)
if(BITRAIN_GIT AND BITRAIN_HAVE_WEB)
  set(name bitrain-${PROJECT_VERSION})
  add_custom_target(archive COMMAND ${BITRAIN_GIT} -C ${CMAKE_SOURCE_DIR} archive --format=tar.gz -o ${CMAKE_BINARY_DIR}/${name}.tar.gz
    --prefix=${name}/web/uplot/dist/ --add-file=${BITRAIN_CHART_FOLDER}/dist/uPlot.iife.min.js --add-file=${BITRAIN_CHART_FOLDER}/dist/uPlot.min.css
    --prefix=${name}/web/uplot/ --add-file=${package}/copyright --prefix=${name}/ HEAD VERBATIM)
endif()
