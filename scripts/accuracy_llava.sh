#!/usr/bin/env bash
# LLaVA-1.5 7B: every method and budget of a sweep; see --help.
set -euo pipefail

# shellcheck source=scripts/accuracy.sh
source "$(dirname "${BASH_SOURCE[0]}")/accuracy.sh"
accuracy llava-7B "$paper_tasks" "$@"; exit # on one line: the file may change while it runs
