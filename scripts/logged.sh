# Sourced by the other scripts: a command whose output goes into a log, and what becomes of it when the script is ended.

if [ "${BASH_SOURCE[0]}" = "$0" ]; then
    printf 'error: this is a part of the other scripts; run one of them, such as bash scripts/quickstart.sh\n' >&2
    exit 2
fi

logged() { # log file, then a command; of what it writes, [kv] lines and errors are shown as they come
    local log=$1 status=0
    shift
    mkdir -p "$(dirname "$log")" || die "$(dirname "$log"): cannot be written; choose another folder for the output"
    signal='' # the one that ended the script, if any did
    set -m    # a process group of its own, all of which can be sent the signal
    (
        set +m
        trap : INT TERM # this shell stays until all that was written is in the log
        "$@" 2>&1 | (
            trap '' INT TERM
            tee "$log" | { grep --line-buffered -E '^(\[kv\]|error:)' || true; } >&2
        )
    ) </dev/null &
    job=$!
    set +m
    trap 'signal=INT; kill -INT -- "-$job" 2>/dev/null' INT
    trap 'signal=TERM; kill -TERM -- "-$job" 2>/dev/null' TERM
    wait "$job" || status=$?
    while [ -n "$signal" ] && kill -0 "$job" 2>/dev/null; do wait "$job" || true; done # a signal ends the waiting only
    trap - INT TERM
    if [ -n "$signal" ]; then
        grep -q '^error:' "$log" || printf 'error: ended by SIG%s; the same command goes on from what is there\n' "$signal" >&2
        exit $((128 + $(kill -l "$signal")))
    elif [ "$status" -ne 0 ]; then
        grep -q '^error:' "$log" || tail -n 25 "$log" >&2
        die "the evaluation failed; the whole log is $log"
    fi
}
