#!/usr/bin/env bash
# Installs missing command-line tools from Debian packages where that is possible; names the rest.
# usage: install_tools.sh COMMAND:PACKAGE ...
# COMMAND with a slash is a file, wildcards allowed; `one|other` is present where either is.
set -euo pipefail

present() {
    local names name
    IFS='|' read -ra names <<<"$1"
    for name in "${names[@]}"; do
        case $name in
            */*) compgen -G "$name" >/dev/null && return ;;
            *) command -v "$name" >/dev/null && return ;;
        esac
    done
    return 1
}

missing=()
for pair in "$@"; do
    present "${pair%%:*}" || missing+=("$pair")
done
[ "${#missing[@]}" -gt 0 ] || exit 0

if command -v apt-get >/dev/null && [ "$(id -u)" -eq 0 ]; then
    log=$(mktemp)
    trap 'rm -f "$log"' EXIT
    packages=("${missing[@]##*:}")
    {
        apt-get update -q && DEBIAN_FRONTEND=noninteractive apt-get install -yq "${packages[@]}"
    } >"$log" 2>&1 || tail -n 3 "$log" >&2
fi

for pair in "${missing[@]}"; do
    present "${pair%%:*}" ||
        echo "missing: ${pair%%:*} (install the Debian package ${pair##*:}); what needs it will fail" >&2
done
