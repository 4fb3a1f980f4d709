/* openapi.c - the OpenAPI document, printed from the tables of routes. */
#include "face/openapi.h"

#include "base/map.h"
#include "face/face.h"
#include "face/schema.h"

#define NOTATION_MAX 10000 /* of one component, which must fit: an unclosed one is an assertion */

struct printer {
	unsigned magic;
#define PRINTER_MAGIC 0x46505249U
	struct js js;
	const struct face *const *faces;
	size_t n;
	struct map *done; /* patterns that were printed */
	const char *pattern;
};

static const struct route_doc *doc_of(const struct route *r)
{
	for (size_t i = 0; i < n_route_docs; i++)
		if (route_docs[i].method == r->method &&
		    strcmp(route_docs[i].pattern, r->pattern) == 0)
			return &route_docs[i];
	return NULL;
}

/* "/v1/x/{name...}" is written as "/v1/x/{name}": OpenAPI has no word for what follows. */
static void path_key(struct js *js, const char *pattern)
{
	AUTO_BUF struct buf b = BUF_INIT(1000);
	const char *dots = strstr(pattern, "...}");

	if (dots != NULL)
		buf_printf(&b, "%.*s}", (int)(dots - pattern), pattern);
	else
		buf_puts(&b, pattern);
	js_key_str(js, buf_view(&b));
}

static void captures(struct js *js, const char *pattern)
{
	for (const char *at = strchr(pattern, '{'); at != NULL; at = strchr(at + 1, '{')) {
		size_t n = strcspn(at + 1, ".}");

		js_open(js);
		js_kv_str(js, "name", str_n(at + 1, n));
		js_kv(js, "in", "path");
		js_kv_bool(js, "required", true);
		js_key(js, "schema");
		js_open(js);
		js_kv(js, "type", "string");
		js_kv_int(js, "minLength", 1);
		js_close(js);
		js_close(js);
	}
}

static void content(struct js *js, const char *type, const char *members)
{
	js_key(js, "content");
	js_open(js);
	js_key(js, type);
	js_open(js);
	js_key(js, "schema");
	if (members != NULL) {
		schema_object(js, members);
	} else {
		js_open(js);
		js_kv(js, "type", strcmp(type, "application/json") == 0 ? "object" : "string");
		js_close(js);
	}
	js_close(js);
	js_close(js);
}

static void responses(struct js *js, const struct route_doc *d)
{
	const char *type = d != NULL && d->type != NULL ? d->type : "application/json";

	js_key(js, "responses");
	js_open(js);
	js_key(js, "200");
	js_open(js);
	js_kv(js, "description", "Done");
	content(js, type, d != NULL ? d->reply : NULL);
	js_close(js);
	js_key(js, "default");
	js_open(js);
	js_kv(js, "description", "Refused or failed: the message says why and what to do");
	js_key(js, "content");
	js_open(js);
	js_key(js, "application/json");
	js_open(js);
	js_key(js, "schema");
	js_open(js);
	js_kv(js, "$ref", "#/components/schemas/Error");
	js_close(js);
	js_close(js);
	js_close(js);
	js_close(js);
	js_close(js);
}

static void method_key(struct js *js, enum http_method m)
{
	char lower[16];

	copy_cut(lower, sizeof(lower), http_method_name[m]);
	for (char *c = lower; *c != '\0'; c++)
		*c |= 0x20;
	js_key(js, lower);
}

/* A name that generators make functions of: the method and the words of the path. */
static void operation_id(struct js *js, const struct route *r)
{
	AUTO_BUF struct buf b = BUF_INIT(1000);

	buf_puts(&b, http_method_name[r->method]);
	for (char *c = b.p; *c != '\0'; c++)
		*c |= 0x20;
	for (const char *c = r->pattern; *c != '\0'; c++) {
		bool plain = (*c >= 'a' && *c <= 'z') || (*c >= '0' && *c <= '9') || *c == '_';

		if (plain)
			buf_putc(&b, *c);
		else if (b.p[b.n - 1] != '_')
			buf_putc(&b, '_');
	}
	while (b.n > 0 && b.p[b.n - 1] == '_')
		b.n--;
	js_kv_str(js, "operationId", buf_view(&b));
}

