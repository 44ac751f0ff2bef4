# Writes OUT with the commit of the tree in SOURCE: from git, or from cli/version/commit.txt, where `git archive` puts it; "" without both.
cmake_minimum_required(VERSION 3.25)
execute_process(COMMAND git -C ${SOURCE} describe --always --abbrev=9 --exclude=* --dirty=+ OUTPUT_VARIABLE commit
                RESULT_VARIABLE failed ERROR_QUIET OUTPUT_STRIP_TRAILING_WHITESPACE)
execute_process(COMMAND git -C ${SOURCE} rev-parse --show-toplevel OUTPUT_VARIABLE top ERROR_QUIET OUTPUT_STRIP_TRAILING_WHITESPACE)
file(REAL_PATH ${SOURCE} source)
if(failed OR NOT top STREQUAL source)      # an unpacked archive inside another repository
  file(STRINGS ${SOURCE}/cli/version/commit.txt commit LIMIT_COUNT 1)
  if(NOT commit MATCHES "^[0-9a-f]+$")
    set(commit "")
  endif()
endif()
file(CONFIGURE OUTPUT ${OUT} CONTENT "extern const char bt_commit[];\nconst char bt_commit[] = \"@commit@\";\n" @ONLY)      # keeps the time of an equal file
