/* report_exec.c - the two flows of a command inside, to and from the server: both are repeated by
 * offset until they have arrived. */
#include "run/report_inner.h"

#include "base/log.h"
#include "core/resumable.h"

/* After an exchange that failed: false when another one would be of no use. */
static bool may_try(struct report *r, const struct http_reply *reply, const atomic_bool *stop,
                    int *tries, struct err *err)
{
	if (*stop || r->halt || r->fenced || reply->status == 400 || report_is_refusal(reply))
		return false;
	err_clear(err);
	report_pause_after(r, tries);
	return !*stop && !r->halt && !r->fenced;
}

static bool read_answer(struct str json, struct wire_exec_taken *out)
{
	AUTO_ARENA struct arena *a = arena_new();
	struct err err = {0};

	return wire_exec_taken_parse(out, a, json, &err) == 0;
}

bool report_exec_output(struct report *r, const char *id, uint64_t offset, struct str frames,
                        int exit_code, const atomic_bool *stop, enum wire_exec_state *state)
{
	AUTO_FREE char *path =
		xasprintf("/runner/v1/exec_output?id=%s&offset=%" PRIu64 "&exit_code=%d", id,
	                  offset, exit_code);
	int tries = 0;

	for (;;) {
		AUTO_HTTP_REPLY struct http_reply reply = {0};
		struct err err = {0};
		struct wire_exec_taken taken;

		if (report_exchange(r, HTTP_POST, path, "application/octet-stream", frames,
		                    REPORT_SMALL_MS, &reply, &err) < 0) {
			if (!may_try(r, &reply, stop, &tries, &err))
				return false;
			continue;
		}
		if (!read_answer(buf_view(&reply.body), &taken)) {
			log_warn("command %s: the server's answer is not understood", id);
			return false;
		}
		*state = taken.state;
		if (taken.next >= offset + frames.n)
			return true;
		tries = 0; /* it made us wait and has no room still */
		if (*stop || r->halt || r->fenced)
			return false;
	}
}

bool report_exec_input(struct report *r, const char *id, uint64_t offset, bool state_only,
                       const atomic_bool *stop, struct buf *frames, enum wire_exec_state *state)
{
	AUTO_FREE char *path =
		xasprintf("/runner/v1/exec_input?id=%s&offset=%" PRIu64 "&state_only=%d", id,
	                  offset, state_only);
	int tries = 0;

	for (;;) {
		AUTO_HTTP_REPLY struct http_reply reply = {0};
		struct err err = {0};
		enum frame_kind kind;
		struct str rest, word;

		if (report_exchange(r, HTTP_GET, path, "", (struct str){0}, REPORT_SMALL_MS, &reply,
		                    &err) < 0) {
			if (!may_try(r, &reply, stop, &tries, &err))
				return false;
			continue;
		}
		rest = buf_view(&reply.body);
		if (!frame_next(&rest, &kind, &word) || kind != FRAME_STATE ||
		    !wire_exec_state_of(word, state)) {
			log_warn("command %s: the server's answer is not understood", id);
			return false;
		}
		buf_str(frames, rest);
		return true;
	}
}
