#!/usr/bin/env bash
# Make a Python client of an OpenAPI document, by a generator that is downloaded once into ${SLUICE_CACHE:-~/.cache/sluice}/generators.
#
#   generate.sh openapi-python-client PYTHON DOCUMENT FOLDER   prints the interpreter that has what the client needs
#   generate.sh openapi-generator PYTHON DOCUMENT FOLDER
#
# The package is FOLDER/generated.
set -euo pipefail

here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
name=$1
# shellcheck source=tests/servers/downloads.sh
source "$here/../../servers/downloads.sh"
python=$2 document=$3 folder=$4
version=7.18.0
jar_sha256=35fdd19079f5fb37cf8074f48db825bdedc02c1b8264261bf283d9394d98a285

fetch_openapi_python_client() {
  "$python" -m venv "$dist" >&2
  "$dist/bin/pip" -q --disable-pip-version-check install --require-hashes -r "$here/openapi-python-client.lock" >&2
}

case $name in
  openapi-python-client)
    dist=$cache/generators/$name-$(sha256sum "$here/openapi-python-client.lock" | cut -c -8)
    once "$dist" fetch_openapi_python_client
    PATH=$dist/bin:$PATH openapi-python-client generate --path "$document" --output-path "$folder/generated" --meta none >&2
    echo "$dist/bin/python"
    ;;
  openapi-generator)
    dist=$cache/generators/$name-$version
    once "$dist" fetch_maven "$dist" org.openapitools:openapi-generator-cli:$version $jar_sha256
    need java default-jre-headless
    java -Xmx256m -XX:+UseSerialGC -XX:TieredStopAtLevel=1 -jar "$dist/openapi-generator-cli-$version.jar" generate \
      -g python -i "$document" -o "$folder" --package-name generated >&2
    echo "$python"
    ;;
  *) say "openapi-python-client or openapi-generator"; exit 2 ;;
esac
