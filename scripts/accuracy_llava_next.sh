#!/usr/bin/env bash
# LLaVA-NeXT 7B (Mistral): every method and budget of a sweep; see --help.
set -euo pipefail

# shellcheck source=scripts/accuracy.sh
source "$(dirname "${BASH_SOURCE[0]}")/accuracy.sh"
accuracy llava-next "$paper_tasks" "$@"; exit # on one line: the file may change while it runs
