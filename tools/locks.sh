#!/usr/bin/env bash
# locks.sh [NAME]... - renew the locks in tools/locks, all of them or those that are named; see tools/locks/README.md.
set -eu
cd "$(dirname "$0")/locks"

parts=${STOKER_PARTS:-${XDG_CACHE_HOME:-$HOME/.cache}/stoker-parts}
debian_python=3.11 # the oldest that the parts run on

# The words of a line "# WORD ..." in an .in file.
directive() { sed -n "s/^# $1 *//p" "$2"; }

# compile IN OUT [OPTION]...: the lock of a list, by uv.
compile() {
	local package without
	without=$(mktemp)
	for package in $(directive without "$1"); do
		echo "$package ; sys_platform == 'never'" >> "$without"
	done
	"$parts/uv/bin/uv" pip compile --quiet --upgrade --generate-hashes --no-header --no-annotate --no-emit-index-url \
		--only-binary :all: --python-version $debian_python --overrides "$without" "${@:3}" "$1" --output-file "$2"
	awk '/^[a-z]/ { kept = !/never/ } kept' "$2" > "$without" # --universal keeps them, for no machine
	cat "$without" > "$2"
	rm -f "$without"
}

renew_python() {
	local options=()
	! grep -qx '# no-deps' "$1.in" || options+=(--no-deps)
	compile "$1.in" "$1.txt" "${options[@]}"
}

# For every Python from ours on and every machine that its packages are made for.
renew_example() {
	compile "../../examples/$1/requirements.in" "../../examples/$1/requirements.txt" --universal
}

renew_go() {
	local package
	for package in $(cd "$1" && GOTOOLCHAIN=local PATH=$parts/go/bin:$PATH go list tool); do
		(cd "$1" && GOTOOLCHAIN=local PATH=$parts/go/bin:$PATH go get -tool "$package@latest")
	done
}

renew_node() {
	../parts.sh azure
	(cd "$1" && PATH=$parts/node/bin:$PATH npm update --package-lock-only --omit-lockfile-registry-resolved --ignore-scripts --no-audit --no-fund)
}

if [ $# = 0 ]; then
	for file in *.in */go.mod */package.json; do
		name=${file%.in}
		name=${name%/go.mod}
		set -- "$@" "${name%/package.json}"
	done
	set -- "$@" quickstart resume
fi
../parts.sh uv go
for name in "$@"; do
	if [ -f "$name.in" ]; then renew_python "$name"
	elif [ -f "$name/go.mod" ]; then renew_go "$name"
	elif [ -f "$name/package.json" ]; then renew_node "$name"
	elif [ -f "../../examples/$name/requirements.in" ]; then renew_example "$name"
	else echo "locks.sh: tools/locks has no $name.in, $name/go.mod or $name/package.json" >&2; exit 2
	fi
	echo "renewed $name"
done
git diff --stat -- . ../../examples
