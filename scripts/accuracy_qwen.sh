#!/usr/bin/env bash
# Qwen3-VL 8B: every method and budget of a sweep; see --help.
set -euo pipefail

# shellcheck source=scripts/accuracy.sh
source "$(dirname "${BASH_SOURCE[0]}")/accuracy.sh"
accuracy qwen-8B "$paper_tasks" "$@"; exit # on one line: the file may change while it runs
