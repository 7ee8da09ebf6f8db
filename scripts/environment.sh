# shellcheck shell=bash
# The Python environment that the scripts in this folder share. A script sources this file and says what it needs:
#
#     . "$(dirname "${BASH_SOURCE[0]}")/environment.sh"
#     use_environment run        # what the product needs; `console` adds its extra of this name, `dev` the tools of
#                                # [dependency-groups] in pyproject.toml, the console's libraries among them
#     exec "$venv_python" ...
#
# The environment is the folder .venv of this clone, with the clone installed in it (editable). It is made once, by uv
# (from PATH, or installed in .venv by pip) or else by pip, and made anew when pyproject.toml, the Python or the clone's place changes.
# Set-up needs Python >= 3.11 and its pip; ANABRANCH_PYTHON names one if `python3` is not it. Works with bash 3.2 (macOS).

clone=$(CDPATH='' cd -P -- "$(dirname -- "${BASH_SOURCE[0]}")/.." && pwd)
venv=$clone/.venv
venv_python=$venv/bin/python

say() { printf 'anabranch: %s\n' "$*" >&2; }

fail() {
    say "$*"
    exit 1
}

# use_environment run|console|dev: make sure that $venv_python has what the caller needs. Costs one start of Python when it has.
use_environment() {
    # Images of containers often set this. Each process then compiles all modules again: 2 s of CPU time for a command, 20 s for the tests.
    unset PYTHONDONTWRITEBYTECODE
    if ! is_ready "$1"; then
        set_up "$1"
        is_ready "$1" || exit 1 # bash 3.2 does not end here by itself when the subshell in set_up has failed
    fi
}

# The text that a finished environment is stamped with: same text, same environment. Fails if that Python does not run.
identity() {
    "${ANABRANCH_PYTHON:-$venv_python}" -I -S -c '
import hashlib, pathlib, sys

project = pathlib.Path(sys.argv[1], "pyproject.toml").read_bytes()
print(sys.implementation.cache_tag + sys.abiflags, hashlib.sha256(project).hexdigest(), sys.argv[1])
' "$clone" 2>/dev/null
}

is_ready() {
    local wanted
    [ -x "$venv_python" ] && [ -f "$venv/ready-$1" ] || return 1
    wanted=$(identity) || return 1
    [ "$wanted" = "$(cat "$venv/ready-$1")" ]
}

# Set $python to the path of the first interpreter that runs and is new enough (a pyenv shim may exist and not run).
find_python() {
    local candidate found
    for candidate in ${ANABRANCH_PYTHON:+"$ANABRANCH_PYTHON"} python3 python3.14 python3.13 python3.12 python3.11; do
        found=$("$candidate" -I -c 'import sys; print(sys.executable if sys.version_info >= (3, 11) else "")' 2>/dev/null) || found=
        if [ -n "$found" ]; then
            python=$found
            return 0
        fi
        if [ "$candidate" = "${ANABRANCH_PYTHON:-}" ]; then
            fail "ANABRANCH_PYTHON=$candidate is no Python >= 3.11 that runs; name another or unset it"
        fi
    done
    fail "no Python >= 3.11 on PATH; install one, or name it in ANABRANCH_PYTHON"
}

# Two scripts may start at once: the second waits here until the first has finished. The lock sits on the clone's folder,
# which the caller holds open as descriptor 9, and ends with the process, however that ends. (macOS has no flock command.)
lock() {
    "$python" -I -S -c '
import fcntl, sys

try:
    fcntl.flock(9, fcntl.LOCK_EX | fcntl.LOCK_NB)
except BlockingIOError:
    print("anabranch: another script is setting up .venv; waiting for it", file=sys.stderr, flush=True)
    fcntl.flock(9, fcntl.LOCK_EX)
except OSError as error:
    print(f"anabranch: this file system has no locks ({error}); start one script at a time", file=sys.stderr)
'
}

set_up() {
    find_python
    if ! [ -w "$clone" ] || { [ -e "$venv" ] && ! [ -w "$venv" ]; }; then
        fail "$venv cannot be written by this user; make a clone of your own, or set it up as the user who owns it"
    fi
    (
        lock
        if ! is_ready "$1"; then
            build_environment "$1"
        fi
    ) 9<"$clone"
}

