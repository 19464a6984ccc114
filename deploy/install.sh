#!/bin/sh
# Makes .venv if it is missing and installs the package in place: deploy/install.sh PYTHON REQUIREMENT
# Says what it is at from the first second on.
set -eu
python=$1
requirement=$2

# How far the packages are, every two seconds, until they are there or this script ends. What uv fetches grows in its
# cache, among what was there before, so with uv only the time is told.
progress() {
    seconds=0
    while sleep 2; do
        seconds=$((seconds + 2))
        if command -v uv >/dev/null 2>&1; then
            echo "2/3 packages, $seconds s so far"
        else
            megabytes=$(du -sm .venv 2>/dev/null | cut -f 1)
            echo "2/3 packages, ${megabytes:-0} MB so far"
        fi
    done
}

echo "1/3 environment"
if command -v uv >/dev/null 2>&1; then
    [ -d .venv ] || uv venv --quiet --python "$python" .venv
elif [ ! -x .venv/bin/pip ]; then
    "$python" -m venv .venv || {
        echo "cannot make a virtual environment; on Debian: apt-get install python3-venv" >&2
        exit 1
    }
fi
echo "2/3 packages"
progress & watch=$!
# What is fetched counts as well.
mkdir -p .venv/fetched
trap 'kill "$watch" 2>/dev/null || true; rm -rf .venv/fetched' EXIT
if command -v uv >/dev/null 2>&1; then
    uv pip install --quiet --python .venv/bin/python --constraint constraints.txt --editable "$requirement"
else
    # What is imported is compiled to byte code then; all of it took a fifth of the time.
    TMPDIR=$PWD/.venv/fetched .venv/bin/pip install --quiet --no-compile --disable-pip-version-check --constraint constraints.txt \
        --editable "$requirement"
fi
