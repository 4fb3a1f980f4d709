/*
 * ship_publish.c - manifests, revisions, reports.
 *
 * A manifest is written last and names only what was hashed while it was sent. A complete one is
 * never taken back: what changes afterwards is sent to a folder of its own (ckpt_revision_path) and
 * makes a new manifest when it is complete itself. From then on it counts; its files move to their
 * plain paths, where people look for them with tools of S3, and a last manifest says so. So a plain
 * path holds the newest complete revision, and no object changes that a complete manifest names.
 */
#include "base/clock.h"
#include "base/map.h"
#include "run/ship_table.h"

static const char *rank_key(struct ship *s, struct arena *a, const char *at)
{
	return ckpt_object_key(a, s->o.prefix, s->o.rank, at);
}

static const char *manifest_key(struct ship *s, struct arena *a, const struct ship_group *g)
{
	return ckpt_manifest_key(a, s->o.prefix, s->o.rank, g->name);
}

static bool again(struct ship *s, struct ship_group *g, const struct err *err)
{
	ship_trouble(s, g->name, err);
	lock_take(&s->lock);
	g->retry_ms = clock_mono_ms() + SHIP_RETRY_MS;
	g->news = true;
	return false;
}

/* ---- the manifest that is there ----------------------------------------------------------------
 */

static void take_base(struct ship *s, struct ship_group *g, struct arena *a, const struct ckpt *c)
{
	struct ship_entry *e = NULL;

	arena_free(g->base.a);
	g->base = (struct ship_base){.known = true, .there = true, .a = a, .c = *c};
	g->stage = MAX(g->stage, c->revision);
	g->stale = true;
	TAILQ_FOREACH(e, &g->entries, peer)
	{
		const struct manifest_file *f = manifest_find(&c->files, str_of(e->path));

		/* moved to its path by who wrote this manifest */
		if (f != NULL && e->stored && e->revision > 0 &&
		    digest_same(&f->sha256, &e->sha256) && c->about[f - c->files.file].at == NULL)
			e->revision = 0;
	}
	if (c->state == CKPT_COMPLETE)
		ship_sibling_set(s, g, c);
	for (size_t i = 0; i < c->files.n; i++)
		g->moving = g->moving || (c->state == CKPT_COMPLETE && c->about[i].at != NULL);
}

/* Loads the manifest of an earlier attempt or shipper; one that cannot be read is replaced. */
bool ship_load_base(struct ship *s, struct ship_group *g)
{
	AUTO_BUF struct buf body = BUF_INIT(OBJSTORE_BODY_MAX);
	struct arena *a = arena_new();
	const char *key = manifest_key(s, a, g);
	struct ckpt c = {0};
	struct err err = {0};
	bool there;

	lock_give(&s->lock);
	there = objstore_get(s->o.objects, key, &body, &err) == 0 &&
	        ckpt_parse(&c, a, arena_str(a, buf_view(&body)), &err) == 0;
	if (!there && err.code != ERR_NOT_FOUND && err.code != ERR_INVALID &&
	    err.code != ERR_UNSUPPORTED && err.code != ERR_TOO_BIG) {
		arena_free(a);
		return again(s, g, &err);
	}
	lock_take(&s->lock);
	if (there) {
		take_base(s, g, a, &c);
	} else {
		g->base.known = true;
		arena_free(a);
	}
	return true;
}

/* An incomplete one whose files change: nobody may pull by it any more. */
bool ship_withdraw(struct ship *s, struct ship_group *g)
{
	AUTO_ARENA struct arena *a = arena_new();
	const char *key = manifest_key(s, a, g);
	struct err err = {0};

	lock_give(&s->lock);
	if (objstore_del(s->o.objects, key, &err) < 0)
		return again(s, g, &err);
	lock_take(&s->lock);
	g->base.there = false;
	return true;
}

/* ---- a new one ---------------------------------------------------------------------------------
 */

static bool belongs(const struct ship *s, const struct ship_group *g, const struct ship_entry *e)
{
	bool complete = g->verdict.state == CKPT_COMPLETE;

	if (!e->stored || (e->state != SHIP_SENT && !e->quarantine && e->kind != FORMAT_NAME_LOG))
		return false;
	/* Temporary ones are kept of what never got whole. */
	return e->kind != FORMAT_NAME_TEMPORARY || (s->walked_final && !complete);
}

