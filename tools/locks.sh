#!/usr/bin/env bash
# locks.sh [NAME]... - renew the locks in tools/locks, all of them or those that are named; see tools/locks/README.md.
set -eu
cd "$(dirname "$0")/locks"

parts=${STOKER_PARTS:-${XDG_CACHE_HOME:-$HOME/.cache}/stoker-parts}
debian_python=3.11 # the oldest that the parts run on

# The words of a line "# WORD ..." in an .in file.
directive() { sed -n "s/^# $1 *//p" "$2"; }

renew_python() {
	local name=$1 options=() package
	local without
	without=$(mktemp)
	for package in $(directive without "$name.in"); do
		echo "$package ; sys_platform == 'never'" >> "$without"
	done
	! grep -qx '# no-deps' "$name.in" || options+=(--no-deps)
	"$parts/uv/bin/uv" pip compile --quiet --upgrade --generate-hashes --no-header --no-annotate --no-emit-index-url \
		--only-binary :all: --python-version $debian_python --overrides "$without" "${options[@]}" "$name.in" --output-file "$name.txt"
	rm -f "$without"
}

# For every Python from ours on and every machine that its packages are made for.
renew_example() {
	local folder=../../examples/$1
	"$parts/uv/bin/uv" pip compile --quiet --upgrade --generate-hashes --no-header --no-annotate --no-emit-index-url \
		--only-binary :all: --universal --python-version $debian_python "$folder/requirements.in" --output-file "$folder/requirements.txt"
}

renew_go() {
	local package
	for package in $(sed -n 's/^tool //p' "$1/go.mod"); do
		(cd "$1" && GOTOOLCHAIN=local PATH=$parts/go/bin:$PATH go get -tool "$package@latest")
	done
}

if [ $# = 0 ]; then
	for file in *.in */go.mod; do
		name=${file%.in}
		set -- "$@" "${name%/go.mod}"
	done
	set -- "$@" quickstart
fi
../parts.sh uv go
for name in "$@"; do
	if [ -f "$name.in" ]; then renew_python "$name"
	elif [ -f "$name/go.mod" ]; then renew_go "$name"
	elif [ -f "../../examples/$name/requirements.in" ]; then renew_example "$name"
	else echo "locks.sh: tools/locks has neither $name.in nor $name/go.mod" >&2; exit 2
	fi
	echo "renewed $name"
done
git diff --stat -- . ../../examples
