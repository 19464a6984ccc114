#!/usr/bin/env bash
# The modules of the pages: their types, which stand in JSDoc, and their style, at the versions of the lock file; and
# the layout of the stylesheets, which `check.sh --write` mends. Without npm this is skipped aloud; in CI, which
# installs it, it fails.
set -euo pipefail
cd "$(dirname "$0")"

if ! { command -v npm && command -v node; } >/dev/null 2>&1; then
    echo "the modules of the pages: node with npm is missing, not checked"
    [ -z "${CI:-}" ] && exit 0 || exit 1
fi
if ! cmp --silent package-lock.json node_modules/.checked-lock; then
    if ! timeout 300 npm ci --silent; then
        echo "the modules of the pages: npm could not install what checks them, not checked"
        [ -z "${CI:-}" ] && exit 0 || exit 1
    fi
    cp package-lock.json node_modules/.checked-lock
fi
status=0
node_modules/.bin/tsc || status=1
cd ../../..
tests/web/modules/node_modules/.bin/eslint --config tests/web/modules/eslint.config.js svc/web/static || status=1
tests/web/modules/node_modules/.bin/prettier --print-width 120 "${1:---check}" --log-level warn svc/web/static/*.css \
    || status=1
exit "$status"
