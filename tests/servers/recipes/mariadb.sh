# shellcheck shell=bash disable=SC2154,SC2164  # server.sh sets the names, and -e
# MariaDB out of Debian's packages; the suite is the second part of the name.
unwanted='perl|libperl|libgdbm|libc-gconv|libdb5|debconf|mysql-common|mariadb-client|iproute2|procps|psmisc|rsync|lsof|gawk|galera'

fetch() { fetch_debian "${name#mariadb-}" mariadb-server-core "$unwanted"; }

share() { # of both names one has the messages
  local folder
  for folder in "$dist"/root/usr/share/{mysql,mariadb}; do
    if [ -e "$folder/english/errmsg.sys" ]; then echo "$folder"; fi
  done
}

server() {
  exec_foreign "$dist/root/usr/sbin/mariadbd" --no-defaults --user=root --lc-messages-dir="$(share)" \
    --character-sets-dir="$(share)/charsets" --plugin-dir="$dist/root/usr/lib/mysql/plugin" "$@"
}

# What mariadb-install-db does, without the programs it needs.
initialise() {
  local tables
  tables=$(share)
  mkdir -p "$1/mysql" "$1/test"
  {
    printf '%s;\n' "CREATE DATABASE IF NOT EXISTS mysql" "USE mysql" "SET @auth_root_socket=NULL"
    for script in system_tables performance_tables system_tables_data maria_add_gis_sp_bootstrap sys_schema; do
      cat "$tables/mariadb_$script.sql" 2>/dev/null || cat "$tables/mysql_$script.sql" 2>/dev/null || cat "$tables/$script.sql"
    done
  } | (server --datadir="$1" --tmpdir="$dist" --bootstrap --skip-grant-tables)
}

accounts() {
  echo "CREATE USER IF NOT EXISTS 'cdc'@'%' IDENTIFIED BY 'cdc';"
  echo "GRANT ALL ON *.* TO 'cdc'@'%' WITH GRANT OPTION;"
}
