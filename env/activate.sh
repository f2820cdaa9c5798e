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

# Adds to _sparkgpu_undo what gives a variable its present state again: unset, set, or exported.
_sparkgpu_keep() {
    local quoted
    if eval "[ -z \"\${$1+set}\" ]"; then
        _sparkgpu_undo="$_sparkgpu_undo unset $1;"
        return 0
    fi
    eval "quoted=\$(printf %q \"\$$1\")"
    case $'\n'$_sparkgpu_environment in
        *$'\n'"$1="*) _sparkgpu_undo="$_sparkgpu_undo export $1=$quoted;" ;;
        # Unset first, which removes the export mark; but the shell needs PATH and PS1 at all times.
        *)
            case $1 in PATH | PS1) ;; *) _sparkgpu_undo="$_sparkgpu_undo unset $1;" ;; esac
            _sparkgpu_undo="$_sparkgpu_undo $1=$quoted;"
            ;;
    esac
}

_sparkgpu_activate() {
    if [ -n "${ZSH_VERSION:-}" ]; then emulate -L sh; fi
    local found java spark root bin name _sparkgpu_environment
    # It answers with three lines: the project's folder, Java's home, Spark's home.
    found=$(JAVA_HOME=${JAVA_HOME:-} bash "$(dirname -- "$_sparkgpu_file")/set_up.sh") || return 1
    root=${found%%$'\n'*} spark=${found##*$'\n'}
    java=${found#*$'\n'} java=${java%$'\n'*}
    bin=$root/.venv/bin

    # A second activation leaves what the first one kept, so that one `deactivate` restores everything.
    if [ -z "${_sparkgpu_undo:-}" ]; then
        _sparkgpu_environment=$(command env)
        _sparkgpu_undo=
        for name in PATH PYTHONHOME VIRTUAL_ENV VIRTUAL_ENV_PROMPT JAVA_HOME SPARK_HOME SPARK_CONF_DIR \
            SPARK_LOCAL_IP PYSPARK_PYTHON PYSPARK_DRIVER_PYTHON; do
            _sparkgpu_keep "$name"
        done
        if [ -n "${PS1+set}" ] && [ -z "${VIRTUAL_ENV_DISABLE_PROMPT:-}" ]; then
            _sparkgpu_keep PS1
            PS1="(sparkgpu) $PS1"
        fi
        # One of the two: zsh 5.9 crashes if a running function is removed and then defined again.
        name=$(typeset -f deactivate || true)
        _sparkgpu_undo="$_sparkgpu_undo ${name:-unset -f deactivate}"
    fi
    case ${PATH:-} in
        "$bin" | "$bin":*) ;;
        *) export PATH="$bin${PATH:+:$PATH}" ;;
    esac
    unset PYTHONHOME
    export VIRTUAL_ENV="$root/.venv" VIRTUAL_ENV_PROMPT=sparkgpu
    export JAVA_HOME="$java" SPARK_HOME="$spark" SPARK_CONF_DIR="$root/env/spark-conf" SPARK_LOCAL_IP=127.0.0.1
    # Without these, executors would use the first python3 on PATH.
    export PYSPARK_PYTHON="$bin/python" PYSPARK_DRIVER_PYTHON="$bin/python"
    hash -r 2>/dev/null || true

    deactivate() {
        if [ -n "${ZSH_VERSION:-}" ]; then emulate -L sh; fi
        eval "$_sparkgpu_undo"
        hash -r 2>/dev/null || true
        unset _sparkgpu_undo
    }
}

if _sparkgpu_activate; then
    unset -f _sparkgpu_activate _sparkgpu_keep
    unset _sparkgpu_file
else
    unset -f _sparkgpu_activate _sparkgpu_keep
    unset _sparkgpu_file
    return 1
fi