static void describe(struct arena *a, const struct ship_group *g, const struct ship_entry *e,
                     struct ckpt_file *out)
{
	*out = (struct ckpt_file){0};
	if (e->check != NULL && ship_same(&e->checked, &e->sent)) {
		const struct format_result *r = &e->check->r;

		out->format = r->format[0] != '\0' ? r->format : NULL;
		out->whole = r->verdict == FORMAT_WHOLE;
		out->checked_ms = e->check->ms;
		out->note = r->verdict != FORMAT_WHOLE && r->reason[0] != '\0'
		                    ? arena_cstr(a, r->reason)
		                    : NULL;
	}
	if (e->revision > 0)
		out->at = ckpt_revision_path(a, g->name, e->revision, e->path);
}

/* With several nodes, each says since which revision it has changed files and not only added some:
 * a callback may add files after all have saved, but a node that saves over its files has a part
 * that does not belong to the parts of the others. */
static uint32_t since_of(const struct ship_group *g, const struct ckpt *c)
{
	const struct ckpt *old = &g->base.c;

	if (!ship_is_complete(g))
		return c->revision;
	for (size_t i = 0; i < old->files.n; i++) {
		const struct manifest_file *was = &old->files.file[i];
		const struct manifest_file *is = manifest_find(&c->files, str_of(was->path));

		if (format_name(str_of(was->path)) == FORMAT_NAME_PLAIN &&
		    (is == NULL || !digest_same(&is->sha256, &was->sha256)))
			return c->revision;
	}
	return old->since != 0 ? old->since : old->revision;
}

/* ---- when it was saved -------------------------------------------------------------------------
 * The server must tell the saves of several nodes apart: ckpt_judge_union.
 */

/* Of the files that were written after a moment. */
struct span {
	int64_t began_ms, ended_ms;
	uint64_t bytes, all_bytes;
};

/* Anybody may set mtime back; a rename or a link of our own sets ctime, later. */
static int64_t content_ms(const struct ship_fact *f)
{
	return MIN(f->mtime_ns, f->ctime_ns) / 1000000;
}

static struct span span_since(const struct ship_group *g, int64_t after_ms)
{
	struct span x = {.began_ms = INT64_MAX};
	const struct ship_entry *e = NULL;

	TAILQ_FOREACH(e, &g->entries, peer)
	{
		int64_t at = content_ms(&e->sent);

		if (!e->stored || (e->state != SHIP_SENT && !e->quarantine) ||
		    e->kind != FORMAT_NAME_PLAIN)
			continue;
		x.all_bytes += e->sent.size;
		if (at <= after_ms)
			continue;
		x.bytes += e->sent.size;
		x.ended_ms = MAX(x.ended_ms, at);
		x.began_ms = MIN(x.began_ms, e->began_ms > after_ms ? MIN(e->began_ms, at) : at);
	}
	return x;
}

/* Most of it: what is less is an afterthought of the save before, a callback's or an exporter's. */
static bool is_a_save(const struct span *x)
{
	return x->ended_ms > 0 && x->bytes >= x->all_bytes - x->bytes;
}

bool ship_is_saved_anew(const struct ship *s, const struct ship_group *g)
{
	struct span x;

	if (s->o.nodes <= 1 || !ship_is_complete(g) || g->base.c.saved.ended_ms == 0)
		return false;
	x = span_since(g, g->base.c.saved.ended_ms);
	return is_a_save(&x);
}

static struct ckpt_times times_of(const struct ship *s, const struct ship_group *g,
                                  const struct ckpt *c)
{
	const struct ckpt *old = &g->base.c;
	bool over = ship_is_complete(g);
	int64_t before_ms = old->saved.ended_ms; /* withdrawn since, if it was incomplete */
	struct ckpt_times t = over ? old->saved : (struct ckpt_times){0};
	struct span x = span_since(g, before_ms);
	bool added = over && c->since == (old->since != 0 ? old->since : old->revision);

	if (!over && !is_a_save(&x)) { /* the rest of an incomplete one */
		before_ms = 0;
		x = span_since(g, 0);
	}
	if (is_a_save(&x) && (!added || ship_is_saved_anew(s, g)))
		return (struct ckpt_times){
			.began_ms = x.began_ms, .ended_ms = x.ended_ms, .before_ms = before_ms};
	if (!added && x.ended_ms > 0 && t.ended_ms != 0)
		t.ended_ms = x.ended_ms;
	return t;
}

