# shellcheck shell=bash disable=SC2154,SC2164  # server.sh sets the names, and -e
# MySQL 9.7 out of Debian unstable. A later run on another machine may find a later 9.x there.
fetch() { fetch_debian unstable mysql-server-core 'perl|libperl|libgdbm|libc-gconv|libdb5|libsasl2-modules'; }

server() {
  local usr=$dist/root/usr
  exec_foreign "$usr/sbin/mysqld" --no-defaults --user=root --basedir="$usr" --mysqlx=OFF --secure-file-priv=NULL \
    --lc-messages-dir="$usr/share/mysql" --character-sets-dir="$usr/share/mysql/charsets" \
    --plugin-dir="$usr/lib/mysql/plugin" "$@"
}

initialise() { (server --datadir="$1" --initialize-insecure); }

accounts() {
  echo "CREATE USER IF NOT EXISTS 'cdc'@'%' IDENTIFIED BY 'cdc';"
  echo "GRANT ALL ON *.* TO 'cdc'@'%' WITH GRANT OPTION;"
}
