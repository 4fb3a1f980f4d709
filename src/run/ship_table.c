/* ship_table.c - the tables of a shipper: files, checkpoints, and what is left out of them. */
#include "run/ship_table.h"

#include "base/clock.h"
#include "base/map.h"

#define ODD_MAX 20       /* said of one attempt */
#define ODD_NAME_MAX 100 /* bytes of each path: a longer one must not hide the others */
#define ODD_TEXT_MAX ((size_t)ODD_MAX * (ODD_NAME_MAX + 100) + 100)

const char *ship_inner(const struct ship_group *g, const char *path)
{
	return ckpt_inner(g->name, path);
}

struct ship_group *ship_group_of(struct ship *s, const char *name)
{
	struct ship_group *g = map_get(s->groups, str_of(name));
	char lineage[CKPT_NAME_MAX];

	if (g != NULL)
		return g;
	g = xcalloc(1, sizeof(*g));
	g->name = xstrdup(name);
	ckpt_lineage(name, lineage);
	g->lineage = xstrdup(lineage);
	g->seen_ms = clock_wall_ms();
	g->news = true;
	g->due_ms = INT64_MAX;
	g->litter.max = SHIP_LITTER_MAX;
	TAILQ_INIT(&g->entries);
	(void)map_set(s->groups, str_of(name), g);
	TAILQ_INSERT_TAIL(&s->list, g, link);
	return g;
}

struct ship_entry *ship_entry_of(struct ship *s, struct str path)
{
	struct ship_entry *e = map_get(s->entries, path);
	char name[CKPT_NAME_MAX];

	if (e != NULL)
		return e;
	e = xcalloc(1, sizeof(*e));
	e->magic = SHIP_ENTRY_MAGIC;
	e->path = str_dup(path);
	e->kind = format_name(path);
	ckpt_name_of(path, name);
	e->group = ship_group_of(s, name);
	(void)map_set(s->entries, path, e);
	TAILQ_INSERT_TAIL(&s->all, e, link);
	TAILQ_INSERT_TAIL(&e->group->entries, e, peer);
	s->n_entries++;
	return e;
}

void ship_check_done(struct ship_check *c)
{
	if (c == NULL || --c->refs > 0)
		return;
	format_result_done(&c->r);
	free(c);
}

static void forget(struct map *m, const struct ship_fact *f, const struct ship_entry *e)
{
	struct str key = ship_inode(f);

	if (map_get(m, key) == e)
		(void)map_del(m, key);
}

static void entry_free(struct ship_entry *e)
{
	ship_check_done(e->check);
	free(e->fault);
	free(e->path);
	e->magic = 0;
	free(e);
}

/* Where an entry can go from here. One that waits is SENT when the journal says so, and what is
 * SENT may be said twice there. What is stored is queued again to have its format looked at.
 * Whoever is not being sent waits again once its content has changed. */
#define TO(s) (1U << (s))
static const unsigned entry_next[SHIP_STATE_COUNT] = {
	[SHIP_WAIT] = TO(SHIP_WAIT) | TO(SHIP_QUEUED) | TO(SHIP_SENT),
	[SHIP_QUEUED] = TO(SHIP_WAIT) | TO(SHIP_SENDING),
	[SHIP_SENDING] = TO(SHIP_WAIT) | TO(SHIP_SENT) | TO(SHIP_LOST),
	[SHIP_SENT] = TO(SHIP_WAIT) | TO(SHIP_QUEUED) | TO(SHIP_SENT),
	[SHIP_LOST] = TO(SHIP_WAIT),
};

void ship_entry_check(const struct ship_entry *e)
{
	assert(e->magic == SHIP_ENTRY_MAGIC && e->group != NULL && e->path != NULL);
	assert(e->state < SHIP_STATE_COUNT);
	assert(e->state != SHIP_SENT || e->stored);
	assert(e->state == SHIP_SENDING || (!e->dirty && e->progress == 0));
	assert(!e->quarantine || e->stored);
}

