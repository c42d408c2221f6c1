# Sourced by what reads variables of its own: one whose name is a letter off would leave everything at its default.

if [ "${BASH_SOURCE[0]}" = "$0" ]; then
    printf 'error: this is a part of the other scripts; run one of them, such as bash scripts/quickstart.sh\n' >&2
    exit 2
fi

one_edit() { # whether a letter more, less, other, or two swapped, make one name of the other
    local a=$1 b=$2
    while [ -n "$a" ] && [ "${a:0:1}" = "${b:0:1}" ]; do a=${a:1} b=${b:1}; done
    while [ -n "$a" ] && [ -n "$b" ] && [ "${a: -1}" = "${b: -1}" ]; do a=${a%?} b=${b%?}; done
    [ $((${#a} + ${#b})) -eq 1 ] || [ "${#a}${#b}" = 11 ] || { [ "${#a}${#b}" = 22 ] && [ "$a" = "${b:1}${b:0:1}" ]; }
}

check_names() { # the command that reads them, then their names
    local command=$1 known name near
    shift
    for name in $(compgen -e); do
        near=
        [ "$name" != CHECKPOINT ] || near=CKPT
        for known in "$@"; do
            [ "$name" != "$known" ] || continue 2
            [ $((${#name} - ${#known})) -le 1 ] && [ $((${#known} - ${#name})) -le 1 ] || continue
            if one_edit "$name" "$known"; then near=$known; fi
        done
        [ -n "$near" ] || continue
        printf 'error: %s=%s is set, and what this script reads is %s: rename it; if it belongs to another program: %s\n' \
            "$name" "${!name}" "$near" "env -u $name $command" >&2
        exit 2
    done
}
