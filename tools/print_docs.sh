#!/usr/bin/env bash
# print_docs.sh [FOLDER] - the reference docs, printed from the tables of the program. docs/ by default.
set -eu
cd "$(dirname "$0")/.."
out=${1:-docs}
mkdir -p "$out"
for page in settings api cli errors locks job-file environment; do build/stoker "print-$page" > "$out/$page.md"; done
build/stoker man > "$out/stoker.1"
