#!/bin/sh
# A Python for ARM, for an emulator of single programs: Debian's own, unpacked. tests/deploy/arm.sh FOLDER SUITE
# None of its programs runs while it is made. Made once and kept.
set -eu
folder=$1
suite=$2
grep -qsx "$suite" "$folder/.made" && exit 0
rm -rf "$folder"
debootstrap --foreign --variant=minbase --arch=arm64 --include=python3 "$suite" "$folder" >/dev/null
for package in "$folder"/var/cache/apt/archives/*.deb; do
    # /lib is a link to usr/lib, which dpkg-deb itself would replace.
    dpkg-deb --fsys-tarfile "$package" | tar -x --keep-directory-symlink -C "$folder"
    rm "$package"
done
echo "$suite" > "$folder/.made"
