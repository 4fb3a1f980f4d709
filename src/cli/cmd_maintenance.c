/* cmd_maintenance.c - the server's own stores: collect what nothing uses, read again what is kept.
 */
#include "cli/cli.h"

#include "base/clock.h"
#include "base/units.h"

#include <unistd.h>

#define POLL_MS 300
#define STOP_MS 20000 /* a task that was asked to stop ends at its next megabyte */

static const char *text_of(const struct doc *u, const char *key)
{
	return doc_cstr(doc_get(u, key), "");
}

static uint64_t number_of(const struct doc *u, const char *key)
{
	return (uint64_t)MAX(doc_int(doc_get(u, key), 0), (int64_t)0);
}

static bool is_state(const struct doc *u, const char *state)
{
	return strcmp(text_of(u, "state"), state) == 0;
}

static int begin(struct cli *c, const char *kind, bool dry_run, int64_t age_s,
                 const struct doc **out, struct err *err)
{
	AUTO_BUF struct buf body = BUF_INIT(300);
	const struct doc *reply;
	struct js js;

	js_init(&js, &body);
	js_open(&js);
	js_kv(&js, "kind", kind);
	js_kv_bool(&js, "dry_run", dry_run);
	js_kv_int(&js, "min_age_seconds", age_s);
	js_close(&js);
	if (remote_call(c, HTTP_POST, "/v1/maintenance", &body, &reply, err) < 0)
		return -1;
	*out = doc_get(reply, "maintenance");
	return 0;
}

static void show_progress(struct cli *c, const struct doc *u)
{
	uint64_t done = number_of(u, "bytes_done"), total = number_of(u, "bytes_total");
	double rate = doc_real(doc_get(u, "rate_bytes_per_second"), 0);
	char have[UNITS_CAP], all[UNITS_CAP], speed[UNITS_CAP], left[UNITS_CAP];

	if (text_of(u, "doing")[0] == '\0')
		return; /* it has yet to begin */
	if (total == 0) {
		out_progress(c, "%s", text_of(u, "doing"));
		return;
	}
	(void)units_show_seconds(
		rate >= 1 && total > done ? (uint64_t)((double)(total - done) / rate) : 0, left);
	out_progress(c, "%s of %s, %s, %s left: %s", units_show_bytes(done, have),
	             units_show_bytes(total, all), units_show_rate(rate, speed), left,
	             text_of(u, "doing"));
}

/* Until it is over, or Ctrl-C: ERR_CANCELED. *u becomes its last state. */
static int follow(struct cli *c, const struct doc **u, struct err *err)
{
	const char *id = text_of(*u, "id");

	while (is_state(*u, "RUNNING")) {
		const struct doc *reply;

		show_progress(c, *u);
		clock_sleep_ms(POLL_MS);
		if (remote_get(c, &reply, err, "/v1/maintenance") < 0) {
			if (err->code != ERR_NOT_FOUND)
				return -1;
			err_clear(err);
			reply = NULL;
		}
		*u = doc_get(reply, "maintenance");
		if (strcmp(text_of(*u, "id"), id) != 0)
			return err_set(err, ERR_UNAVAILABLE,
			               "the server restarted and lost the result. Running it again "
			               "is safe");
	}
	out_progress_end(c);
	return 0;
}

/* After Ctrl-C: the task is stopped, and waited for. A second Ctrl-C does not wait. */
static int stop(struct cli *c, const struct doc **u, struct err *err)
{
	int64_t until = clock_mono_ms() + STOP_MS;
	const struct doc *reply;

	err_clear(err);
	out_progress_end(c);
	atomic_store(&interrupted, false);
	if (remote_call(
		    c, HTTP_DELETE,
		    arena_printf(c->arena, "/v1/maintenance/%s", remote_part(c, text_of(*u, "id"))),
		    NULL, &reply, err) < 0)
		return -1;
	*u = doc_get(reply, "maintenance");
	while (is_state(*u, "RUNNING") && clock_mono_ms() < until) {
		clock_sleep_ms(POLL_MS);
		if (remote_get(c, &reply, err, "/v1/maintenance") < 0)
			return -1;
		*u = doc_get(reply, "maintenance");
	}
	return 0;
}

/* Follows it, and stops it on Ctrl-C when it is `mine`: 1 = detached from another's. */
static int see_through(struct cli *c, bool mine, const struct doc **u, struct err *err)
{
	if (follow(c, u, err) == 0) {
		if (is_state(*u, "FAILED"))
			return err_set(err, ERR_IO, "%s", text_of(*u, "error"));
		return 0;
	}
	if (err->code != ERR_CANCELED)
		return -1;
	if (mine)
		return stop(c, u, err);
	err_clear(err);
	out_progress_end(c);
	out_message(c,
	            "detached: it keeps running; the user who started it can stop it with Ctrl-C");
	return 1;
}

static void item_name(const struct doc *d, struct buf *b)
{
	cell_text(doc_get(d, "name"), b);
	if (doc_is(doc_get(d, "path"), DOC_TEXT)) {
		buf_puts(b, ": ");
		buf_str(b, doc_text(doc_get(d, "path")));
	}
}

