/* ship_group.c - checkpoints: what is ready to be sent, which are complete, manifests, reports. */
#include "base/clock.h"
#include "base/map.h"
#include "run/ship_table.h"

#define TELL_MS 1000

/* What the lock protects, summed up for one checkpoint. */
struct view {
	bool live;
	size_t n, n_sent, n_lost, n_temporary;
	uint64_t bytes, bytes_sent;
	int64_t newest_ns;
};

/* Temporary files belong to it at the end only, and not to one that was whole without them. */
static bool counts(const struct ship *s, const struct ship_group *g, const struct ship_entry *e)
{
	return !e->temporary || (s->walked_final && !g->manifest);
}

static struct view look(const struct ship *s, const struct ship_group *g)
{
	struct view v = {0};
	struct ship_entry *e = NULL;

	TAILQ_FOREACH(e, &g->entries, peer)
	{
		if (!counts(s, g, e))
			continue;
		v.live = v.live || !e->gone;
		v.n++;
		v.n_lost += e->state == SHIP_LOST;
		v.n_temporary += e->temporary;
		v.n_sent += e->state == SHIP_SENT;
		v.bytes += e->fact.size;
		v.bytes_sent +=
			e->state == SHIP_SENT ? e->fact.size : MIN(e->progress, e->fact.size);
		v.newest_ns = MAX(v.newest_ns, e->fact.mtime_ns);
	}
	return v;
}

/* What the trainer itself took out of a checkpoint that stays. */
static void drop_gone(struct ship *s, const struct ship_group *g)
{
	struct ship_entry *e = NULL, *next = NULL;

	for (e = TAILQ_FIRST(&g->entries); e != NULL; e = next) {
		next = TAILQ_NEXT(e, peer);
		if (e->gone && e->state != SHIP_SENDING)
			ship_entry_drop(s, e);
	}
}

static size_t queue_ready(struct ship *s, const struct ship_group *g, bool live)
{
	struct ship_entry *e = NULL;
	int64_t now = clock_mono_ms();
	size_t n = 0;

	TAILQ_FOREACH(e, &g->entries, peer)
	{
		if (e->state != SHIP_WAIT || !counts(s, g, e))
			continue;
		if (!s->walked_final && live && !ckpt_file_ready(&e->fact, now, s->o.settle_ms))
			continue;
		e->state = SHIP_QUEUED;
		TAILQ_INSERT_TAIL(&s->queued, e, queue);
		n++;
	}
	return n;
}