static struct ship_entries *queue_of(struct ship *s, const struct ship_entry *e)
{
	return e->small ? &s->queued_small : &s->queued_large;
}

void ship_entry_to(struct ship *s, struct ship_entry *e, enum ship_state to)
{
	assert(e->magic == SHIP_ENTRY_MAGIC);
	assert(to < SHIP_STATE_COUNT && (entry_next[e->state] & TO(to)) != 0);
	if (e->state == SHIP_QUEUED)
		TAILQ_REMOVE(queue_of(s, e), e, queue);
	e->state = to;
	if (to == SHIP_QUEUED) {
		e->small = e->fact.size <= SHIP_LARGE;
		TAILQ_INSERT_TAIL(queue_of(s, e), e, queue);
	}
	ship_entry_check(e);
}

void ship_entry_seen(struct ship *s, struct ship_entry *e, const struct ship_fact *is)
{
	if (!str_same(ship_inode(&e->fact), ship_inode(is)))
		forget(s->inodes, &e->fact, e);
	e->fact = *is;
}

void ship_entry_sent(struct ship *s, struct ship_entry *e, const struct ship_fact *is)
{
	if (!str_same(ship_inode(&e->sent), ship_inode(is)))
		forget(s->stored, &e->sent, e);
	e->sent = *is;
}

bool ship_entry_drop(struct ship *s, struct ship_entry *e)
{
	ship_entry_check(e);
	if (e->state == SHIP_SENDING)
		return false;
	if (e->state == SHIP_QUEUED)
		ship_entry_to(s, e, SHIP_WAIT);
	ship_spool_doom(s, e->id);
	forget(s->inodes, &e->fact, e);
	forget(s->stored, &e->sent, e);
	TAILQ_REMOVE(&s->all, e, link);
	TAILQ_REMOVE(&e->group->entries, e, peer);
	(void)map_del(s->entries, str_of(e->path));
	s->n_entries--;
	e->group->news = e->group->stale = true;
	entry_free(e);
	return true;
}

void ship_entry_fault(struct ship_entry *e, bool for_good, const char *fmt, ...)
{
	char text[FORMAT_REASON_MAX * 2];
	va_list ap;

	va_start(ap, fmt);
	(void)vsnprintf(text, sizeof(text), fmt, ap);
	va_end(ap);
	free(e->fault);
	e->fault = xstrdup(text);
	e->refused = for_good;
	e->group->news = true;
}

void ship_group_fault(struct ship *s, struct ship_group *g, struct str path, const char *why)
{
	g->news = g->news || g->fault_walk + 1 < s->walk;
	g->fault_walk = s->walk;
	if (g->fault != NULL && str_eq(path, g->fault_path) && strcmp(why, g->fault) == 0)
		return;
	free(g->fault);
	free(g->fault_path);
	g->fault = xstrdup(why);
	g->fault_path = str_dup(path);
	g->news = true;
}

void ship_note_odd(struct ship *s, struct str path, const char *why)
{
	if (map_get(s->odd, path) == NULL && map_count(s->odd) < ODD_MAX)
		(void)map_set(s->odd, path, xstrdup(why));
}

void ship_note_moved(struct ship *s, struct str path)
{
	buf_add(&s->moved, path.p, path.n); /* beyond its limit: a rename that is not noticed */
	buf_putc(&s->moved, '\0');
}

struct odd_news {
	unsigned magic;
#define ODD_NEWS_MAGIC 0x524f4444U
	struct buf *text;
	size_t skip; /* said before */
};

static void add_odd(struct str path, void *why, void *arg)
{
	struct odd_news *news = FROM_VOID(struct odd_news, arg, ODD_NEWS_MAGIC);

	if (news->skip > 0) {
		news->skip--;
		return;
	}
	buf_puts(news->text, news->text->n > 0 ? ", " : "");
	for (size_t i = 0; i < MIN(path.n, (size_t)ODD_NAME_MAX); i++)
		buf_putc(news->text, (unsigned char)path.p[i] < 0x20 ? '?' : path.p[i]);
	buf_printf(news->text, "%s (%.80s)", path.n > ODD_NAME_MAX ? "..." : "", (const char *)why);
}

