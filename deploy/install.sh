#!/bin/sh
# Makes .venv if it is missing and installs the package in place: deploy/install.sh PYTHON REQUIREMENT
set -eu
python=$1
requirement=$2
if command -v uv >/dev/null 2>&1; then
    [ -d .venv ] || uv venv --quiet --python "$python" .venv
    uv pip install --quiet --python .venv/bin/python --constraint constraints.txt --editable "$requirement"
    exit
fi
if [ ! -x .venv/bin/pip ]; then
    "$python" -m venv .venv || {
        echo "cannot make a virtual environment; on Debian: apt-get install python3-venv" >&2
        exit 1
    }
fi
.venv/bin/pip install --quiet --disable-pip-version-check --constraint constraints.txt --editable "$requirement"