/* The entries as a manifest, copied under the lock; and their names in the spool beside them. */
static int collect(struct ship *s, struct ship_group *g, struct arena *a, struct ckpt *c,
                   uint64_t **ids, struct err *err)
{
	struct ship_entry *e = NULL;
	int64_t newest_ns = 0;

	*c = (struct ckpt){
		.name = arena_cstr(a, g->name),
		.job_id = s->o.job_id,
		.rank = s->o.rank,
		.state = g->verdict.state,
		.rule = g->verdict.row,
		.reason = arena_cstr(a, g->verdict.reason),
		.trainer = ship_trainer(g),
		.world = s->world,
		.doubt = g->verdict.state == CKPT_INCOMPLETE && g->verdict.doubt,
		.revision = MAX(g->stage, (uint32_t)ship_is_complete(g) + g->base.c.revision),
	};
	manifest_init(&c->files, a);
	TAILQ_FOREACH(e, &g->entries, peer)
	{
		if (!belongs(s, g, e))
			continue;
		if (manifest_add(&c->files, str_of(e->path), e->sent.size, &e->sha256, err) < 0)
			return -1;
		newest_ns = MAX(newest_ns, e->sent.mtime_ns);
	}
	if (manifest_finish(&c->files, err) < 0)
		return -1;
	c->revision = MAX(c->revision, 1);
	if (s->o.nodes > 1) {
		c->since = since_of(g, c);
		c->saved = times_of(s, g, c);
	}
	c->created_ms = c->files.n > 0 ? newest_ns / 1000000 : g->seen_ms;
	c->about = ARENA_ARRAY(a, struct ckpt_file, c->files.n + 1);
	*ids = ARENA_ARRAY(a, uint64_t, c->files.n + 1);
	for (size_t i = 0; i < c->files.n; i++) {
		e = map_get(s->entries, str_of(c->files.file[i].path));
		(*ids)[i] = e->id;
		describe(a, g, e, &c->about[i]);
	}
	return 0;
}

/* The small file that tells a model's base; from its spool link or its place. */
static const struct doc *read_config(struct ship *s, struct arena *a, const struct ckpt *c,
                                     const uint64_t *ids)
{
	static const char *const names[] = {"adapter_config.json", "config.json"};

	for (size_t i = 0; i < COUNT(names); i++) {
		char *path = strcmp(c->name, ".") == 0
		                     ? arena_cstr(a, names[i])
		                     : arena_printf(a, "%s/%s", c->name, names[i]);
		const struct manifest_file *f = manifest_find(&c->files, str_of(path));
		AUTO_BUF struct buf body = BUF_INIT(SHIP_CONFIG_MAX);
		const struct doc *d = NULL;
		struct err err = {0};
		AUTO_FD int fd = -1;
		char *room = NULL;

		if (f == NULL || f->size == 0 || f->size > SHIP_CONFIG_MAX - 1)
			continue;
		fd = ship_open(s, ids[f - c->files.file], path);
		room = buf_room(&body, (size_t)f->size);
		if (fd < 0 || room == NULL || fs_pread_all(fd, room, (size_t)f->size, 0, &err) < 0)
			continue;
		body.n = (size_t)f->size;
		if (js_parse(a, buf_view(&body), &d, &err) == 0)
			return d;
	}
	return NULL;
}