/* Logs what is left out, once: without it the checkpoint may be of no use. */
void ship_say_odd(struct ship *s)
{
	AUTO_BUF struct buf text = BUF_INIT(ODD_TEXT_MAX);
	AUTO_BUF struct buf odd = BUF_INIT(ODD_TEXT_MAX);
	struct odd_news news = {.magic = ODD_NEWS_MAGIC, .text = &odd};

	lock_take(&s->lock);
	news.skip = s->odd_said;
	map_each(s->odd, add_odd, &news);
	s->odd_said = map_count(s->odd);
	lock_give(&s->lock);
	if (odd.n > 0) {
		buf_printf(&text, "checkpoints: only regular files are uploaded, not %s",
		           buf_cstr(&odd));
		s->o.event(s->o.arg, "warning", buf_cstr(&text));
	}
}

struct ship_fact ship_fact_of(const struct stat *st)
{
	return (struct ship_fact){
		.size = (uint64_t)st->st_size,
		.ino = st->st_ino,
		.dev = st->st_dev,
		.blocks = (uint64_t)st->st_blocks,
		.mtime_ns = clock_ns_of(st->st_mtim.tv_sec, st->st_mtim.tv_nsec),
		.ctime_ns = clock_ns_of(st->st_ctim.tv_sec, st->st_ctim.tv_nsec),
	};
}

struct str ship_inode(const struct ship_fact *f)
{
	return str_n((const char *)f, 2 * sizeof(uint64_t));
}

bool ship_same(const struct ship_fact *a, const struct ship_fact *b)
{
	return a->size == b->size && a->mtime_ns == b->mtime_ns && a->ino == b->ino;
}

bool ship_counts(const struct ship_entry *e)
{
	return e->kind == FORMAT_NAME_PLAIN || e->kind == FORMAT_NAME_POINTER;
}

static void free_value(struct str key UNUSED, void *value, void *arg UNUSED)
{
	free(value);
}

static void free_sibling(struct str key UNUSED, void *value, void *arg UNUSED)
{
	struct ship_sibling *b = FROM_VOID(struct ship_sibling, value, SHIP_SIBLING_MAGIC);

	arena_free(b->a);
	free(b);
}

void ship_tables_open(struct ship *s)
{
	s->next_id = 1;
	s->entries = map_new();
	s->groups = map_new();
	s->odd = map_new();
	s->inodes = map_new();
	s->stored = map_new();
	s->folders = map_new();
	s->siblings = map_new();
	TAILQ_INIT(&s->all);
	TAILQ_INIT(&s->queued_small);
	TAILQ_INIT(&s->queued_large);
	TAILQ_INIT(&s->list);
}

void ship_tables_free(struct ship *s)
{
	while (!TAILQ_EMPTY(&s->all)) {
		struct ship_entry *e = TAILQ_FIRST(&s->all);

		TAILQ_REMOVE(&s->all, e, link);
		entry_free(e);
	}
	while (!TAILQ_EMPTY(&s->list)) {
		struct ship_group *g = TAILQ_FIRST(&s->list);

		TAILQ_REMOVE(&s->list, g, link);
		arena_free(g->base.a);
		ship_set_free(g->set);
		buf_done(&g->litter);
		free(g->fault_path);
		free(g->fault);
		free(g->lineage);
		free(g->name);
		free(g);
	}
	map_each(s->siblings, free_sibling, NULL);
	map_each(s->folders, free_value, NULL);
	map_free(s->entries);
	map_free(s->groups);
	map_free(s->inodes);
	map_free(s->stored);
	map_free(s->folders);
	map_free(s->siblings);
	map_each(s->odd, free_value, NULL);
	map_free(s->odd);
	free(s->doomed);
	buf_done(&s->moved);
}