build_environment() {
    local kind=$1 started=$SECONDS scratch version stamp name ready
    scratch=$(mktemp -d "${TMPDIR:-/tmp}/anabranch.XXXXXX")
    # shellcheck disable=SC2064
    trap "rm -rf '$scratch'" EXIT
    version=$("$python" -I -c 'import sys; print(sys.version.split()[0])')
    say "setting up .venv with Python $version (needed once) ..."
    if [ "$kind" != run ] && is_ready run; then
        rm -f "$venv"/ready-*
    else # unfinished, or made for something else
        rm -f "$venv"/ready-*
        rm -rf "$venv"
    fi
    list_requirements "$kind" >"$scratch/requirements.txt"
    if ! { get_uv && fill_environment uv; } >"$scratch/uv.log" 2>&1; then
        if has_uv; then
            tail -n 5 "$scratch/uv.log" >&2
            say "uv could not do it; trying pip ..."
        fi
        rm -rf "$venv"
        if ! fill_environment pip >"$scratch/pip.log" 2>&1; then
            tail -n 15 "$scratch/pip.log" >&2
            fail "could not set up .venv: the lines above say why; the same command tries again"
        fi
    fi
    stamp=$(ANABRANCH_PYTHON='' identity) || fail "the new $venv_python does not run"
    case $kind in # what has more has the less, too
        dev) ready=(dev console run) ;;
        console) ready=(console run) ;;
        *) ready=(run) ;;
    esac
    for name in "${ready[@]}"; do
        printf '%s\n' "$stamp" >"$venv/ready-$name"
    done
    say ".venv is ready ($((SECONDS - started)) s)"
}

# has_uv: set $uv to the uv of PATH, or else to that of .venv; false if there is none that runs.
has_uv() {
    for uv in uv "$venv/bin/uv"; do
        if "$uv" --version >/dev/null 2>&1; then
            return 0
        fi
    done
    return 1
}

# get_uv: have one, which sets up .venv in a sixth of pip's time. If there is none, .venv gets its own.
get_uv() { has_uv || { make_environment pip "$venv" && install_into pip "$venv" uv && has_uv; }; }

# The requirements of this kind of environment, besides the clone itself. (pip reads groups from 25.1 on only, so they are read here.)
list_requirements() {
    "$python" -I -c '
import sys, tomllib

with open(sys.argv[1], "rb") as file:
    groups = tomllib.load(file)["dependency-groups"]
print(*(groups["dev"] if sys.argv[2] == "dev" else ()), sep="\n")
' "$clone/pyproject.toml" "$1"
}

# fill_environment uv|pip: called in a condition, where `set -e` does not hold, hence the `&&`.
fill_environment() {
    local extra=crawl
    [ "$kind" != console ] || extra=console # which has the other
    # An editable clone needs `editables`, which hatchling adds to the wheel's requirements; uv reads those of pyproject.toml only.
    make_environment "$1" "$venv" &&
        install_into "$1" "$venv" --editable "$clone[$extra]" --requirement "$scratch/requirements.txt" editables
}

# make_environment uv|pip FOLDER: an empty environment there, unless there is one.
make_environment() {
    if [ -x "$2/bin/python" ]; then
        return 0
    elif [ "$1" = uv ]; then
        "$uv" venv --python "$python" "$2"
    elif ! "$python" -m venv "$2"; then # Debian without python3-venv has no ensurepip; its pip can install from outside
        rm -rf "$2"
        "$python" -m venv --without-pip "$2"
    fi
}

# install_into uv|pip FOLDER ARGUMENT...: `pip install ARGUMENT...` for the environment there.
install_into() {
    local installer=$1 into=$2/bin/python
    shift 2
    if [ "$installer" = uv ]; then
        # As pip does. Else each test process compiles the same modules for itself, at once: 25 s of CPU time.
        "$uv" pip install --python "$into" --compile-bytecode "$@"
    elif "$into" -m pip --version >/dev/null 2>&1; then
        "$into" -m pip --quiet --no-input --disable-pip-version-check install "$@"
    else
        "$python" -m pip --python "$into" --quiet --no-input --disable-pip-version-check install "$@"
    fi
}