/* A last look before it counts: a file that was opened again since it was sent. */
static bool has_writer(struct ship *s, struct ship_group *g, const struct ckpt *c,
                       const uint64_t *ids)
{
	for (size_t i = 0; i < c->files.n && !s->final; i++) {
		const char *path = c->files.file[i].path;
		AUTO_FD int fd = -1;
		struct ship_entry *e = NULL;

		if (c->about[i].format == NULL && format_name(str_of(path)) == FORMAT_NAME_LOG)
			continue;
		fd = ship_open(s, ids[i], path);
		if (fd < 0 || ship_probe_fd(s, fd) != SHIP_WRITER)
			continue;
		lock_take(&s->lock);
		e = map_get(s->entries, str_of(path));
		if (e != NULL && e->state == SHIP_SENT) {
			e->writer = true;
			e->closed = false;
			e->writer_ms = g->changed_ms = clock_mono_ms();
			e->writer_size = e->fact.size;
			ship_entry_to(s, e, SHIP_WAIT); /* what it becomes is to be sent again */
		}
		lock_give(&s->lock);
		return true;
	}
	return false;
}

static bool same_manifest(const struct ckpt *a, const struct ckpt *b)
{
	if (a->state != b->state || a->files.n != b->files.n ||
	    a->saved.ended_ms != b->saved.ended_ms)
		return false;
	for (size_t i = 0; i < a->files.n; i++) {
		const char *x = a->about[i].at, *y = b->about[i].at;

		if (strcmp(a->files.file[i].path, b->files.file[i].path) != 0 ||
		    !digest_same(&a->files.file[i].sha256, &b->files.file[i].sha256) ||
		    (x == NULL) != (y == NULL) || (x != NULL && strcmp(x, y) != 0))
			return false;
	}
	return true;
}

/* Objects of the old revision that the new one does not name. */
static void drop_old(struct ship_group *g, const struct ckpt *new)
{
	const struct ckpt *old = &g->base.c;

	for (size_t i = 0; g->base.there && i < old->files.n; i++) {
		const char *path = old->files.file[i].path, *at = old->about[i].at;
		const struct manifest_file *f = manifest_find(&new->files, str_of(path));
		const char *now = f == NULL ? NULL : new->about[f - new->files.file].at;

		if (f == NULL)
			ship_litter(g, path);
		if (at != NULL && (now == NULL || strcmp(at, now) != 0))
			ship_litter(g, at);
	}
}

enum put_result { PUT_DONE, PUT_AGAIN, PUT_REFUSED };

static enum put_result put(struct ship *s, const char *key, struct ckpt *c, struct buf *body,
                           struct err *err)
{
	c->saved.written_ms = clock_wall_ms();
	ckpt_write(c, body);
	if (buf_check(body, "its list of files", err) == 0 &&
	    objstore_put(s->o.objects, key, buf_view(body), err) == 0)
		return PUT_DONE;
	return err->code == ERR_INVALID || err->code == ERR_TOO_BIG || err->code == ERR_CONFLICT
	               ? PUT_REFUSED
	               : PUT_AGAIN;
}

/* Never again by itself: said once. */
static bool refuse(struct ship *s, struct ship_group *g, const struct err *err)
{
	AUTO_BUF struct buf text = BUF_INIT(3000);

	buf_printf(&text, "cannot upload checkpoint %s: %s", g->name, err->msg);
	s->o.event(s->o.arg, "warning", buf_cstr(&text));
	lock_take(&s->lock);
	g->refused = g->written = g->reported = true;
	s->lost = true;
	return true;
}

static bool put_new(struct ship *s, struct ship_group *g, struct arena *a, struct ckpt *c,
                    const uint64_t *ids, uint64_t version)
{
	AUTO_BUF struct buf body = BUF_INIT(OBJSTORE_BODY_MAX);
	struct arena *own = arena_new();
	struct ckpt kept = {0};
	struct err err = {0};
	enum put_result r;

	if (c->state == CKPT_COMPLETE && has_writer(s, g, c, ids)) {
		arena_free(own);
		lock_take(&s->lock);
		g->news = true;
		return true;
	}
	ckpt_classify(c, a, read_config(s, a, c, ids));
	if (ship_is_logs(g))
		c->kind = CKPT_LOGS;
	r = put(s, manifest_key(s, a, g), c, &body, &err);
	if (r == PUT_DONE && ckpt_parse(&kept, own, arena_str(own, buf_view(&body)), &err) < 0)
		r = PUT_REFUSED; /* it would not be read by anybody */
	if (r != PUT_DONE) {
		arena_free(own);
		return r == PUT_AGAIN ? again(s, g, &err) : refuse(s, g, &err);
	}
	lock_take(&s->lock);
	drop_old(g, &kept);
	take_base(s, g, own, &kept);
	g->written = g->version == version;
	g->reported = false;
	ship_journal_group(s, g);
	return true;
}

