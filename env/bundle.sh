#!/usr/bin/env bash
# Makes one archive of this project with its Python packages and a Java 17, for machines without a network:
#
#     env/bundle.sh [--out FOLDER] [--part-size 60M]
#
# On such a machine, in an empty folder:
#     cat FOLDER/sparkgpu-bundle.tar.gz* | tar xz && source env/activate.sh
# or, in a checkout of the same version that contains the archive or its parts:
#     source env/activate.sh
# which calls `env/bundle.sh --unpack` and, in its new .venv, `env/bundle.sh --install`.
#
# That machine must have the same system and processor type and the same Python 3.x with venv.

set -euo pipefail
root=$(cd -- "$(dirname -- "${BASH_SOURCE[0]}")/.." && pwd -P)
venv=${VIRTUAL_ENV:-$root/.venv} out=$root part_size=''

say() { printf 'sparkgpu: %s\n' "$*" >&2; }

fail() {
    say "$*"
    exit "${status:-2}"
}

# Unpacks the parts of a bundle, which are in the project's folder.
unpack() {
    rm -rf -- "$root/.bundle.new" && mkdir -- "$root/.bundle.new" &&
        cat -- "$root"/sparkgpu-bundle.tar.gz* | tar -xzf - -C "$root/.bundle.new" --strip-components=2 ./.bundle &&
        mv -T -- "$root/.bundle.new" "$root/.bundle"
}

# A virtual environment cannot be moved, so the programs of the bundle's are changed to use this one.
install() {
    local file bundle=$root/.bundle packages=("$root"/.venv/lib/python3.*/site-packages)
    # Replaces the few existing packages. Uses links if possible, since these are gigabytes.
    rm -rf -- "${packages[0]}"
    cp -al -- "$bundle/site-packages" "${packages[0]}" ||
        { rm -rf -- "${packages[0]}" && cp -a -- "$bundle/site-packages" "${packages[0]}"; }
    for file in "$bundle"/bin/*; do
        sed "s|$(cat "$bundle/prefix")|$root/.venv|g" "$file" >"$root/.venv/bin/${file##*/}"
        chmod +x "$root/.venv/bin/${file##*/}"
    done
}

case ${1:-} in
    --unpack) unpack; exit ;;
    --install) install; exit ;;
esac
while [ $# -gt 0 ]; do
    case $1 in
        --out) out=${2:?--out needs a folder} ;;
        --part-size) part_size=${2:?--part-size needs a size such as 60M} ;;
        *) fail "env/bundle.sh: unknown option $1; the options are --out FOLDER and --part-size SIZE." ;;
    esac
    shift 2
done
[[ $part_size =~ ^([1-9][0-9]*[KMG])?$ ]] || fail "--part-size $part_size: give a number and K, M or G, such as 60M."
[ -x "$venv/bin/python" ] && [ -x "${JAVA_HOME:-}/bin/java" ] ||
    status=3 fail 'the bundle needs an environment that is set up: source env/activate.sh first.'
mkdir -p -- "$out"

stage=$(mktemp -d "$out/.bundle-XXXXXX")
trap 'rm -rf -- "$stage"' EXIT
python=$("$venv/bin/python" -c 'import sys; print("%d.%d" % sys.version_info[:2])')
packages=$venv/lib/python$python/site-packages

say "gathering the project, the packages of $venv and the Java of $JAVA_HOME"
(cd -- "$root" && git ls-files -z | xargs -0 cp -p --parents -t "$stage")
mkdir -p "$stage/.bundle/bin"
printf '%s\n' "$python" >"$stage/.bundle/python"
printf '%s\n' "$venv" >"$stage/.bundle/prefix"
# Links if possible, since the packages are gigabytes.
cp -al -- "$packages" "$stage/.bundle/site-packages" 2>/dev/null ||
    { rm -rf -- "$stage/.bundle/site-packages" && cp -a -- "$packages" "$stage/.bundle/site-packages"; }
rm -rf -- "$stage"/.bundle/site-packages/{sparkgpu-*.dist-info,__editable__*sparkgpu*}
for file in "$venv"/bin/*; do
    case ${file##*/} in python* | pip* | activate* | Activate* | sparkgpu) continue ;; esac
    cp -a -- "$file" "$stage/.bundle/bin/"
done
case $(readlink -f -- "$JAVA_HOME") in
    "$(readlink -f -- "$packages")"/*) ;; # already among the packages
    *)
        cp -rL -- "$JAVA_HOME" "$stage/.bundle/java" 2>/dev/null || true # some links in it may be broken
        "$stage/.bundle/java/bin/java" -version 2>/dev/null ||
            status=3 fail "the Java of $JAVA_HOME does not run after copying; set JAVA_HOME to another Java 17."
        ;;
esac

say 'packing'
pack() { tar -C "$stage" --exclude=__pycache__ --owner=0 --group=0 -cf - . | gzip -1; }
rm -f -- "$out"/sparkgpu-bundle.tar.gz*
if [ -n "$part_size" ]; then
    pack | split -b "$part_size" -d -a 3 - "$out/sparkgpu-bundle.tar.gz."
else
    pack >"$out/sparkgpu-bundle.tar.gz"
fi
(cd "$out" && du -ch -- sparkgpu-bundle.tar.gz*) | tail -n 1 | sed 's/\s*total$//; s/^/sparkgpu: made a bundle of /' >&2
ls -1 -- "$out"/sparkgpu-bundle.tar.gz*
