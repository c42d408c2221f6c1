#!/usr/bin/env bash
set -euo pipefail

usage() {
    cat <<'TEXT'
usage: bash scripts/test.sh [pytest arguments]

Sets up the environment (the active one, or .venv), then checks style (ruff), types (mypy on kv_caches) and runs the
tests. Arguments go to pytest, e.g. `bash scripts/test.sh tests/kv_caches -k fixtures`.
TEXT
}

main() {
    case ${1-} in -h | --help) usage; exit ;; esac
    source "$(dirname "${BASH_SOURCE[0]}")/setup.sh"
    setup_environment
    say "ruff"
    ruff check .
    ruff format --check .
    say "mypy kv_caches"
    mypy kv_caches
    say "pytest"
    python -m pytest -n auto --dist loadfile "$@"
}

main "$@"; exit # on one line: bash has read all before it starts, so the file may change while it runs