bool ship_publish(struct ship *s, struct ship_group *g)
{
	AUTO_ARENA struct arena *a = arena_new();
	struct ckpt c = {0};
	uint64_t *ids = NULL, version = g->version;
	struct err err = {0};
	struct ship_entry *e = NULL;
	bool done;

	/* The old one stays: what was to replace it never got whole. */
	if (g->verdict.state == CKPT_INCOMPLETE && ship_is_complete(g)) {
		TAILQ_FOREACH(e, &g->entries, peer)
		if (e->stored && e->revision > 0 && s->walked_final)
			ship_litter(g, ckpt_revision_path(a, g->name, e->revision, e->path));
		g->written = true;
		g->reported = false;
		return true;
	}
	if (collect(s, g, a, &c, &ids, &err) < 0) {
		lock_give(&s->lock);
		return refuse(s, g, &err);
	}
	if (g->base.there && same_manifest(&c, &g->base.c)) {
		g->written = true;
		g->reported = false;
		return true;
	}
	lock_give(&s->lock);
	done = put_new(s, g, a, &c, ids, version);
	TAILQ_FOREACH(e, &g->entries, peer)
	{
		const struct manifest_file *f = ship_in_base(g, e->path);

		if (e->quarantine && f != NULL && digest_same(&f->sha256, &e->sha256))
			e->quarantine = false; /* it counts now; next is what is there */
	}
	return done;
}

/* ---- a revision's files move to their paths ----------------------------------------------------
 */

void ship_litter(struct ship_group *g, const char *at)
{
	buf_puts(&g->litter, at); /* beyond its limit they stay until the checkpoint is deleted */
	buf_putc(&g->litter, '\0');
}

/* Copies what waits; -1 with ERR_NOT_FOUND: a person has deleted it meanwhile. */
static int move_files(struct ship *s, struct arena *a, struct ckpt *c, struct err *err)
{
	for (size_t i = 0; i < c->files.n; i++) {
		if (c->about[i].at == NULL)
			continue;
		if (objstore_copy(s->o.objects, ckpt_file_key(a, s->o.prefix, c, i),
		                  rank_key(s, a, c->files.file[i].path), err) < 0)
			return -1;
		c->about[i].at = NULL;
	}
	return 0;
}

static bool move_all(struct ship *s, struct ship_group *g, struct arena *a)
{
	AUTO_BUF struct buf body = BUF_INIT(OBJSTORE_BODY_MAX);
	struct arena *own = arena_new();
	struct ckpt c = g->base.c, kept = {0};
	struct err err = {0};
	enum put_result r = PUT_AGAIN;

	c.about = ARENA_ARRAY(a, struct ckpt_file, c.files.n + 1);
	memcpy(c.about, g->base.c.about, c.files.n * sizeof(c.about[0]));
	lock_give(&s->lock);
	if (move_files(s, a, &c, &err) == 0)
		r = put(s, manifest_key(s, a, g), &c, &body, &err);
	else if (err.code == ERR_NOT_FOUND || err.code == ERR_INVALID || err.code == ERR_TOO_BIG ||
	         err.code == ERR_CONFLICT)
		r = PUT_REFUSED; /* deleted; or too large to copy: it stays where it is */
	if (r == PUT_DONE && ckpt_parse(&kept, own, arena_str(own, buf_view(&body)), &err) < 0)
		r = PUT_REFUSED;
	if (r == PUT_AGAIN) {
		arena_free(own);
		return again(s, g, &err);
	}
	lock_take(&s->lock);
	g->moving = false;
	if (r != PUT_DONE) {
		arena_free(own);
		return true;
	}
	drop_old(g, &kept);
	take_base(s, g, own, &kept);
	return true;
}

static bool is_named(const struct ship_group *g, struct str at)
{
	const struct ckpt *c = &g->base.c;

	if (!g->base.there)
		return false;
	for (size_t i = 0; i < c->files.n; i++) {
		const char *is = c->about[i].at != NULL ? c->about[i].at : c->files.file[i].path;

		if (str_eq(at, is))
			return true;
	}
	return false;
}

