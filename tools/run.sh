#!/usr/bin/env bash
# run.sh [stop] - the main job: a server on this machine, the quickstart pushed to it and followed to its end.
set -eu
cd "$(dirname "$0")/.."

parts=${STOKER_PARTS:-${XDG_CACHE_HOME:-$HOME/.cache}/stoker-parts}
data=${STOKER_RUN_DATA:-$PWD/build/data}
stoker=$PWD/build/stoker
first_port=8000
wait_s=30

running() { # prints the URL of the server on our data folder, when it answers
	local url
	url=$(sed -n 's/^listening on //p' "$data/server.out" 2>/dev/null | tail -n 1)
	[ -n "$url" ] && [ -f "$data/server.pid" ] && kill -0 "$(cat "$data/server.pid")" 2>/dev/null || return 1
	(exec 3<>"/dev/tcp/127.0.0.1/${url##*:}") 2>/dev/null || return 1
	echo "$url"
}

stop() {
	if url=$(running); then
		kill -TERM "$(cat "$data/server.pid")"
		echo "stopping the server at $url; jobs that run go on"
	else
		echo "no server of this checkout is running"
	fi
}

port_taken() { (exec 3<>"/dev/tcp/127.0.0.1/$1") 2>/dev/null; }

start() {
	local port=$first_port n
	while port_taken "$port" && [ "$port" -lt $((first_port + 20)) ]; do port=$((port + 1)); done
	mkdir -p "$data"
	: > "$data/server.out"
	setsid "$stoker" server --data "$data/stoker" --listen "127.0.0.1:$port" --allow-file-root "$parts/model" > "$data/server.out" 2> "$data/server.log" < /dev/null &
	echo $! > "$data/server.pid"
	for ((n = 0; n < wait_s * 10; n++)); do
		running >/dev/null && return
		kill -0 "$(cat "$data/server.pid")" 2>/dev/null || break
		sleep 0.1
	done
	echo "the server did not start; the end of $data/server.log:" >&2
	tail -n 20 "$data/server.log" >&2
	exit 1
}

if [ "${1:-}" = stop ]; then stop; exit; fi

url=$(running) || { start; url=$(running); }
export STOKER_URL=$url
STOKER_TOKEN=$(cat "$data/stoker/admin-token")
export STOKER_TOKEN

echo "== server at $url"
outcome=0
cpus=$(nproc)
[ "$cpus" -le 2 ] || cpus=2 # as many as the job file asks for, where there are so many
"$stoker" push -f examples/quickstart/train.yaml \
	--set "job.weights[0].source=file://$parts/model" --set "job.compute.cpu_count=$cpus" || outcome=$?
echo
echo "== the job"
"$stoker" view @
echo
echo "== its checkpoints"
"$stoker" checkpoints ls @
echo
echo "== the project's cache"
"$stoker" cache summarize quickstart
echo
echo "== mirrored weights"
"$stoker" weights ls
login="the CLI is logged in to this server"
env -u STOKER_URL -u STOKER_TOKEN "$stoker" doctor 2>/dev/null | grep -qF "server $url answers" ||
	login="and log in: stoker login --url $url <$data/stoker/admin-token"
cat <<END

next:
  export PATH="$PWD/build:\$PATH"       # $login
  stoker ps -a                          # all jobs
  stoker checkpoints pull @/latest out  # download what the job made
  make run                              # again: packages, weights and dataset are warm now
  make stop                             # stop the server; its data stays in build/data
END
exit "$outcome"
