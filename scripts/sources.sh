# Debian's sources, for the scripts that compile them: source it behind common.sh. SOURCES is the folder into which they go, and
# where apt has lists and a cache of its own. The system's lists are fetched if it has none; nothing else of it is changed.

own_apt() {
  apt-get -q -o "Dir::Etc::sourcelist=$SOURCES/apt/sources.list" -o Dir::Etc::sourceparts=/dev/null \
    -o "Dir::State::lists=$SOURCES/apt/lists" -o "Dir::Cache=$SOURCES/apt/cache" -o APT::Sandbox::User=root "$@"
}

# Prints the places that the system takes Debian's packages from, as places of sources, in the system's order: of two that
# list a source, the one for security may not have all of its files.
source_list() {
  apt-get indextargets --format 'deb-src $(REPO_URI) $(RELEASE) $(COMPONENT)' \
    'Created-By: Packages' 'Origin: Debian' | awk '!seen[$0]++'
}

# Unpacks the sources that are named, each into the folder NAME-VERSION, with Debian's patches. The newest may not be there yet
# where the newest packages are: then those of the release are taken.
fetch_sources() {
  local name
  mkdir -p "$SOURCES/apt/lists/partial" "$SOURCES/apt/cache/archives/partial"
  [ -n "$(source_list)" ] || apt-get update -q
  source_list >"$SOURCES/apt/sources.list"
  [ -s "$SOURCES/apt/sources.list" ] || die "apt knows no place of Debian's packages"
  own_apt update
  for name; do
    (cd "$SOURCES" && { own_apt source "$name" ||
      own_apt source "$name/$(sed -n 's/^VERSION_CODENAME=//p' /etc/os-release)"; }) || return
  done
}
