/*
 * json.h - JSON text to a doc tree, and a streaming writer into a buf. The only user of jansson.
 */
#ifndef JSON_H
#define JSON_H

#include "base/doc.h"

#define JS_TEXT_MAX ((size_t)64 << 20) /* no document of ours is larger */
#define JS_DEPTH_MAX 64

/* Parses one document. Refuses duplicate keys, bad UTF-8, trailing text and deep nesting:
 * ERR_INVALID with line and column. The tree lives in `a`. */
int js_parse(struct arena *a, struct str text, const struct doc **out, struct err *err) MUST_CHECK;

/* Writer: keeps track of commas and nesting; asserts balanced calls. Bytes that are not valid UTF-8
 * come out as UTF8_MARK. Check the buf once at the end. */
struct js {
	struct buf *out;
	unsigned depth;
	bool comma, indent;
	bool shown; /* what people cannot see (base/shown.h) is escaped too: the same text */
	char stack[JS_DEPTH_MAX];
};

void js_init(struct js *js, struct buf *out);
void js_open(struct js *js);  /* { */
void js_close(struct js *js); /* } */
void js_list(struct js *js);  /* [ */
void js_end(struct js *js);   /* ] */
void js_key(struct js *js, const char *key);
void js_key_str(struct js *js, struct str key);
void js_text(struct js *js, struct str s);
void js_cstr(struct js *js, const char *s); /* NULL writes null */
void js_int(struct js *js, int64_t n);
void js_u64(struct js *js, uint64_t n);
void js_real(struct js *js, double n);
void js_bool(struct js *js, bool b);
void js_null(struct js *js);
void js_raw(struct js *js, struct str json); /* already JSON */
void js_doc(struct js *js, const struct doc *d);
void js_fmt(struct js *js, const char *fmt, ...) PRINTF(2, 3); /* printed, then as text */

/* key + value in one */
void js_kv(struct js *js, const char *key, const char *s); /* NULL writes null */
void js_kv_str(struct js *js, const char *key, struct str s);
void js_kv_int(struct js *js, const char *key, int64_t n);
void js_kv_u64(struct js *js, const char *key, uint64_t n);
void js_kv_real(struct js *js, const char *key, double n);
void js_kv_bool(struct js *js, const char *key, bool b);
void js_kv_null(struct js *js, const char *key);
/* {"id", "message"}: how every protocol of ours shows an error. */
void js_kv_err(struct js *js, const char *key, const struct err *err);

#endif
