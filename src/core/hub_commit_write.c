/* hub_commit_write.c - see hub_commit_write.h. */
#include "core/hub_commit_write.h"

#include "base/hash.h"
#include "base/json.h"

#define GROUP 3 /* bytes that base64 makes four characters of */

void hub_commit_write_header(struct hub_commit_writer *w, const char *summary,
                             const char *description, bool add_only)
{
	struct js js;

	js_init(&js, w->out);
	js_open(&js);
	js_kv(&js, "key", "header");
	js_key(&js, "value");
	js_open(&js);
	js_kv(&js, "summary", summary);
	js_kv(&js, "description", description);
	if (add_only)
		js_kv_bool(&js, "addOnly", true);
	js_close(&js);
	js_close(&js);
	buf_putc(w->out, '\n');
}

void hub_commit_write_file(struct hub_commit_writer *w, const char *path)
{
	struct js js;

	assert(w->n_rest == 0);
	buf_puts(w->out, "{\"key\":\"file\",\"value\":{\"encoding\":\"base64\",\"path\":");
	js_init(&js, w->out);
	js_cstr(&js, path);
	buf_puts(w->out, ",\"content\":\"");
}

void hub_commit_write_content(struct hub_commit_writer *w, const void *p, size_t n)
{
	const unsigned char *from = p;
	size_t whole;

	while (n > 0 && w->n_rest > 0 && w->n_rest < GROUP) {
		w->rest[w->n_rest++] = *from++;
		n--;
	}
	if (w->n_rest == GROUP) {
		base64_encode(w->rest, GROUP, false, w->out);
		w->n_rest = 0;
	}
	whole = n - n % GROUP;
	if (whole > 0)
		base64_encode(from, whole, false, w->out);
	for (size_t i = whole; i < n; i++)
		w->rest[w->n_rest++] = from[i];
}

void hub_commit_write_end(struct hub_commit_writer *w)
{
	if (w->n_rest > 0)
		base64_encode(w->rest, w->n_rest, false, w->out);
	w->n_rest = 0;
	buf_puts(w->out, "\"}}\n");
}

void hub_commit_write_deleted(struct hub_commit_writer *w, const char *path, bool folder)
{
	struct js js;

	assert(w->n_rest == 0);
	js_init(&js, w->out);
	js_open(&js);
	js_kv(&js, "key", folder ? "deletedFolder" : "deletedFile");
	js_key(&js, "value");
	js_open(&js);
	js_key(&js, "path");
	js_fmt(&js, "%s%s", path, folder ? "/" : "");
	js_close(&js);
	js_close(&js);
	buf_putc(w->out, '\n');
}