static int show_items(struct cli *c, const struct doc *u, const char *empty, struct err *err)
{
	static const struct out_col cols[] = {
		{"KIND", false, cell_text, "kind"},       {"SIZE", true, cell_bytes, "bytes"},
		{"USED", true, cell_age, "last_used_at"}, {"NAME", false, item_name, NULL},
		{"WHY", false, cell_text, "words"},
	};
	uint64_t found = number_of(u, "found");
	const struct doc *items = doc_get(u, "items");

	if (out_list(c, items, cols, COUNT(cols), empty, err) < 0)
		return -1;
	if (found > items->count)
		out_message(c, "and %" PRIu64 " more, counted but not listed",
		            found - items->count);
	if (doc_is(doc_get(u, "note"), DOC_TEXT))
		out_message(c, "%s", text_of(u, "note"));
	return 0;
}

static int run_gc(struct cli *c, bool dry_run, int64_t age_s, const struct doc **u, struct err *err)
{
	if (begin(c, "gc", dry_run, age_s, u, err) < 0)
		return -1;
	return see_through(c, true, u, err);
}

/* "12 things, 1.5 GB" */
static const char *sum_of(struct cli *c, const struct doc *u)
{
	uint64_t n = number_of(u, "found");
	char bytes[UNITS_CAP];

	return arena_printf(c->arena, "%" PRIu64 " thing%s, %s", n, n == 1 ? "" : "s",
	                    units_show_bytes(number_of(u, "found_bytes"), bytes));
}

#define NOTHING "nothing to collect: all data is in use or too recent"

/* On a terminal: shows what would go, and asks. *shown: the table is on the screen already; *go is
 * false when there is nothing. */
static int ask(struct cli *c, int64_t age_s, enum out_form form, bool *shown, bool *go,
               struct err *err)
{
	const struct doc *u;

	*go = true;
	if (opt_flag(c, "yes") || isatty(0) != 1)
		return out_confirm(c, "Remove all unused data?", NULL, err);
	if (run_gc(c, true, age_s, &u, err) < 0)
		return -1;
	*go = number_of(u, "found") > 0;
	*shown = form == OUT_TABLE;
	if ((*shown || !*go) && show_items(c, u, NOTHING, err) < 0)
		return -1;
	if (!*go)
		return 0;
	return out_confirm(c, arena_printf(c->arena, "Remove %s for good?", sum_of(c, u)), NULL,
	                   err);
}

int cmd_cache_gc(struct cli *c, struct err *err)
{
	bool dry_run = opt_flag(c, "dry-run"), shown = false, go = true;
	enum out_form form;
	const struct doc *u;
	uint64_t age_s;

	catch_interrupt();
	if (out_form(c, &form, err) < 0)
		return -1;
	if (units_seconds(str_of(opt_text(c, "older-than", "24h")), &age_s, err) < 0)
		return err_wrap(err, "--older-than");
	if (!dry_run && ask(c, (int64_t)age_s, form, &shown, &go, err) < 0)
		return -1;
	if (!go)
		return 0;
	if (run_gc(c, dry_run, (int64_t)age_s, &u, err) < 0 ||
	    (!shown && show_items(c, u, NOTHING, err) < 0))
		return -1;
	if (dry_run && number_of(u, "found") > 0)
		out_message(c, "would free %s; run without --dry-run to delete", sum_of(c, u));
	else if (!dry_run)
		out_message(c, "freed %s", sum_of(c, u));
	if (!is_state(u, "STOPPED"))
		return 0;
	out_message(
		c,
		"stopped early: the listed items are removed; `stoker cache gc` removes the rest");
	return CLI_EXIT_DETACHED;
}

/* Begins one, or joins the one that runs. */
static int begin_or_join(struct cli *c, bool *mine, const struct doc **u, struct err *err)
{
	struct err ignored = {0};
	const struct doc *reply;

	*mine = true;
	if (begin(c, "verify", false, 0, u, err) == 0)
		return 0;
	if (err->code != ERR_CONFLICT || remote_get(c, &reply, &ignored, "/v1/maintenance") < 0)
		return -1;
	*u = doc_get(reply, "maintenance");
	if (strcmp(text_of(*u, "kind"), "verify") != 0 || !is_state(*u, "RUNNING"))
		return -1;
	err_clear(err);
	*mine = false;
	out_message(c, "%s already started one. This is its progress; Ctrl-C only detaches",
	            text_of(*u, "by"));
	return 0;
}

int cmd_cache_verify(struct cli *c, struct err *err)
{
	enum out_form form;
	const struct doc *u;
	uint64_t found;
	char bytes[UNITS_CAP];
	bool mine;
	int r;

	catch_interrupt();
	if (out_form(c, &form, err) < 0 || begin_or_join(c, &mine, &u, err) < 0)
		return -1;
	r = see_through(c, mine, &u, err);
	if (r != 0)
		return r > 0 ? CLI_EXIT_DETACHED : -1;
	found = number_of(u, "found");
	(void)units_show_bytes(number_of(u, "bytes_done"), bytes);
	if (show_items(c, u, "nothing is damaged", err) < 0)
		return -1;
	if (found > 0)
		out_message(c, "%s read: %" PRIu64 " damaged", bytes, found);
	else
		out_message(c, "%s read", bytes);
	if (is_state(u, "DONE"))
		return found > 0;
	out_message(c, "stopped early; the rest was not read");
	return found > 0 ? 1 : CLI_EXIT_DETACHED;
}
