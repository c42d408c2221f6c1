#!/usr/bin/env bash
# LLaVA-OneVision 0.5B: every method and budget of a sweep; see --help.
set -euo pipefail

# shellcheck source=scripts/accuracy.sh
source "$(dirname "${BASH_SOURCE[0]}")/accuracy.sh"
accuracy llava-ov-0.5B "$paper_tasks" "$@"; exit # on one line: the file may change while it runs
