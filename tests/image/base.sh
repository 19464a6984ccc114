#!/bin/sh
# A base image without an image registry: Debian's own packages, in a folder. tests/image/base.sh FOLDER
# Packages that the image wants are in it already, so that building asks for none. Made once and kept.
set -eu
folder=$1
grep -qs "git gcc nss" "$folder/.made" && exit 0
rm -rf "$folder"
debootstrap --variant=minbase --include=python3,python3-venv,python3-dev,gcc,libc6-dev,ca-certificates,git,tini,libnss-wrapper trixie "$folder" >/dev/null
# What the machine trusts, the build shall trust.
cp /etc/ssl/certs/ca-certificates.crt "$folder/etc/ssl/certs/ca-certificates.crt"
rm -rf "$folder"/var/cache/apt/archives/*.deb "$folder"/var/lib/apt/lists/*
echo "with git gcc nss" > "$folder/.made"
