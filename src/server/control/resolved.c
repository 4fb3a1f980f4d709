/* resolved.c - the frozen record as JSON:
 * {"weights":[],"load":[],"resume":{},"code":[],"image":{}}.
 */
#include "server/control/resolved.h"

static void write_load(const struct resolved_load *l, struct js *js)
{
	js_open(js);
	js_kv(js, "name", l->name);
	js_kv(js, "job_id", l->job_id);
	js_kv(js, "project_id", l->project_id);
	js_kv_bool(js, "latest", l->latest);
	js_key(js, "ranks");
	js_list(js);
	for (size_t k = 0; k < l->n_ranks; k++)
		js_u64(js, l->rank[k]);
	js_end(js);
	js_close(js);
}

void resolved_write(const struct resolved *f, struct buf *out)
{
	struct js js;

	js_init(&js, out);
	js_open(&js);
	js_key(&js, "weights");
	js_list(&js);
	for (size_t i = 0; i < f->n_weights; i++) {
		const struct resolved_weights *w = &f->weights[i];

		js_open(&js);
		js_kv(&js, "source", w->source);
		js_kv(&js, "revision", w->revision);
		js_kv(&js, "mount_location", w->mount_location);
		js_kv(&js, "manifest", w->manifest);
		js_kv_u64(&js, "bytes", w->bytes);
		js_kv_u64(&js, "files", w->files);
		js_close(&js);
	}
	js_end(&js);
	js_key(&js, "load");
	js_list(&js);
	for (size_t i = 0; i < f->n_load; i++)
		write_load(&f->load[i], &js);
	js_end(&js);
	if (f->resume != NULL) {
		js_key(&js, "resume");
		write_load(f->resume, &js);
	}
	js_key(&js, "code");
	js_list(&js);
	for (size_t i = 0; i < f->n_code; i++) {
		js_open(&js);
		js_kv(&js, "key", f->code[i].key);
		js_kv_u64(&js, "bytes", f->code[i].bytes);
		js_close(&js);
	}
	js_end(&js);
	if (f->image.id != NULL) {
		js_key(&js, "image");
		js_open(&js);
		js_kv(&js, "id", f->image.id);
		js_kv(&js, "reference", f->image.reference);
		js_close(&js);
	}
	js_close(&js);
}

static uint64_t u64_of(const struct doc *d, const char *key)
{
	int64_t n = doc_int(doc_get(d, key), 0);

	return n > 0 ? (uint64_t)n : 0;
}

static void read_load(struct arena *a, const struct doc *d, struct resolved_load *out)
{
	const struct doc *ranks = doc_get(d, "ranks");

	out->name = doc_cstr(doc_get(d, "name"), "");
	out->job_id = doc_cstr(doc_get(d, "job_id"), "");
	out->project_id = doc_cstr(doc_get(d, "project_id"), "");
	out->latest = doc_bool(doc_get(d, "latest"), false);
	out->rank = ARENA_ARRAY(a, uint32_t, (doc_is(ranks, DOC_LIST) ? ranks->count : 0) + 1);
	DOC_EACH (r, ranks)
		out->rank[out->n_ranks++] = (uint32_t)doc_int(r, 0);
}

int resolved_read(struct arena *a, const char *json, struct resolved *out, struct err *err)
{
	const struct doc *d = NULL, *weights, *load, *code;

	*out = (struct resolved){0};
	if (json == NULL)
		return 0;
	if (js_parse(a, str_of(json), &d, err) < 0)
		return err_wrap(err, "frozen record");
	weights = doc_get(d, "weights");
	load = doc_get(d, "load");
	code = doc_get(d, "code");
	out->weights = ARENA_ARRAY(a, struct resolved_weights, (weights ? weights->count : 0) + 1);
	out->load = ARENA_ARRAY(a, struct resolved_load, (load ? load->count : 0) + 1);
	out->code = ARENA_ARRAY(a, struct resolved_code, (code ? code->count : 0) + 1);
	DOC_EACH (w, weights) {
		out->weights[out->n_weights++] = (struct resolved_weights){
			.source = doc_cstr(doc_get(w, "source"), ""),
			.revision = doc_cstr(doc_get(w, "revision"), NULL),
			.mount_location = doc_cstr(doc_get(w, "mount_location"), ""),
			.manifest = doc_cstr(doc_get(w, "manifest"), NULL),
			.bytes = u64_of(w, "bytes"),
			.files = u64_of(w, "files"),
		};
	}
	DOC_EACH (l, load)
		read_load(a, l, &out->load[out->n_load++]);
	if (doc_is(doc_get(d, "resume"), DOC_MAP)) {
		out->resume = ARENA_NEW(a, struct resolved_load);
		read_load(a, doc_get(d, "resume"), out->resume);
	}
	DOC_EACH (c, code) {
		out->code[out->n_code++] = (struct resolved_code){
			.key = doc_cstr(doc_get(c, "key"), ""),
			.bytes = u64_of(c, "bytes"),
		};
	}
	out->image.id = doc_cstr(doc_path(d, "image", "id", NULL), NULL);
	out->image.reference = doc_cstr(doc_path(d, "image", "reference", NULL), NULL);
	return 0;
}

void resolved_manifests(struct arena *a, const struct resolved *f, const char ***out, size_t *n)
{
	*out = ARENA_ARRAY(a, const char *, f->n_weights + 1);
	*n = 0;
	for (size_t i = 0; i < f->n_weights; i++) {
		if (f->weights[i].manifest != NULL)
			(*out)[(*n)++] = f->weights[i].manifest;
	}
}

const struct resolved_weights *resolved_find(const struct resolved *f, const struct spec_weights *w)
{
	for (size_t i = 0; i < f->n_weights; i++) {
		if (strcmp(f->weights[i].source, w->source) == 0 &&
		    strcmp(f->weights[i].mount_location, w->mount_location) == 0)
			return &f->weights[i];
	}
	return NULL;
}
