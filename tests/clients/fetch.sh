#!/usr/bin/env bash
# Canal's clients for the tests, downloaded once into ${SLUICE_CACHE:-~/.cache/sluice}/clients.
#
#   fetch.sh java FOLDER [1.1.8]   the Java client, else 1.1.7, with Consumer.java compiled into FOLDER; prints the class path
#   fetch.sh python PYTHON         canal-python 0.4; prints the folder to import it from
set -euo pipefail

here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
name="canal client ($1)"
# shellcheck source=tests/servers/downloads.sh
source "$here/../servers/downloads.sh"
dist=$cache/clients/$1

declare -A client=(
  [1.1.7]=b9fb4064662c65c55aedc3e30c90185b883c2175daf994907ed67040b1f4a8c1
  [1.1.8]=1a10eb13fd4862524c0bbcebecba0bba56622bbd9ee2a42a55c9bef4ab06c8c0
)
declare -A common=(
  [1.1.7]=5a237515a307d8df5cf654f55e6f5f3582b49272d5898d9e70e525b384c84ce6
  [1.1.8]=0c2f382ce73048eccc2179c94571d2d43e1a6c05ee2b5cdacbe8f1e4ba0bc58b
)
declare -A protocol=(
  [1.1.7]=27da015aca6145abe2cf736e62aa675125a1f6dd634babff6c56f5fbe38bd329
  [1.1.8]=254cb95712dd2bb2fdc5fa92687f58e1cad6c643057249037ab67e1ca89394e8
)

fetch_java() {
  fetch_maven "$dist" \
    com.alibaba.otter:canal.client:"$1" "${client[$1]}" \
    com.alibaba.otter:canal.common:"$1" "${common[$1]}" \
    com.alibaba.otter:canal.protocol:"$1" "${protocol[$1]}" \
    com.alibaba.fastjson2:fastjson2:2.0.31 3c988d58afdee0c75f1b95bb0324243cc4be2c2f8e1bb3e6a93c6d5222aa58dc \
    com.google.guava:guava:22.0 1158e94c7de4da480873f0b4ab4a1da14c0d23d4b1902cc94a58a6f0f9ab579e \
    com.google.protobuf:protobuf-java:3.6.1 fb66d913ff0578553b2e28a3338cbbbe2657e6cfe0e98d939f23aea219daf508 \
    commons-lang:commons-lang:2.6 50f11b09f877c294d56f24463f47d28f929cf5044f648661c0f0cfbae9a2f49c \
    org.slf4j:slf4j-api:1.7.12 0aee9a77a4940d72932b0d0d9557793f872e66a03f598e473f45e7efecdccf99 \
    org.springframework:spring-core:5.3.26 7da41000cb31ed2b60ec3b5001ca57a07eaae289ce5983ddbb1df4fe8fe31208 \
    org.springframework:spring-jcl:5.3.26 73ea7af1c2a40020455381056bd3cd8bf2ef50d92602ef08c6df951320211aef \
    com.101tec:zkclient:0.10 26e988b8bba838c724fd8350b331ee8b5ffc59c3a9c074df115c4c3a6c843878 \
    org.apache.zookeeper:zookeeper:3.5.6 885df81cfb32d83e12284a5e4cb1f6389cfac01b003bcff4677619e1cb75cd0d \
    org.apache.zookeeper:zookeeper-jute:3.5.6 a31b6a604894ef9cb8075c828061f390c598b5baceea088230315c7795cee50a
}

fetch_python() {
  local sha256=5881c17fe648f6917e1c65335b6cea7a3316d21d2a91cac3a74aeaed72926b29
  "$1" -m pip -q --disable-pip-version-check download --no-deps --no-build-isolation --no-binary :all: --require-hashes \
    -r <(echo "canal-python==0.4 --hash=sha256:$sha256") -d "$dist" >&2
  tar -xzf "$dist/canal-python-0.4.tar.gz" -C "$dist" --no-same-owner --strip-components 1
}

case $1 in
  java)
    version=${3:-1.1.7}
    dist+=-$version
    once "$dist" fetch_java "$version"
    mkdir -p /usr/share/man/man1 # Java's packages write there, and small images of Debian leave it out
    need javac default-jdk-headless
    javac -cp "$dist/*" -d "$2" "$here/Consumer.java" >&2
    echo "$2:$dist/*"
    ;;
  python) once "$dist" fetch_python "$2" && echo "$dist" ;;
  *) say "java or python"; exit 2 ;;
esac
