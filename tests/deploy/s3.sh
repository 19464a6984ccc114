#!/bin/sh
# A store for the test of backups in S3. tests/deploy/s3.sh FOLDER leaves FOLDER/bin/versitygw, built from its Go module.
set -eu
folder=$1
version="versitygw v1.8.0"
grep -qsx "$version" "$folder/.made" && exit 0
command -v go >/dev/null 2>&1 || { echo "no Go to build versitygw with" >&2; exit 1; }
mkdir -p "$folder"
building=$(mktemp -d "$folder/building.XXXXXX")
trap 'rm -rf "$building"' EXIT
GOPATH="$building/go" GOCACHE="$building/cache" GOFLAGS=-modcacherw CGO_ENABLED=0 GOBIN="$folder/bin" \
    nice -n 15 go install github.com/versity/versitygw/cmd/versitygw@v1.8.0
echo "$version" > "$folder/.made"
