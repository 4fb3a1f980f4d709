/* ckpt_union_files.c - what the parts of a checkpoint consist of; see ckpt_union_work.h. */
#include "server/data/ckpt_union_work.h"
#include "server/control/specs.h"

#define WINDOW ((size_t)4 << 20) /* of an object that is read for its structure */
/* Bounds of one checkpoint, because the job chooses the names: the server reads at most so many
 * lists, of so many bytes in all. Any further list is a plain file, and proves nothing. */
#define LISTS_MAX 64
#define LISTS_BYTES_MAX ((uint64_t)512 << 20)

/* An object as format_check() reads it: in small pieces, of a window that is fetched at once. */
struct window {
	unsigned magic;
#define WINDOW_MAGIC 0x5657494eU
	struct app *app;
	const char *key;
	uint64_t size, at;
	struct buf *bytes;
};

static int take_bytes(void *arg, const void *p, size_t n, struct err *err)
{
	struct buf *b = arg;

	buf_add(b, p, n);
	return buf_check(b, "object", err);
}

static int read_window(void *arg, uint64_t at, void *p, size_t n, struct err *err)
{
	struct window *v = FROM_VOID(struct window, arg, WINDOW_MAGIC);

	if (at < v->at || at + n > v->at + v->bytes->n) {
		buf_clear(v->bytes);
		v->at = at;
		if (objstore_read(v->app->objects, v->key, at, MIN((uint64_t)WINDOW, v->size - at),
		                  take_bytes, v->bytes, NULL, err) < 0)
			return -1;
		if (v->bytes->n < n)
			return err_set(err, ERR_CORRUPT, "%s is shorter than its manifest says",
			               v->key);
	}
	memcpy(p, v->bytes->p + (at - v->at), n);
	return 0;
}

static bool may_read(struct union_work *w, uint64_t size)
{
	if (w->n_lists >= LISTS_MAX || size > LISTS_BYTES_MAX - w->list_bytes)
		return false;
	w->n_lists++;
	w->list_bytes += size;
	return true;
}

static int read_list(struct union_work *w, const struct ckpt *c, size_t i,
                     struct format_result *out, struct err *err)
{
	AUTO_BUF struct buf bytes = BUF_INIT(WINDOW);
	struct window v = {.magic = WINDOW_MAGIC,
	                   .app = w->app,
	                   .key = ckpt_file_key(w->a, w->prefix, c, i),
	                   .size = c->files.file[i].size,
	                   .bytes = &bytes};
	struct format_source src = {.name = ckpt_inner(w->name, c->files.file[i].path),
	                            .size = v.size,
	                            .read = read_window,
	                            .arg = &v};

	return format_check(&src, out, err);
}

/* The node's runner has checked its files; it has also compared its own lists with them. */
static int fill_check(struct union_work *w, const struct ckpt *c, size_t i,
                      struct format_result *out, struct err *err)
{
	const struct ckpt_file *about = &c->about[i];
	bool told = c->files.n <= CKPT_DETAILS_MAX;

	if (format_is_list(str_of(c->files.file[i].path)) && may_read(w, c->files.file[i].size)) {
		if (read_list(w, c, i, out, err) == 0)
			return 0;
		if (err->code != ERR_NOT_FOUND && err->code != ERR_CORRUPT)
			return -1;
		err_clear(err);
		*out = (struct format_result){.verdict = FORMAT_TORN, .format = ""};
		FMT(out->reason, "is not in the store as its manifest says");
		return 0;
	}
	*out = (struct format_result){
		.verdict = about->whole || (!told && c->state == CKPT_COMPLETE) ? FORMAT_WHOLE
	                                                                        : FORMAT_UNKNOWN,
		.format = about->format != NULL ? about->format : "",
		.tensors = UINT64_MAX,
	};
	return 0;
}

/* One file that is whole says nothing of others in its folder. */
static bool is_proven(const struct union_work *w, const struct set_query *q)
{
	return w->set.state == SET_PROVEN &&
	       (!w->set.layout->one_file || strcmp(q->name, q->file[0].path) == 0);
}

static void take_problems(struct union_work *w, const struct set_query *q)
{
	const struct set_result *r = &w->set;

	for (size_t i = 0; i < MIN(r->n_problems, (size_t)SET_SHOWN_MAX); i++) {
		const struct set_problem *p = &r->problem[i];

		if (p->fault != SET_FAULT_MISSING && w->u.torn == NULL) {
			w->u.torn = p->path;
			w->u.torn_why = p->why;
		} else if (p->fault == SET_FAULT_MISSING && w->u.missing == NULL) {
			w->u.missing = p->path;
		}
	}
	w->u.n_missing = w->u.missing != NULL ? r->n_problems : 0;
	w->u.proven = is_proven(w, q);
	w->u.proof = r->proof[0] != '\0' ? r->proof : NULL;
	w->u.last_name = r->last;
	w->u.last_there = r->last_there;
}

