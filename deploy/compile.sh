#!/bin/sh
# Compiles the modules of the hot path in place, beside whatever runs: deploy/compile.sh PYTHON
# Says why where it does not. At the lowest priority; each module appears whole or not at all.
set -eu
cd "$(dirname "$0")/.."
renice -n 19 $$ >/dev/null 2>&1 || true
if .venv/bin/python -c 'from protocol.compiled import state, wanted; raise SystemExit(wanted() and not state()[0])'; then
    echo "nothing to compile"
    exit
fi
if ! command -v "${CC:-cc}" >/dev/null 2>&1; then
    echo "no C compiler, so the modules run as they are"
    exit
fi
tools=.venv/build-tools
if [ ! -d "$tools" ]; then
    # The packages of [build-system] in pyproject.toml.
    requirements=$("$1" -c 'import tomllib; print("\n".join(tomllib.load(open("pyproject.toml", "rb"))["build-system"]["requires"]))')
    rm -rf "$tools.new"
    if command -v uv >/dev/null 2>&1; then
        echo "$requirements" | uv pip install --quiet --python .venv/bin/python --target "$tools.new" --requirement /dev/stdin
    else
        echo "$requirements" | .venv/bin/pip install --quiet --disable-pip-version-check --target "$tools.new" --requirement /dev/stdin
    fi
    mv "$tools.new" "$tools"
fi
PYTHONPATH=$tools .venv/bin/python setup.py --quiet build_ext --inplace --build-temp .venv/build-temp
.venv/bin/trace-svc --version
