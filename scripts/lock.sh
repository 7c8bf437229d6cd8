#!/usr/bin/env bash
# Resolve the dependencies of pyproject.toml anew into requirements.lock: versions and hashes, no addresses.
set -euo pipefail
cd "$(dirname "$0")/.."
tools=$(mktemp -d)
trap 'rm -rf "$tools"' EXIT
"${PYTHON:-python3}" -m venv "$tools"
"$tools/bin/pip" -q --disable-pip-version-check install uv
"$tools/bin/uv" pip compile -q pyproject.toml --extra dev --universal --python-version 3.11 \
  --generate-hashes --no-emit-index-url --no-annotate --custom-compile-command 'make lock' -o requirements.lock