/* The file that comes last, where the job names it. */
static void take_marker(struct union_work *w, const struct set_file *file, size_t n)
{
	struct specs_hold hold AUTO_SPEC = {0};
	struct err err = {0};

	if (specs_get(w->app, w->job->id, &hold, &err) < 0 || hold.spec->ckpt.marker == NULL)
		return;
	w->u.last_name = arena_cstr(w->a, hold.spec->ckpt.marker);
	w->u.last_there = false;
	for (size_t i = 0; i < n && !w->u.last_there; i++)
		w->u.last_there = ckpt_is_marker(file[i].path, w->u.last_name);
}

/* A model's settings without anything that could be its weights, on any node. */
static bool lacks_weights(const struct set_file *file, size_t n)
{
	bool config = false;

	for (size_t i = 0; i < n; i++) {
		if (format_name(str_of(file[i].path)) == FORMAT_NAME_PLAIN &&
		    !format_is_settings(file[i].check->format))
			return false;
		config = config || format_is_config(str_of(file[i].path));
	}
	return config;
}

static int check_files(struct union_work *w, struct set_file *file, struct format_result *check,
                       struct err *err)
{
	struct set_query q = {.name = strcmp(w->name, ".") == 0 ? "" : ckpt_base_name(w->name),
	                      .file = file};

	for (size_t k = 0; k < w->u.n_parts; k++) {
		const struct ckpt *c = &w->node[k].list;

		if (!w->node[k].read)
			continue;
		q.world = MAX(q.world, c->world);
		for (size_t i = 0; i < c->files.n; i++) {
			if (fill_check(w, c, i, &check[q.n], err) < 0)
				return -1;
			file[q.n] = (struct set_file){
				.path = ckpt_inner(w->name, c->files.file[i].path),
				.size = c->files.file[i].size,
				.check = &check[q.n],
				.sha256 = &c->files.file[i].sha256,
				.node = (uint32_t)k};
			q.n++;
		}
	}
	set_check(w->a, &q, &w->set);
	take_problems(w, &q);
	if (w->u.missing == NULL && lacks_weights(file, q.n)) {
		w->u.missing = "model.safetensors";
		w->u.n_missing = 1;
	}
	take_marker(w, file, q.n);
	return 0;
}

int union_look_at_files(struct union_work *w, struct err *err)
{
	struct format_result *check;
	struct set_file *file;
	size_t n = 0;
	int r;

	for (size_t k = 0; k < w->u.n_parts; k++)
		n += w->node[k].list.files.n;
	check = ARENA_ARRAY(w->a, struct format_result, n + 1);
	file = ARENA_ARRAY(w->a, struct set_file, n + 1);
	r = check_files(w, file, check, err);
	for (size_t i = 0; i < n; i++)
		format_result_done(&check[i]);
	return r;
}

/* When a part was saved, by the store's clock, which is one for all nodes: by how long before its
 * manifest was stored. One that is gone meanwhile counts as without times. */
static int read_times(struct union_work *w, size_t k, const char *key, struct err *err)
{
	const struct ckpt_times *t = &w->node[k].list.saved;
	struct ckpt_part *p = &w->part[k];
	struct objstore_info info = {0};
	int64_t shift_ms;

	if (t->ended_ms == 0 || t->written_ms == 0)
		return 0;
	if (objstore_stat(w->app->objects, key, &info, err) < 0) {
		if (err->code != ERR_NOT_FOUND)
			return -1;
		err_clear(err);
	}
	if (info.modified_ms == 0)
		return 0;
	shift_ms = info.modified_ms - t->written_ms;
	p->began_ms = t->began_ms + shift_ms;
	p->ended_ms = t->ended_ms + shift_ms;
	p->before_ms = t->before_ms != 0 ? t->before_ms + shift_ms : 0;
	return 0;
}

/* Reads the manifest of each part. A node whose manifest cannot be read must store it again. */
int union_read_parts(struct union_work *w, struct err *err)
{
	w->u.n_files = 0;
	for (size_t k = 0; k < w->u.n_parts; k++) {
		AUTO_BUF struct buf body = BUF_INIT(APP_JSON_MAX);
		struct union_node *n = &w->node[k];
		struct ckpt_part *p = &w->part[k];
		const char *key = ckpt_manifest_key(w->a, w->prefix, (uint32_t)k, w->name);

		if (n->row == NULL)
			continue;
		n->read = objstore_get(w->app->objects, key, &body, err) == 0;
		n->bytes = arena_str(w->a, buf_view(&body));
		n->read = n->read && ckpt_parse(&n->list, w->a, n->bytes, err) == 0;
		if (!n->read && err->code != ERR_NOT_FOUND && err->code != ERR_INVALID &&
		    err->code != ERR_UNSUPPORTED && err->code != ERR_TOO_BIG)
			return -1;
		err_clear(err);
		if (!n->read) {
			n->list = (struct ckpt){0};
			p->state = CKPT_SYNCING;
			p->reason = "syncing: its list of files is not in the store";
			continue;
		}
		p->doubt = n->list.doubt;
		w->u.n_files += n->list.files.n;
		if (read_times(w, k, key, err) < 0)
			return -1;
	}
	return 0;
}
