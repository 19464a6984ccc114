#!/bin/sh
# Docker Compose where the machine has none: built once, from its Go module. tests/image/compose.sh FOLDER leaves
# FOLDER/docker-compose, which runs by itself as `docker compose` does.
set -eu
folder=$1
version=v2.40.3
[ -x "$folder/docker-compose" ] && grep -qsx "$version" "$folder/.made" && exit 0
command -v go >/dev/null 2>&1 || { echo "no Go to build Docker Compose with" >&2; exit 1; }
mkdir -p "$folder"
building=$(mktemp -d "$folder/building.XXXXXX")
trap 'rm -rf "$building"' EXIT
export GOPATH="$building/go" GOCACHE="$building/cache" GOFLAGS="-modcacherw -buildvcs=false" CGO_ENABLED=0
module=github.com/docker/compose/v2
# `go install` takes no module that excludes others, so it is built as the main one.
source=$(cd "$building" && go mod download -json "$module@$version" | sed -n 's/^\t"Dir": "\(.*\)",$/\1/p')
(cd "$source" && nice -n 15 go build -trimpath -o "$building/docker-compose" \
    -ldflags "-s -w -X $module/internal.Version=$version" ./cmd)
mv "$building/docker-compose" "$folder/docker-compose"
echo "$version" > "$folder/.made"