static enum ckpt_state verdict(const struct ship *s, const struct ship_group *g,
                               const struct view *v)
{
	if (v->n_lost > 0 || v->n_temporary == v->n)
		return CKPT_INCOMPLETE;
	if (!v->live) /* rotated away: was it whole when it went? */
		return g->gone_walk == 0 || g->gone_walk >= g->grown_walk + 2 ? CKPT_COMPLETE
		                                                              : CKPT_INCOMPLETE;
	if (!s->walked_final || s->ok)
		return CKPT_COMPLETE;
	if (v->n_temporary > 0)
		return CKPT_INCOMPLETE;
	return s->died_ms - g->changed_ms >= s->o.settle_ms ? CKPT_COMPLETE : CKPT_INCOMPLETE;
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

static void tell(struct ship *s, const struct ckpt *c, const struct view *v, const char *key)
{
	struct model_checkpoint row = {.job_id = s->o.job_id,
	                               .name = c->name,
	                               .rank = s->o.rank,
	                               .state = c->state,
	                               .kind = ckpt_kind_word(c->kind),
	                               .base_model = c->base_model,
	                               .lora_r = c->lora_r,
	                               .created_ms = c->created_ms,
	                               .bytes = v->bytes,
	                               .bytes_sent = v->bytes_sent,
	                               .files = v->n,
	                               .manifest_key = key};

	s->o.checkpoint(s->o.arg, &row);
}

/* The entries as a manifest, copied under the lock; and their names in the spool beside them. */
static int collect(struct ship *s, const struct ship_group *g, const struct view *v,
                   struct arena *a, struct ckpt *c, uint64_t **ids, struct err *err)
{
	struct ship_entry *e = NULL;

	memset(c, 0, sizeof(*c));
	c->name = arena_cstr(a, g->name);
	c->job_id = s->o.job_id;
	c->rank = s->o.rank;
	c->state = g->manifest ? g->state : verdict(s, g, v);
	c->created_ms = v->newest_ns / 1000000;
	manifest_init(&c->files, a);
	TAILQ_FOREACH(e, &g->entries, peer)
	{
		if (e->state == SHIP_SENT &&
		    manifest_add(&c->files, str_of(e->path), e->sent.size, &e->sha256, err) < 0)
			return -1;
	}
	if (manifest_finish(&c->files, err) < 0)
		return -1;
	*ids = ARENA_ARRAY(a, uint64_t, c->files.n + 1);
	for (size_t i = 0; i < c->files.n; i++) {
		e = map_get(s->entries, str_of(c->files.file[i].path));
		(*ids)[i] = e == NULL ? 0 : e->id;
	}
	return 0;
}

/* Links of what is in the store are given back: the disk's space is the trainer's. What was rotated
 * away needs no entry any more either. */
static void free_spool(struct ship *s, const struct ship_group *g, bool live)
{
	struct ship_entry *e = NULL, *next = NULL;
	char name[32];

	for (e = TAILQ_FIRST(&g->entries); e != NULL; e = next) {
		next = TAILQ_NEXT(e, peer);
		if (e->state != SHIP_SENT)
			continue;
		if (e->id > 0) {
			FMT(name, "%" PRIu64, e->id);
			(void)unlinkat(s->spool_fd, name, 0);
			e->id = 0;
		}
		if (!live && e->gone) {
			s->dropped_files++;
			s->dropped_bytes += e->sent.size;
			ship_entry_drop(s, e);
		}
	}
}

/* Into the store; or, when a shipper before us put it there, is it there still? */
static int put_manifest(struct ship *s, const char *key, struct str body, bool there,
                        struct err *err)
{
	struct objstore_info info;

	return there ? objstore_stat(s->o.objects, key, &info, err)
	             : objstore_put(s->o.objects, key, body, err);
}

/* Writes the manifest and tells the host; the lock is given up meanwhile. Of one that a shipper
 * before us has written, the host may not have heard. */
static void publish(struct ship *s, struct ship_group *g, const struct view *v)
{
	AUTO_ARENA struct arena *a = arena_new();
	AUTO_BUF struct buf body = BUF_INIT(OBJSTORE_BODY_MAX);
	struct ckpt c;
	uint64_t *ids = NULL;
	char *key = ckpt_manifest_key(a, s->o.prefix, s->o.rank, g->name);
	bool there = g->manifest;
	struct err err = {0};
	int r = collect(s, g, v, a, &c, &ids, &err);

	(void)pthread_mutex_unlock(&s->lock);
	if (r == 0) {
		ckpt_classify(&c, a, read_config(s, a, &c, ids));
		ckpt_write(&c, &body);
		r = put_manifest(s, key, buf_view(&body), there, &err);
	}
	if (r == 0)
		tell(s, &c, v, key);
	else if (there && err.code == ERR_NOT_FOUND)
		r = 0; /* deleted by a person meanwhile */
	else
		ship_trouble(s, g->name, &err);
	(void)pthread_mutex_lock(&s->lock);
	g->retry_ms = r == 0 ? 0 : clock_mono_ms() + SHIP_RETRY_MS;
	if (r == 0) { /* what was changed meanwhile takes it back at the next step */
		g->manifest = g->reported = true;
		g->state = c.state;
		ship_journal_group(s, g);
	}
}

/* Content of a published checkpoint has changed: nobody may load it by the old manifest. */
static void withdraw(struct ship *s, struct ship_group *g)
{
	AUTO_ARENA struct arena *a = arena_new();
	char *key = ckpt_manifest_key(a, s->o.prefix, s->o.rank, g->name);
	struct err err = {0};

	g->manifest = g->reported = false;
	g->state = CKPT_SYNCING;
	ship_journal_group(s, g);
	(void)pthread_mutex_unlock(&s->lock);
	if (objstore_del(s->o.objects, key, &err) < 0)
		ship_trouble(s, g->name, &err);
	(void)pthread_mutex_lock(&s->lock);
}

static void tell_progress(struct ship *s, struct ship_group *g, const struct view *v)
{
	AUTO_ARENA struct arena *a = arena_new();
	struct ckpt c = {.name = arena_cstr(a, g->name),
	                 .state = CKPT_SYNCING,
	                 .created_ms = v->newest_ns / 1000000};
	int64_t now = clock_mono_ms();

	if (g->reported && (v->bytes_sent == g->told_bytes || now - g->told_ms < TELL_MS))
		return;
	g->reported = true;
	g->told_bytes = v->bytes_sent;
	g->told_ms = now;
	(void)pthread_mutex_unlock(&s->lock);
	tell(s, &c, v, NULL);
	(void)pthread_mutex_lock(&s->lock);
}

static void step(struct ship *s, struct ship_group *g)
{
	bool settled = s->walked_final || clock_mono_ms() - g->changed_ms >= s->o.settle_ms;
	struct view v = look(s, g);

	if (v.live && settled) {
		drop_gone(s, g);
		v = look(s, g);
	}
	if (v.n == 0)
		return;
	if (g->manifest && v.n_sent + v.n_lost < v.n) {
		withdraw(s, g);
		v = look(s, g);
	}
	if (queue_ready(s, g, v.live) > 0)
		(void)pthread_cond_broadcast(&s->changed);
	if (v.n_sent + v.n_lost == v.n && (settled || !v.live)) {
		if (g->manifest && g->reported)
			free_spool(s, g, v.live);
		else if (clock_mono_ms() >= g->retry_ms)
			publish(s, g, &v);
		return;
	}
	if (!g->manifest)
		tell_progress(s, g, &v);
}

/* With the lock held at both ends. Groups are never removed while we run. */
void ship_groups_step(struct ship *s)
{
	struct ship_group *g = NULL;

	TAILQ_FOREACH(g, &s->list, link)
	step(s, g);
}

bool ship_all_done(struct ship *s)
{
	struct ship_group *g = NULL;

	TAILQ_FOREACH(g, &s->list, link)
	{
		struct view v = look(s, g);

		if (v.n > 0 && !(g->manifest && g->reported))
			return false;
		s->lost = s->lost || v.n_lost > 0;
	}
	return true;
}
