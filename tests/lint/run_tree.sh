#!/usr/bin/env bash
# Forbidden in the tree: addresses of package registries, paths of one machine, unlisted files in the top folder.
set -u
cd "$BT_SRC" || exit 1
bad=0
files() { if [ -e .git ]; then git ls-files -co --exclude-standard; else find . -path ./build -prune -o -type f -print | sed 's,^\./,,'; fi; }
hits=$(files | grep -v '^web/uplot/' | xargs -d '\n' grep -nIE \
    'registry\.[n]pmjs|npmjs\.[o]rg|pypi\.[o]rg|files\.pythonhosted|crates\.[i]o|proxy\.golang|deb\.debian\.[o]rg|(^|[^[:alnum:]_.])/[w]ork/|/tmp/[h]elper' 2>/dev/null)
[ -z "$hits" ] || { echo "$hits"; echo "a package registry or a path of one machine"; bad=1; }
hits=$(files | sed 's,/.*,,' | sort -u | grep -vxE 'CMakeLists\.txt|README\.md|cli|engine|monitor|store|web|tests|bootstrap|CMakePresets\.json|LICENSE|\..*')
[ -z "$hits" ] || { echo "not part of the top level, which is fixed:" $hits; bad=1; }
hits=$(files | grep -E '\.(c|h|def|sh|md|txt|js|css|html)$' | xargs -d '\n' grep -nIE '[[:blank:]]+$' 2>/dev/null | grep -vE '^(tests/.*(golden|expected)|web/uplot/)' | head -20)
[ -z "$hits" ] || { echo "$hits"; echo "blanks at the end of lines"; bad=1; }
hits=$(files | xargs -d '\n' grep -nIE '^(<<<<<<<|>>>>>>>) ' 2>/dev/null | head -20)
[ -z "$hits" ] || { echo "$hits"; echo "marks of an unresolved merge"; bad=1; }
hits=$(files | grep -E '\.(c|h|def|js|css|html|cmake)$' | sed 's,.*/,,' | sort | uniq -d)
[ -z "$hits" ] || { echo "a file name stands twice in the tree:" $hits; bad=1; }
hits=$(files | grep -vE '/golden/|\.md$' | sed -n 's,/[^/]*$,,p' | sort | uniq -c | awk '$1 > 30 {print $2 ": " $1 " files"}')
[ -z "$hits" ] || { echo "$hits"; echo "a folder of more than 30 files wants rooms inside"; bad=1; }
exit $bad
