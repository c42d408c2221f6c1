#!/usr/bin/env bash
set -euo pipefail

usage() {
    cat <<'TEXT'
usage: bash scripts/tables.sh [FOLDER...] [--allow-failures] [--allow-unjudged]

Makes every table and plot of the paper that the results allow: Tables 1-6 as text, Markdown, CSV and LaTeX in
FOLDER/tables, score against retention and memory as PNG, SVG and PDF in FOLDER/plots, at page and at column width, and
FOLDER/report.html, one page that opens without network. What cannot be made is said. Seconds; no torch, no model.
Measured time and memory of results/efficiency (python -m benchmarks.efficiency) follow as another Table 4.

  FOLDER             results of the scripts (default: every folder of results/runs with results)
  --allow-failures   go on although samples failed or files cannot be used
  --allow-unjudged   go on although answers were not judged
  --help             this text
TEXT
}

read_options() {
    folders=() options=()
    while [ $# -gt 0 ]; do
        case $1 in
            -h | --help) usage; exit ;;
            --allow-failures | --allow-unjudged) options+=("$1") ;;
            -*) die "unknown option '$1'; --help lists all" ;;
            *)
                [ -d "$1" ] || die "$1: there is no such folder"
                folders+=("$(absolute "$1")") ;;
        esac
        shift
    done
}

main() {
    local figures folder
    source "$(dirname "${BASH_SOURCE[0]}")/setup.sh"
    read_options "$@"
    setup_environment
    if [ ${#folders[@]} -eq 0 ]; then
        for folder in results/runs/*/; do
            [ -z "$(find "$folder" -maxdepth 2 -name 'result.*.json' -print -quit 2>/dev/null)" ] \
                || folders+=("${folder%/}")
        done
    fi
    [ ${#folders[@]} -gt 0 ] || die "results/runs has no results; bash scripts/quickstart.sh makes some"
    for folder in "${folders[@]}"; do
        say "$folder"
        python -m analysis.artefacts "$folder" ${options[@]+"${options[@]}"}
    done
    for figures in results/efficiency/*.json; do
        [ ! -f "$figures" ] || python -m analysis.speed "$figures"
    done
}

main "$@"; exit # on one line: bash has read all before it starts, so the file may change while it runs