static void operation(struct printer *p, const struct face *f, const struct route *r)
{
	const struct route_doc *d = doc_of(r);
	struct js *js = &p->js;

	method_key(js, r->method);
	js_open(js);
	operation_id(js, r);
	js_kv(js, "summary", r->help);
	js_key(js, "tags");
	js_list(js);
	js_cstr(js, f->name);
	js_end(js);
	if (r->scope == SCOPE_OPEN) {
		js_key(js, "security");
		js_list(js);
		js_end(js);
	}
	js_key(js, "parameters");
	js_list(js);
	captures(js, r->pattern);
	if (d != NULL && d->query != NULL)
		schema_query(js, d->query);
	js_end(js);
	if (d != NULL && d->body != NULL) {
		js_key(js, "requestBody");
		js_open(js);
		js_kv_bool(js, "required", !d->body_optional);
		content(js, "application/json", d->body);
		js_close(js);
	}
	responses(js, d);
	js_close(js);
}

static void same_path(const struct face *f, const struct route *r, void *arg)
{
	struct printer *p = FROM_VOID(struct printer, arg, PRINTER_MAGIC);

	if (strcmp(r->pattern, p->pattern) == 0)
		operation(p, f, r);
}

static void new_path(const struct face *f, const struct route *r, void *arg)
{
	struct printer *p = FROM_VOID(struct printer, arg, PRINTER_MAGIC);

	(void)f;
	if (map_set(p->done, str_of(r->pattern), p) != NULL)
		return;
	p->pattern = r->pattern;
	path_key(&p->js, r->pattern);
	js_open(&p->js);
	httpd_each_route(p->faces, p->n, same_path, p);
	js_close(&p->js);
}

static void components(struct js *js)
{
	js_key(js, "components");
	js_open(js);
	js_key(js, "securitySchemes");
	js_open(js);
	js_key(js, "bearer");
	js_raw(js, STR_LIT("{\"type\":\"http\",\"scheme\":\"bearer\"}"));
	js_close(js);
	js_key(js, "schemas");
	js_open(js);
	for (const struct schema_doc *d = schema_docs; d < schema_docs + n_schema_docs; d++) {
		AUTO_BUF struct buf text = BUF_INIT(NOTATION_MAX);

		if (d->record != NULL)
			schema_of_record(d->record, true, &text);
		if (d->more != NULL)
			schema_of_record(d->more, false, &text);
		js_key(js, d->record != NULL ? d->record->what : d->name);
		schema_object(js, d->record != NULL ? buf_cstr(&text) : d->members);
	}
	js_close(js);
	js_close(js);
}

void face_openapi(const struct face *const *faces, size_t n, struct buf *out)
{
	AUTO_MAP struct map *done = map_new();
	struct printer p = {.magic = PRINTER_MAGIC, .faces = faces, .n = n, .done = done};
	struct js *js = &p.js;

	js_init(js, out);
	js->indent = true;
	js_open(js);
	js_kv(js, "openapi", "3.1.0");
	js_key(js, "info");
	js_open(js);
	js_kv(js, "title", "Stoker");
	js_kv(js, "version", STOKER_VERSION);
	js_kv(js, "description",
	      "Training on machines of your own. A token goes into Authorization, as Bearer or as"
	      " Api-Key. No text has a U+0000, no integer more than 64 bits.");
	js_close(js);
	js_key(js, "security");
	js_raw(js, STR_LIT("[{\"bearer\":[]}]"));
	js_key(js, "paths");
	js_open(js);
	httpd_each_route(faces, n, new_path, &p);
	js_close(js);
	components(js);
	js_close(js);
}
