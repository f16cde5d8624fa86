#!/bin/sh
# Makes sure that the browser tests have a Chromium; says what to do where it cannot.
set -eu

[ -n "${CHROMIUM:-}" ] && exit 0
for name in chromium chromium-browser google-chrome; do
    command -v "$name" >/dev/null && exit 0
done

if [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null; then
    echo "installing chromium with apt" >&2
    if apt-get update -qq && DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends chromium >&2; then
        exit 0
    fi
fi
.venv/bin/playwright install chromium && exit 0

echo "the browser tests need Chromium: install it, or set CHROMIUM to its path" >&2
exit 1
