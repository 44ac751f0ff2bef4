# compress.cmake - run by cpack before it makes the .deb: Debian's packages hold a compressed man page and a changelog of its form.
string(TIMESTAMP date "%a, %d %b %Y %H:%M:%S +0000" UTC)         # of $SOURCE_DATE_EPOCH, if it is set
set(share ${CPACK_TEMPORARY_DIRECTORY}/usr/share)
set(log ${share}/doc/bitrain/changelog)
file(WRITE ${log} "bitrain (${CPACK_DEBIAN_PACKAGE_VERSION}) stable; urgency=medium

  * The changes of this version are in cli/CHANGELOG.md beside this file.

 -- ${CPACK_PACKAGE_CONTACT}  ${date}
")
execute_process(COMMAND gzip -9nf ${share}/man/man1/bitrain.1 ${log} COMMAND_ERROR_IS_FATAL ANY)
