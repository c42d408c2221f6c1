# Sourced by the other scripts: the active virtual environment, or .venv, with the tested set installed.
# Nothing is downloaded when the environment already matches requirements.txt.

if [ "${BASH_SOURCE[0]}" = "$0" ]; then
    printf 'error: this is a part of the other scripts; run one of them, such as bash scripts/quickstart.sh\n' >&2
    exit 2
fi

say() { printf '\033[1m%s\033[0m\n' "$*" >&2; }
die() { printf 'error: %s\n' "$*" >&2; exit 2; }

supported='import sys; sys.exit(not (3, 10) <= sys.version_info[:2] <= (3, 14))'

find_python() { # what PYTHON says, else the first that is there; some tasks of lmms-eval need one below 3.13
    local candidate bare=
    if [ -n "${PYTHON:-}" ]; then
        "$PYTHON" -c "$supported" 2>/dev/null || die "PYTHON=$PYTHON is $(version_of "$PYTHON"); Python 3.10 to 3.14 is needed"
        echo "$PYTHON"
        return
    fi
    for candidate in python3.12 python3.11 python3.13 python3.14 python3.10 python3; do
        "$candidate" -c "$supported" 2>/dev/null || continue
        if ! "$candidate" -c 'import ensurepip, venv' 2>/dev/null; then bare=${bare:-$candidate}; continue; fi
        echo "$candidate"
        return
    done
    [ -z "$bare" ] || die "$bare cannot make virtual environments; on Debian and Ubuntu: apt-get install python3-venv"
    die "Python 3.10 to 3.14 is needed; python3 is $(version_of python3). Set PYTHON=/path/to/python3.12"
}

version_of() { # of a program that may not be there, or may be no Python
    "$1" -c 'import platform; print("Python", platform.python_version())' 2>/dev/null || echo "not there, or no Python"
}

absolute() { # a path as seen from where the script was called; it need not exist, and `realpath -m` is not everywhere
    if [ -d "$1" ]; then
        (CDPATH='' cd -- "$1" && pwd -P)
    else
        case $1 in /*) printf '%s\n' "$1" ;; *) printf '%s/%s\n' "$PWD" "$1" ;; esac
    fi
}

setup_environment() {
    cd "$(dirname "${BASH_SOURCE[0]}")/.." || exit 2
    local started=$SECONDS stamp python
    if [ -z "${VIRTUAL_ENV:-}" ]; then
        if [ ! -x .venv/bin/python ]; then
            python=$(find_python) || exit 2
            say "Making .venv with $("$python" --version)"
            "$python" -m venv .venv || die "cannot make .venv; on Debian and Ubuntu: apt-get install python3-venv"
        fi
        # shellcheck disable=SC1091
        source .venv/bin/activate
    fi
    python -c "$supported" || die "$VIRTUAL_ENV has $(version_of python); Python 3.10 to 3.14 is needed"
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