/* Deletes objects that no manifest names, unless they have been replaced since. */
static bool sweep_litter(struct ship *s, struct ship_group *g, struct arena *a)
{
	AUTO_BUF struct buf litter = BUF_INIT(SHIP_LITTER_MAX);
	struct str rest, at;
	struct err err = {0};

	buf_str(&litter, buf_view(&g->litter));
	buf_clear(&g->litter);
	rest = buf_view(&litter);
	while (str_cut(&rest, '\0', &at)) {
		const char *path = arena_strz(a, at);
		const struct ship_entry *e = map_get(s->entries, at);
		bool used = (e != NULL && !e->gone) || is_named(g, at);

		if (used)
			continue;
		lock_give(&s->lock);
		if (objstore_del(s->o.objects, rank_key(s, a, path), &err) < 0) {
			bool later = again(s, g, &err);

			ship_litter(g, path);
			return later;
		}
		lock_take(&s->lock);
	}
	return true;
}

bool ship_move(struct ship *s, struct ship_group *g)
{
	AUTO_ARENA struct arena *a = arena_new();

	if (g->moving && !move_all(s, g, a))
		return false;
	return g->litter.n == 0 || sweep_litter(s, g, a);
}

/* ---- reports -----------------------------------------------------------------------------------
 */

static void add_sums(const struct ship *s, const struct ship_group *g, struct model_checkpoint *row)
{
	const struct ship_entry *e = NULL;
	int64_t newest_ns = 0;

	TAILQ_FOREACH(e, &g->entries, peer)
	{
		if (!ship_counts(e) && !s->walked_final)
			continue;
		row->files++;
		row->bytes += e->fact.size;
		row->bytes_sent +=
			e->state == SHIP_SENT ? e->fact.size : MIN(e->progress, e->fact.size);
		newest_ns = MAX(newest_ns, e->fact.mtime_ns);
	}
	row->created_ms = row->files > 0 ? newest_ns / 1000000 : g->seen_ms;
}

/* A complete one stays so while it is saved over; what is still to come is said beside. */
static void fill_complete(struct ship_group *g, struct arena *a, struct model_checkpoint *row)
{
	const struct ckpt *c = &g->base.c;
	bool same = ship_is_as_base(g);

	row->state = c->state;
	row->rule = c->rule;
	row->reason = c->reason != NULL ? arena_cstr(a, c->reason) : NULL;
	row->trainer = c->trainer != NULL ? arena_cstr(a, c->trainer) : NULL;
	row->revision = c->revision;
	row->kind = ckpt_kind_word(c->kind);
	row->base_model = c->base_model != NULL ? arena_cstr(a, c->base_model) : NULL;
	row->lora_r = c->lora_r;
	row->created_ms = c->created_ms;
	row->files = c->files.n;
	row->bytes = row->bytes_sent = c->files.bytes;
	if (!same && g->judged)
		row->updating = arena_cstr(a, g->verdict.reason);
}

void ship_tell(struct ship *s, struct ship_group *g)
{
	AUTO_ARENA struct arena *a = arena_new();
	struct model_checkpoint row = {.job_id = s->o.job_id,
	                               .name = arena_cstr(a, g->name),
	                               .rank = s->o.rank,
	                               .state = CKPT_SYNCING,
	                               .kind = ckpt_kind_word(CKPT_OTHER)};

	if (g->base.there && (ship_is_complete(g) || g->written)) {
		fill_complete(g, a, &row);
		row.manifest_key = manifest_key(s, a, g);
	} else {
		add_sums(s, g, &row);
		row.rule = g->verdict.row;
		row.reason = arena_cstr(a, g->verdict.reason);
		row.trainer = ship_trainer(g);
	}
	g->reported = true;
	g->told_ms = clock_mono_ms();
	g->told_bytes = row.bytes_sent;
	FMT(g->told, "%s", g->verdict.reason);
	lock_give(&s->lock);
	s->o.checkpoint(s->o.arg, &row);
	lock_take(&s->lock);
}
