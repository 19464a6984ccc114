#!/bin/sh
# What checks the manifests for Kubernetes. tests/deploy/kubernetes.sh FOLDER leaves FOLDER/bin/kustomize, built from its
# Go module, and FOLDER/bin/kubernetes-validate, which brings the schemas of Kubernetes.
set -eu
folder=$1
versions="kustomize v5.8.1, kubernetes-validate 1.37.0"
grep -qsx "$versions" "$folder/.made" && exit 0
command -v go >/dev/null 2>&1 || { echo "no Go to build kustomize with" >&2; exit 1; }
python3 -m venv --clear "$folder"
"$folder/bin/pip" install --quiet --disable-pip-version-check kubernetes-validate==1.37.0
building=$(mktemp -d "$folder/building.XXXXXX")
trap 'rm -rf "$building"' EXIT
GOPATH="$building/go" GOCACHE="$building/cache" GOFLAGS=-modcacherw CGO_ENABLED=0 GOBIN="$folder/bin" \
    nice -n 15 go install sigs.k8s.io/kustomize/kustomize/v5@v5.8.1
echo "$versions" > "$folder/.made"
