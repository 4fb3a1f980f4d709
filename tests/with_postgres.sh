#!/usr/bin/env bash
# with_postgres.sh COMMAND... - runs it beside a PostgreSQL of its own: in a temporary folder, at a socket there. The
# database's URL is in STOKER_TEST_DATABASE, the server's folder in STOKER_TEST_POSTGRES (its log is log).
set -eu
bin=$(ls -d /usr/lib/postgresql/*/bin 2>/dev/null | sort -V | tail -n 1)
[ -n "$bin" ] || { echo "no PostgreSQL here: tools/parts.sh unit installs it" >&2; exit 1; }
folder=$(mktemp -d /tmp/stoker-pg.XXXXXX)
# it refuses to run as root
as() { "$@"; }
if [ "$(id -u)" = 0 ]; then
	chown postgres "$folder"
	as() { setpriv --reuid postgres --regid postgres --clear-groups "$@"; }
fi
cd "$folder"
trap 'as "$bin/pg_ctl" -D "$folder/data" -m immediate -s stop || true; rm -rf "$folder"' EXIT
as "$bin/initdb" -D "$folder/data" -U stoker -A trust -E UTF8 --locale=C.UTF-8 --no-sync >/dev/null
as "$bin/pg_ctl" -D "$folder/data" -l "$folder/log" -s -w -o "-k $folder -c listen_addresses= -c max_connections=400 -c fsync=off" start
export STOKER_TEST_POSTGRES=$folder STOKER_TEST_DATABASE="postgresql://stoker@/postgres?host=$folder"
cd - >/dev/null
"$@"
