#!/usr/bin/env bash
# Builds the documentation into build/site and checks it; any broken link or missing page ends it with a failure.
# Open build/site/index.html then: it needs no server and no network. Arguments go to mkdocs in the place of
# `build`: `env/site/build.sh serve` shows pages as you write them, `env/site/build.sh mike deploy 0.2` keeps a version.

set -euo pipefail
cd -- "$(dirname -- "${BASH_SOURCE[0]}")/../.."

if [ -z "${VIRTUAL_ENV:-}" ]; then
    # shellcheck source=env/activate.sh
    source env/activate.sh
fi

# mkdocs has an environment of its own, which sees the packages of this one.
site=.cache/site-tools
if [ ! -f "$site/.ready" ] || [ pyproject.toml -nt "$site/.ready" ]; then
    python -m venv --without-pip "$site"
    python -c 'import sysconfig; print(sysconfig.get_path("purelib"))' \
        >"$(echo "$site"/lib/python3.*/site-packages)/sparkgpu.pth"
    python -c 'import tomllib; print(*tomllib.load(open("pyproject.toml", "rb"))["project"]["optional-dependencies"]["docs"], sep="\n")' \
        >"$site/requirements.txt"
    python -m pip --python "$site/bin/python" install -q --disable-pip-version-check -r "$site/requirements.txt"
    touch "$site/.ready"
fi

export NO_MKDOCS_2_WARNING=1 PYTHONPATH=$PWD${PYTHONPATH:+:$PYTHONPATH} PATH=$PWD/$site/bin:$PATH
case ${1:-build} in
    mike) "$@" ;;
    build) mkdocs build "${@:2}" && python env/site/check.py build/site ;;
    *) mkdocs "$@" ;;
esac
