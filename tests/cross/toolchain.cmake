# A cross build for another processor: cmake --preset arm64 (or riscv64), after `tests/cross.sh arm64 sysroot` has made
# the folder of that processor's libraries.
#
#   BITRAIN_CROSS     arm64 or riscv64, Debian's names
#   BITRAIN_SYSROOT   the folder; empty: libraries that are installed beside those of this machine (dpkg --add-architecture)
#
# Programs that the build runs are run by qemu-user (CMAKE_CROSSCOMPILING_EMULATOR), tests too.
set(CMAKE_TRY_COMPILE_PLATFORM_VARIABLES BITRAIN_CROSS BITRAIN_SYSROOT)
if(NOT BITRAIN_CROSS)
  set(BITRAIN_CROSS arm64)
endif()
if(BITRAIN_CROSS STREQUAL "arm64")
  set(CMAKE_SYSTEM_PROCESSOR aarch64)
else()
  set(CMAKE_SYSTEM_PROCESSOR ${BITRAIN_CROSS})
endif()
set(triple ${CMAKE_SYSTEM_PROCESSOR}-linux-gnu)
set(CMAKE_SYSTEM_NAME Linux)
set(CMAKE_C_COMPILER ${triple}-gcc)
set(CMAKE_LIBRARY_ARCHITECTURE ${triple})

if(NOT DEFINED BITRAIN_SYSROOT)
  set(BITRAIN_SYSROOT $ENV{HOME}/.cache/bitrain-cross/${BITRAIN_CROSS})
endif()
set(root ${BITRAIN_SYSROOT})
if(root)
  if(NOT EXISTS ${root}/usr/lib/${triple}/libc.so)
    message(FATAL_ERROR "there are no ${BITRAIN_CROSS} libraries in '${root}': tests/cross.sh ${BITRAIN_CROSS} sysroot makes them")
  endif()
  set(CMAKE_SYSROOT ${root})
  # before the C library of the cross compiler's own package, which may be older
  set(CMAKE_EXE_LINKER_FLAGS_INIT "-B${root}/usr/lib/${triple} -L${root}/usr/lib/${triple}")
endif()
set(CMAKE_FIND_ROOT_PATH_MODE_PROGRAM NEVER)
set(CMAKE_FIND_ROOT_PATH_MODE_LIBRARY ONLY)
set(CMAKE_FIND_ROOT_PATH_MODE_INCLUDE ONLY)
set(CMAKE_FIND_ROOT_PATH_MODE_PACKAGE ONLY)

# openblas-pthread: what update-alternatives links on an installed system
set(ENV{PKG_CONFIG_LIBDIR} ${root}/usr/lib/${triple}/pkgconfig:${root}/usr/share/pkgconfig:${root}/usr/lib/${triple}/openblas-pthread/pkgconfig)
if(root)
  set(ENV{PKG_CONFIG_SYSROOT_DIR} ${root})
endif()
# mpicc of this machine prints this machine's folders
set(MPI_SKIP_COMPILER_WRAPPER ON)
set(MPI_C_LIB_NAMES mpi)
set(MPI_mpi_LIBRARY ${root}/usr/lib/${triple}/openmpi/lib/libmpi.so)
set(MPI_C_HEADER_DIR ${root}/usr/lib/${triple}/openmpi/include)

find_program(qemu NAMES qemu-${CMAKE_SYSTEM_PROCESSOR}-static qemu-${CMAKE_SYSTEM_PROCESSOR})
if(qemu)
  set(CMAKE_CROSSCOMPILING_EMULATOR ${qemu})
  if(root)
    list(APPEND CMAKE_CROSSCOMPILING_EMULATOR -L ${root})
  endif()
endif()
