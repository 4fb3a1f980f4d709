#!/usr/bin/env bash
# test.sh [unit] - runs the tests of the asan build and ends with one line of totals. PARTS_DONE: the file that will have the
# exit status of tools/parts.sh, which is under way, and prints to build/parts.out.
set -u
cd "$(dirname "$0")/.."

parts=${STOKER_PARTS:-${XDG_CACHE_HOME:-$HOME/.cache}/stoker-parts}
build=build/asan
passed=0 failed=0 skipped=0
rm -f "$build/unit.out" "$build/e2e.out"
workers=5 # end-to-end tests mostly wait

# They wait half of the time: two for each processor.
# meson's junit-free summary: "Ok: 12", "Fail: 0", ...
meson test -C "$build" --print-errorlogs --num-processes $(($(nproc) * 2)) 2>&1 | tee "$build/unit.out"
count() { sed -n "s/^$1: *\([0-9]*\).*/\1/p" "$build/unit.out" | tail -n 1; }
for word in "Ok" "Expected Fail"; do passed=$((passed + $(count "$word" | grep . || echo 0))); done
for word in "Fail" "Unexpected Pass" "Timeout"; do failed=$((failed + $(count "$word" | grep . || echo 0))); done
skipped=$((skipped + $(count "Skipped" | grep . || echo 0)))
[ "$passed" -gt 0 ] || failed=$((failed + 1))

# Whoever reads only the end of a long log sees what failed, and why.
say_again() {
	grep -E '^ *[0-9]+/[0-9]+ .*(FAIL|TIMEOUT|ERROR|UNEXPECTEDPASS)' "$build/unit.out" | head -n 20
	grep -E '^not ok|^# .*(error|Error|failed)|ERROR: |SUMMARY: |runtime error' "$build/unit.out" | head -n 40
	[ -f "$build/e2e.out" ] || return
	# One that compares whole logs says thousands of lines: of each test the first ones, and all names last.
	awk '/^_+ .* _+$/ { n = 0; print } /^E  / && n++ < 6 { print substr($0, 1, 400) }' "$build/e2e.out" | head -n 60
	grep -E '^(FAILED|ERROR) ' "$build/e2e.out" | cut -c 1-400 | head -n 20
}

parts_are_there() {
	[ -n "${PARTS_DONE:-}" ] || return 0
	[ -f "$PARTS_DONE" ] || echo "waiting for what the end-to-end tests need: $(tail -n 1 build/parts.out)"
	for _ in $(seq 1800); do
		[ -f "$PARTS_DONE" ] && break
		sleep 1
	done
	cat build/parts.out
	[ "$(cat "$PARTS_DONE")" = 0 ] || { echo "what the end-to-end tests need was not installed: see above" >&2; return 1; }
}

if [ "${1:-}" != unit ] && ! parts_are_there; then
	failed=$((failed + 1))
elif [ "${1:-}" != unit ]; then
	STOKER=$PWD/$build/src/stoker STOKER_PARTS=$parts \
		"$parts/clients/bin/python" -m pytest -q -n "$workers" --maxschedchunk=1 -p no:cacheprovider --timeout=900 --durations=10 tests/e2e 2>&1 | tee "$build/e2e.out"
	line=$(grep -E '^[0-9]+ (passed|failed|skipped|error)|^=.*(passed|failed|error)' "$build/e2e.out" | tail -n 1)
	number() { sed -n "s/.*[^0-9]\([0-9][0-9]*\) $1.*/\1/p" <<< " $line" | grep . || echo 0; }
	passed=$((passed + $(number passed)))
	failed=$((failed + $(number failed) + $(number error)))
	skipped=$((skipped + $(number skipped)))
	[ "$(number passed)" -gt 0 ] || failed=$((failed + 1))
fi

# On the machine that decides, nothing may be left out.
if [ "${CI:-}" = true ] && [ "$skipped" -gt 0 ]; then
	echo "CI allows no skipped test: $skipped" >&2
	failed=$((failed + skipped))
fi
[ "$failed" = 0 ] || { echo "what failed:"; say_again; }
echo "$passed passed, $failed failed, $skipped skipped"
[ "$failed" = 0 ]
