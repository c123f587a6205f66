# Shared by the scripts here: source it. Sets ROOT and defines functions, most of which query the toolchain.
ROOT=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
cd "$ROOT" || exit 1
SWIFT=${SWIFT:-swift}

die() {
  echo "${0##*/}: $*" >&2
  exit 1
}

# Runs swift so that the files that it keeps elsewhere (module caches, locks) stay inside the clone.
swift_here() {
  mkdir -p "$ROOT/.build/home" "$ROOT/.build/tmp"
  env -u CC -u CXX -u AR -u LD HOME="$ROOT/.build/home" XDG_CACHE_HOME="$ROOT/.build/home/cache" \
    CLANG_MODULE_CACHE_PATH="$ROOT/.build/home/clang" TMPDIR="${SWIFT_TMPDIR-$ROOT/.build/tmp}" "$SWIFT" "$@"
}

# Prints the value of the key $1 in the output of `swift -print-target-info`.
swift_target() {
  swift_here -print-target-info |
    python3 -c 'import json, sys; t = json.load(sys.stdin); print({**t["target"], **t["paths"]}[sys.argv[1]])' "$1"
}

# SwiftPM with its caches inside the clone, and with its own compilers whatever CC says.
swiftpm() {
  local verb=$1
  shift
  swift_here "$verb" --cache-path "$ROOT/.build/cache" --config-path "$ROOT/.build/config" \
    --security-path "$ROOT/.build/security" "$@"
}

# Removes what an earlier build has made in the scratch folder $1 for the triple $2, if a header of the C modules or of the API
# has changed: the compiler takes these modules for the system's own, and does not see that.
forget_old_headers() {
  local headers
  headers=$(cat Sources/C*/*.h include/penstock/*.h | cksum)
  if [ "$(cat "$1/headers" 2>/dev/null)" != "$headers" ]; then rm -rf "${1:?}/$2/release"; fi
  mkdir -p "$1"
  echo "$headers" >"$1/headers"
}

# Prints the version in the header, as MAJOR.MINOR.PATCH.
header_version() {
  sed -n 's/^#define PENSTOCK_VERSION  *"\(.*\)"$/\1/p' "$ROOT/include/penstock/version.h"
}

# Prints the name of every function in the public headers, sorted.
header_functions() {
  python3 "$ROOT/scripts/api.py" functions
}

# Makes the object $3, by the compiler $1, which says that functions of nghttp2 that the archive $2 asks for weakly are inside,
# or nowhere: the loader then looks for none of them in another nghttp2 of the process. A symbol that is hidden in one object is
# hidden in the library, and the object's only section is not linked.
only_inside() {
  nm "$2" 2>/dev/null | awk '
    $1 == "w" && $2 ~ /^nghttp2_/ && !seen[$2]++ {
      print ".weak " $2 "\n.hidden " $2 "\n.section .only_inside, \"e\"\n.dc.a " $2
    }
    END { print ".section .note.GNU-stack, \"\"" }' | "$1" -x assembler -c -o "$3" -
}
