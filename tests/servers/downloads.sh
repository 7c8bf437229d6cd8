# shellcheck shell=bash disable=SC2154  # who sources it sets the names
# Downloads for tests, by the package registries' own clients as configured on this machine; each is verified. To be sourced;
# `name` says for whom it speaks.

cache=${SLUICE_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/sluice}

say() { echo "${name:-downloads}: $*" >&2; }

# alone COMMAND...: run what cannot bear another of its kind beside it, as several test processes may start it: apt fails then,
# and Maven may spoil its repository.
alone() {
  mkdir -p "$cache"
  flock -o "$cache/alone.lock" "$@"
}

# need COMMAND PACKAGE: install Debian's package when the command is missing.
need() {
  command -v "$1" >/dev/null && return
  say "installing $2"
  alone apt-get -qq update >&2
  DEBIAN_FRONTEND=noninteractive alone apt-get -qq install --no-install-recommends "$2" >/dev/null
}

# verify FILE SHA256
verify() { echo "$2  $1" | sha256sum --check --quiet >&2; }

# fetch_maven FOLDER [GROUP:ARTIFACT:VERSION SHA256]...: leaves the jars in the folder.
fetch_maven() {
  local folder=$1 items='' artifact group version
  shift
  local jars=("$@")
  while [ $# -gt 0 ]; do
    IFS=: read -r group artifact version <<<"$1"
    items+="<artifactItem><groupId>$group</groupId><artifactId>$artifact</artifactId><version>$version</version></artifactItem>"
    shift 2
  done
  cat >"$folder/pom.xml" <<POM
<project>
  <modelVersion>4.0.0</modelVersion>
  <groupId>sluice</groupId><artifactId>downloads</artifactId><version>1</version><packaging>pom</packaging>
  <build><plugins><plugin>
    <groupId>org.apache.maven.plugins</groupId><artifactId>maven-dependency-plugin</artifactId><version>3.6.1</version>
    <configuration><outputDirectory>$folder</outputDirectory><artifactItems>$items</artifactItems></configuration>
  </plugin></plugins></build>
</project>
POM
  need mvn maven
  alone mvn -B -q -ntp -C -f "$folder/pom.xml" org.apache.maven.plugins:maven-dependency-plugin:3.6.1:copy >&2
  set -- "${jars[@]}"
  while [ $# -gt 0 ]; do
    artifact=${1#*:}
    verify "$folder/${artifact/:/-}.jar" "$2"
    shift 2
  done
}

# once FOLDER COMMAND...: make the folder and let the command fill it, unless that was done. Several test runs may share it: one
# of them makes the download, the others wait.
once() {
  local folder=$1
  shift
  mkdir -p "${folder%/*}"
  exec 9>"$folder.lock"
  flock 9
  if [ ! -e "$folder/.ok" ]; then
    say "downloading"
    rm -rf "$folder" && mkdir -p "$folder"
    "$@"
    touch "$folder/.ok"
  fi
  exec 9>&-
}

# fetch_debian SUITE PACKAGE UNWANTED: unpack a package and all it depends on, libc too, into $dist/root, from the mirror that
# this machine uses already, with package lists of our own. UNWANTED is a pattern of dependencies the server does not need.
fetch_debian() {
  local suite=$1 package=$2 unwanted=$3 apt=$dist/apt mirror packages
  mirror() { apt-get indextargets --format "\$(SITE)" 'Created-By: Packages' | grep -v security | sort -u | head -n 1; }
  mirror=$(mirror) || { alone apt-get -qq update >&2; mirror=$(mirror); }
  mkdir -p "$apt"/lists/partial "$apt"/cache/archives/partial "$dist/root"
  echo "deb [signed-by=/usr/share/keyrings/debian-archive-keyring.gpg] $mirror $suite main" >"$apt/sources.list"
  : >"$apt/status" # nothing counts as installed: so apt gives the whole closure
  cat >"$apt/apt.conf" <<CONF
Dir::State::Lists "$apt/lists";
Dir::State::status "$apt/status";
Dir::Cache "$apt/cache";
Dir::Etc::SourceList "$apt/sources.list";
Dir::Etc::SourceParts "-";
Acquire::Languages "none";
Acquire::IndexTargets::deb::DEP-11::DefaultEnabled "false";
APT::Install-Recommends "false";
APT::Sandbox::User "root";
CONF
  export APT_CONFIG=$apt/apt.conf
  apt-get -qq update >&2
  packages=$(apt-get -s install "$package" | awk '/^Inst /{print $2}' | grep -vE "^($unwanted)")
  # shellcheck disable=SC2086  # a list of names
  (cd "$apt/cache" && apt-get -qq download $packages >&2)
  unset APT_CONFIG
  for package in "$apt"/cache/*.deb; do dpkg-deb -x "$package" "$dist/root"; done
  basename "$apt/cache/$2"_*.deb >"$dist/VERSION"
  rm -rf "$apt" "$dist"/root/usr/share/{doc,man,locale,lintian}
}

# exec_foreign PROGRAM OPTION...: run a program of $dist/root under its own loader and libraries, not the system's.
exec_foreign() {
  local loaders libraries
  shopt -s nullglob
  loaders=("$dist"/root/{usr/,}lib*/{*/,}ld-linux-*.so.*)
  libraries=("$dist"/root/{usr/,}lib/*-linux-gnu "$dist/root/usr/lib/mysql/private")
  exec "${loaders[0]}" --library-path "$(IFS=: && echo "${libraries[*]}")" "$@"
}
