#!/usr/bin/env bash
# All static checks; each finding is an error. One of them alone: the line below with .venv/bin in PATH.
set -euo pipefail
cd "$(dirname "$0")/.."
export MYPYPATH=build/links
packages=$(cd build/links && printf -- '-p %s ' sluice/*/ | tr / . | sed 's/\. / /g')

ruff check --quiet
ruff format --quiet --check
# shellcheck disable=SC2086  # a list of options
mypy --no-error-summary $packages
git ls-files 'tests/*.py' 'bench/*.py' 'scripts/*.py' setup.py | xargs mypy --no-error-summary
git ls-files '*.pyx' '*.pxd' | xargs cython-lint
lint-imports --no-cache >/dev/null || lint-imports --no-cache
git ls-files '*.sh' .ci/run | xargs shellcheck
