# Sourced by the other scripts: the active virtual environment, or .venv, with the tested set installed.
# Nothing is downloaded when the environment already matches requirements.txt.

if [ "${BASH_SOURCE[0]}" = "$0" ]; then
    printf 'error: this is a part of the other scripts; run one of them, such as bash scripts/quickstart.sh\n' >&2
    exit 2
fi

say() { printf '\033[1m%s\033[0m\n' "$*" >&2; }
die() { printf 'error: %s\n' "$*" >&2; exit 2; }

find_python() {
    local candidate
    for candidate in "${PYTHON:-}" python3.12 python3.11 python3.10 python3; do
        [ -n "$candidate" ] || continue
        "$candidate" -c 'import sys; sys.exit(not (3, 10) <= sys.version_info[:2] <= (3, 12))' 2>/dev/null || continue
        echo "$candidate"
        return
    done
    die "Python 3.10, 3.11 or 3.12 is needed; found $(python3 --version 2>&1). Set PYTHON=/path/to/python3.11"
}

setup_environment() {
    cd "$(dirname "${BASH_SOURCE[0]}")/.." || exit 2
    local started=$SECONDS stamp python
    if [ -z "${VIRTUAL_ENV:-}" ]; then
        if [ ! -x .venv/bin/python ]; then
            python=$(find_python) || exit 2
            say "Making .venv with $("$python" --version)"
            "$python" -m venv .venv || die "cannot make .venv; on Debian and Ubuntu install python3-venv"
        fi
        # shellcheck disable=SC1091
        source .venv/bin/activate
    fi
    stamp=$VIRTUAL_ENV/.tgv-kv-harness
    if ! cat requirements.txt pyproject.toml <(pwd) | cmp -s - "$stamp"; then
        say "Installing the tested set into $VIRTUAL_ENV (a few minutes, once)"
        python -m pip install --quiet --disable-pip-version-check --requirement requirements.txt \
            && python -m pip install --quiet --disable-pip-version-check --no-deps --editable . \
            || die "the installation failed; the lines above say why"
        cat requirements.txt pyproject.toml <(pwd) > "$stamp"
        say "Installed in $((SECONDS - started)) s"
    fi
    export HF_HUB_OFFLINE=${HF_HUB_OFFLINE:-1} TOKENIZERS_PARALLELISM=${TOKENIZERS_PARALLELISM:-false}
}
