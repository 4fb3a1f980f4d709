/* cmd_weights.c - mirrored sources: list, prefetch, remove. */
#include "cli/cli.h"

#include "base/clock.h"
#include "base/units.h"

static void we_begin(const struct doc *d, struct buf *b)
{
	struct str s = doc_text(d);

	buf_str(b, s.n > 0 ? str_n(s.p, MIN(s.n, (size_t)12)) : str_of("-"));
}

static void we_revision(const struct doc *d, struct buf *b)
{
	we_begin(doc_get(d, "revision"), b);
}

/* As many digits as bt://sha256: takes. */
static void we_manifest(const struct doc *d, struct buf *b)
{
	we_begin(doc_get(d, "manifest"), b);
}

/* Which of its files: the same source may be there several times over. */
static void we_patterns(const struct doc *d, struct buf *b)
{
	static const char *const lists[][2] = {{"allow_patterns", ""}, {"ignore_patterns", "!"}};
	size_t before = b->n;

	for (size_t i = 0; i < COUNT(lists); i++) {
		DOC_EACH (p, doc_get(d, lists[i][0]))
			buf_printf(b, "%s%s%s", b->n > before ? " " : "", lists[i][1],
			           doc_cstr(p, ""));
	}
	if (b->n == before)
		buf_puts(b, "-");
}

int cmd_weights_ls(struct cli *c, struct err *err)
{
	static const struct out_col cols[] = {
		{"ID", false, cell_text, "id"},         {"SOURCE", false, cell_text, "source"},
		{"REVISION", false, we_revision, NULL}, {"MANIFEST", false, we_manifest, NULL},
		{"STATE", false, cell_text, "state"},   {"SIZE", true, cell_bytes, "bytes"},
		{"FILES", true, cell_text, "files"},    {"USED", true, cell_age, "last_used_at"},
		{"PATTERNS", false, we_patterns, NULL}};
	const struct doc *reply, *list;

	if (remote_get(c, &reply, err, "/v1/weights") < 0)
		return -1;
	list = doc_get(reply, "weights");
	if (out_list(c, list, cols, COUNT(cols), "no weights are mirrored yet", err) < 0)
		return -1;
	DOC_EACH (w, list) {
		if (doc_is(doc_get(w, "error"), DOC_TEXT))
			out_message(c, "%s: %s", doc_cstr(doc_get(w, "id"), "?"),
			            doc_cstr(doc_get(w, "error"), ""));
	}
	return 0;
}

static void list_option(struct cli *c, struct js *js, const char *opt, const char *key)
{
	const char *item[CLI_ARGS_MAX];
	size_t n = opt_list(c, opt, item, COUNT(item));

	if (n == 0)
		return;
	js_key(js, key);
	js_list(js);
	for (size_t i = 0; i < n; i++)
		js_cstr(js, item[i]);
	js_end(js);
}

static int prefetched(struct cli *c, const struct doc *w)
{
	char total[UNITS_CAP];

	out_progress_end(c);
	out_message(c, "%s is mirrored: %s", c->arg[0],
	            units_show_bytes((uint64_t)doc_int(doc_get(w, "bytes"), 0), total));
	return 0;
}

static bool is_ready(const struct doc *w)
{
	return str_eq(doc_text(doc_get(w, "state")), "READY");
}

int cmd_weights_prefetch(struct cli *c, struct err *err)
{
	AUTO_BUF struct buf body = BUF_INIT((size_t)1 << 20);
	const struct doc *reply, *w;
	const char *id;
	struct js js;

	catch_interrupt();
	js_init(&js, &body);
	js_open(&js);
	js_kv(&js, "source", c->arg[0]);
	if (opt_flag(c, "secret"))
		js_kv(&js, "auth_secret_name", opt_text(c, "secret", NULL));
	if (opt_flag(c, "endpoint"))
		js_kv(&js, "endpoint", opt_text(c, "endpoint", NULL));
	list_option(c, &js, "allow", "allow_patterns");
	list_option(c, &js, "ignore", "ignore_patterns");
	js_close(&js);
	if (remote_call(c, HTTP_POST, "/v1/weights", &body, &reply, err) < 0)
		return -1;
	w = doc_get(reply, "weights");
	if (doc_is(w, DOC_LIST))
		w = doc_first(w);
	if (is_ready(w))
		return prefetched(c, w);
	id = doc_cstr(doc_get(w, "id"), "");
	for (;;) {
		const struct doc *found = NULL;
		char done[UNITS_CAP], total[UNITS_CAP], rate[UNITS_CAP];

		if (remote_get(c, &reply, err, "/v1/weights") < 0)
			return -1;
		DOC_EACH (d, doc_get(reply, "weights")) {
			if (str_eq(doc_text(doc_get(d, "id")), id))
				found = d;
		}
		if (found == NULL || str_eq(doc_text(doc_get(found, "state")), "FAILED"))
			return err_set(err, ERR_UNAVAILABLE, "%s: %s", c->arg[0],
			               doc_cstr(doc_get(found, "error"),
			                        "it was removed in the meantime"));
		if (is_ready(found))
			return prefetched(c, found);
		out_progress(
			c, "%s of %s, %s",
			units_show_bytes((uint64_t)doc_int(doc_get(found, "bytes_done"), 0), done),
			units_show_bytes((uint64_t)doc_int(doc_get(found, "bytes"), 0), total),
			units_show_rate(doc_real(doc_get(found, "rate_bytes_per_second"), 0),
		                        rate));
		clock_sleep_ms(300);
	}
}

int cmd_weights_rm(struct cli *c, struct err *err)
{
	const struct doc *reply;
	char question[200], text[UNITS_CAP];

	(void)snprintf(question, sizeof(question),
	               "Delete mirror %.80s? The next job that needs it fetches it again.",
	               c->arg[0]);
	if (out_confirm(c, question, NULL, err) < 0)
		return -1;
	if (remote_call(c, HTTP_DELETE,
	                arena_printf(c->arena, "/v1/weights/%s", remote_part(c, c->arg[0])), NULL,
	                &reply, err) < 0)
		return err_wrap(err, "%s", c->arg[0]);
	out_message(c, "freed %s",
	            units_show_bytes((uint64_t)doc_int(doc_get(reply, "bytes_freed"), 0), text));
	return 0;
}
