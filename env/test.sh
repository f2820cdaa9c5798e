#!/usr/bin/env bash
# Checks everything: style, floors between modules, then types and tests at the same time.
# `--fast` leaves out the tests that start a JVM, ranks or whole runs: about a minute instead of a quarter hour.
# Other arguments go to pytest: `env/test.sh tests/score -k blend`, `env/test.sh --slow`. `--faults` alone injects
# faults into real runs (tests/faults, an hour and a half).
# Without any, and with `--fast`, two processes share the files of tests.

set -uo pipefail
cd -- "$(dirname -- "${BASH_SOURCE[0]}")/.." || exit 1

if [ "${VIRTUAL_ENV:-}" != "$(pwd -P)/.venv" ] || [ ! -x "${JAVA_HOME:-}/bin/java" ]; then
    # shellcheck source=env/activate.sh
    source env/activate.sh || exit 1
fi

if [ "${1:-}" = --fast ]; then
    shift
    set -- -n 2 --dist loadfile -m 'not spark and not process' "$@"
elif [ $# -eq 0 ]; then
    set -- -n 2 --dist loadfile
fi

for check in 'ruff check .' 'ruff format --check .' lint-imports; do
    printf '== %s\n' "$check"
    $check || {
        status=$?
        printf 'env/test.sh: stopped, `%s` failed (status %s); the tests were not run.\n' "$check" "$status" >&2
        exit "$status"
    }
done

printf '== mypy, and pytest %s\n' "$*"
said=$(mktemp) || exit 1
trap 'kill "$types" 2>/dev/null; rm -f -- "$said"' EXIT
mypy >"$said" 2>&1 &
types=$!
python -m pytest "$@"
status=$?
wait "$types" || {
    wrong=$?
    cat -- "$said" >&2
    printf 'env/test.sh: `mypy` failed (status %s).\n' "$wrong" >&2
    exit "$wrong"
}
exit "$status"
