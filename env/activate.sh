# Makes this shell ready for sparkgpu, in bash and zsh: `source env/activate.sh`. `deactivate` undoes it.
#
# Here only variables change. What must be there for it is set up by env/set_up.sh, in a separate bash. So no option,
# alias or trap of this shell reaches the set-up, and nothing in the set-up can end this shell.

if [ -n "${ZSH_VERSION:-}" ]; then
    eval '_sparkgpu_file=${(%):-%x}'
elif [ -n "${BASH_VERSION:-}" ]; then
    _sparkgpu_file=${BASH_SOURCE[0]}
else
    echo 'sparkgpu: env/activate.sh is for bash and zsh; start one of them and source it there.' >&2
    return 1
fi

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
    # It answers with three lines: the project's folder, Java's home, Spark's home.
    found=$(JAVA_HOME=${JAVA_HOME:-} bash "$(dirname -- "$_sparkgpu_file")/set_up.sh") || return 1
    root=${found%%$'\n'*} spark=${found##*$'\n'}
    java=${found#*$'\n'} java=${java%$'\n'*}
    bin=$root/.venv/bin
    _sparkgpu_environment=$(command env)

    # A second activation keeps what the first one saved, so that one `deactivate` restores everything.
    if [ -z "${_sparkgpu_kept:-}" ]; then _sparkgpu_old_deactivate=$(typeset -f deactivate || true); fi
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

if ! _sparkgpu_activate; then
    unset -f _sparkgpu_activate _sparkgpu_keep _sparkgpu_export
    unset _sparkgpu_file
    return 1
fi
unset -f _sparkgpu_activate _sparkgpu_keep _sparkgpu_export
unset _sparkgpu_file
