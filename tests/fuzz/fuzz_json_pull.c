/* fuzz_json_pull.c - first line: how to cut; then a document. What the tokenizer takes is what the
 * parser takes, and means the same, however it was cut. */
#include "base/json.h"
#include "base/json_pull.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n);

struct out {
	struct js js;
	struct buf text;    /* of a key, text or number */
	enum js_token what; /* it is; JS_MORE: none is being read */
};

static void text_ends(struct out *o)
{
	if (o->what == JS_KEY)
		js_key_str(&o->js, buf_view(&o->text));
	else if (o->what == JS_TEXT)
		js_text(&o->js, buf_view(&o->text));
	else
		js_raw(&o->js, buf_view(&o->text));
	o->what = JS_MORE;
}

/* Writes the document anew. */
static void write_token(struct out *o, const struct js_event *e)
{
	switch (e->token) {
	case JS_MAP:
		js_open(&o->js);
		break;
	case JS_MAP_END:
		js_close(&o->js);
		break;
	case JS_LIST:
		js_list(&o->js);
		break;
	case JS_LIST_END:
		js_end(&o->js);
		break;
	case JS_KEY:
	case JS_TEXT:
	case JS_NUMBER:
		o->what = e->token;
		buf_clear(&o->text);
		break;
	case JS_PIECE:
		buf_str(&o->text, e->piece);
		break;
	case JS_END:
		text_ends(o);
		break;
	case JS_TRUE:
	case JS_FALSE:
		js_bool(&o->js, e->token == JS_TRUE);
		break;
	case JS_NULL:
		js_null(&o->js);
		break;
	case JS_MORE:
	case JS_TOKEN_COUNT:
		abort();
	}
}

static int pull(struct str split, struct str text, struct buf *out, struct err *err)
{
	struct out o = {.text = BUF_INIT((size_t)64 << 20)};
	struct js_pull j;
	int rc = 0;

	js_pull_init(&j);
	js_init(&o.js, out);
	for (size_t i = 0; rc == 0 && text.n > 0; i++) {
		size_t step = split.n > 0 ? (uint8_t)split.p[i % split.n] % 16U : text.n;
		struct str in = str_n(text.p, MIN(step + (i % 64 == 63), text.n));
		struct js_event e = {.token = JS_NULL};

		text = str_skip(text, in.n);
		while ((rc = js_pull_next(&j, &in, &e, err)) == 0 && e.token != JS_MORE)
			write_token(&o, &e);
	}
	if (rc == 0 && !js_pull_is_done(&j))
		rc = err_set(err, ERR_INVALID, "cut");
	if (rc == 0 && o.what == JS_NUMBER)
		text_ends(&o); /* only the end of the document ended it */
	buf_done(&o.text);
	return rc;
}

/* The parser does not take what is said twice, or does not fit its numbers. */
static bool stricter(const struct err *err)
{
	return strstr(err->msg, "duplicate object key") != NULL ||
	       strstr(err->msg, "too big") != NULL || strstr(err->msg, "overflow") != NULL;
}

static void same(struct arena *a, const struct doc *d, struct str again)
{
	AUTO_BUF struct buf one = BUF_INIT((size_t)64 << 20), two = BUF_INIT((size_t)64 << 20);
	const struct doc *e = NULL;
	struct err err = {0};
	struct js js;

	if (js_parse(a, again, &e, &err) < 0)
		abort();
	js_init(&js, &one);
	js_doc(&js, d);
	js_init(&js, &two);
	js_doc(&js, e);
	assert(str_same(buf_view(&one), buf_view(&two)));
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
	AUTO_ARENA struct arena *a = arena_new();
	AUTO_BUF struct buf whole = BUF_INIT((size_t)64 << 20);
	AUTO_BUF struct buf parts = BUF_INIT((size_t)64 << 20);
	struct str text = str_n((const char *)data, n), split;
	struct err one = {0}, two = {0}, parsed = {0};
	const struct doc *d = NULL;
	int rc;

	if (!str_cut(&text, '\n', &split))
		return 0;
	rc = pull(str_n(NULL, 0), text, &whole, &one);
	assert(pull(split, text, &parts, &two) == rc && strcmp(one.msg, two.msg) == 0);
	assert(str_same(buf_view(&whole), buf_view(&parts)));
	if (js_parse(a, text, &d, &parsed) < 0) {
		assert(rc < 0 || stricter(&parsed));
	} else {
		assert(rc == 0 || one.code == ERR_TOO_BIG);
		if (rc == 0)
			same(a, d, buf_view(&whole));
	}
	return 0;
}
