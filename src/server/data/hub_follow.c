/*
 * hub_follow.c - replies that are sent while their bytes come: up to the front of a file that is on
 * its way, or a piece of one that nobody fetches, read through and not kept.
 */
#include "server/data/hub_pull.h"

#define FOLLOW_MIN ((uint64_t)1 << 20)      /* so much is there before a reply begins */
#define THROUGH_PIECE ((uint64_t)1 << 20)   /* is asked for at once */
#define FOLLOW_TICK_MS 500                  /* to see that a client has left */
#define FOLLOWERS_MAX (STREAMS_MAX * 3 / 4) /* the rest is for replies from object stores */
#define READ_TRIES 4

struct hub_follower {
	unsigned magic;
#define FOLLOWER_MAGIC 0x48464f4cU
	struct app *app;
	uint64_t owner;
	LIST_ENTRY(hub_follower) in;
	struct hub_pull *p; /* held; or NULL, and the repository is */
	unsigned began;     /* p->began: it sends nothing of another try */
	struct hub_repo *repo;
	const struct hub_file *f;
	struct source *source; /* of what is read through */
};

/* What is true of one whenever the lock is free: it has a pull, or a source of its own. */
static void follower_check(const struct hub *h, const struct hub_follower *w)
{
	assert(w->magic == FOLLOWER_MAGIC && lock_is_mine(&h->lock) && w->app->hub == h);
	assert((w->p == NULL) == (w->repo != NULL) && (w->p == NULL) == (w->source != NULL));
	assert(w->p == NULL || (w->p->refs > 0 && w->began <= w->p->began && w->p->fd >= 0));
	assert(w->repo == NULL || w->repo->users > 0);
}

/* With the lock. */
static bool has_place(struct hub *h, uint64_t owner)
{
	const struct hub_follower *w;
	unsigned all = 0, own = 0;

	LIST_FOREACH(w, &h->followers, in)
	{
		all++;
		own += w->owner == owner;
	}
	return hub_has_place(all, own, FOLLOWERS_MAX);
}

/* Waits until the pull has come that far. */
static int wait_front(struct hub_follower *w, uint64_t until, const atomic_bool *left,
                      struct err *err)
{
	struct hub *h = w->app->hub;
	struct hub_pull *p = w->p;
	int rc = 0;

	lock_take(&h->lock);
	follower_check(h, w);
	while (!p->done && w->began == p->began && hub_pull_readable(p) < until &&
	       !atomic_load(left))
		(void)cond_wait_until(&p->moved, &h->lock, sync_deadline(FOLLOW_TICK_MS));
	if (p->done && p->failed_ms != 0) {
		*err = p->err;
		rc = -1;
	} else if (w->began != p->began) {
		rc = err_set(err, ERR_SOURCE_CHANGED, "the Hub sends the file from its beginning");
	} else if (hub_pull_readable(p) < until) {
		rc = err_set(err, ERR_CANCELED, "the client has left");
	}
	lock_give(&h->lock);
	return rc;
}

static int follow_read(void *arg, uint64_t at, void *to, size_t n, const atomic_bool *left,
                       struct err *err)
{
	struct hub_follower *w = FROM_VOID(struct hub_follower, arg, FOLLOWER_MAGIC);

	if (wait_front(w, at + n, left, err) < 0)
		return -1;
	return fs_pread_all(w->p->fd, to, n, at, err);
}

/* What may be read without waiting. */
static uint64_t follow_ready(void *arg, uint64_t at)
{
	struct hub_follower *w = FROM_VOID(struct hub_follower, arg, FOLLOWER_MAGIC);
	struct hub *h = w->app->hub;
	uint64_t n;

	lock_take(&h->lock);
	n = hub_pull_readable(w->p);
	lock_give(&h->lock);
	return n > at ? n - at : 0;
}

static uint64_t through_ready(void *arg UNUSED, uint64_t at UNUSED)
{
	return THROUGH_PIECE;
}

struct piece {
	unsigned magic;
#define PIECE_MAGIC 0x56504945U
	char *to;
	size_t n, cap;
};

static int piece_put(void *arg, const void *p, size_t n, struct err *err)
{
	struct piece *x = FROM_VOID(struct piece, arg, PIECE_MAGIC);

	assert(x->n <= x->cap);
	if (n > x->cap - x->n)
		return err_set(err, ERR_CORRUPT, "the source sent more than the requested range");
	memcpy(x->to + x->n, p, n);
	x->n += n;
	return 0;
}

/* Of the other Hub, and not kept: nothing says that a piece is what it should be. */
static int through_read(void *arg, uint64_t at, void *to, size_t n, const atomic_bool *left,
                        struct err *err)
{
	struct hub_follower *w = FROM_VOID(struct hub_follower, arg, FOLLOWER_MAGIC);
	struct source_file f = hub_source_file(w->f);
	struct piece x = {.magic = PIECE_MAGIC, .to = to, .cap = n};
	const struct http_sink sink = {.put = piece_put, .arg = &x};
	struct retry r = RETRY_INIT(READ_TRIES);

	r.cancel = left;
	while (x.n < n) {
		if (source_read(w->source, &f, at + x.n, n - x.n, &sink, left, err) == 0)
			break;
		if (!retry_again(&r, err))
			return -1;
	}
	return 0;
}

static void follow_done(void *arg)
{
	struct hub_follower *w = FROM_VOID(struct hub_follower, arg, FOLLOWER_MAGIC);
	struct hub *h = w->app->hub;

	lock_take(&h->lock);
	follower_check(h, w);
	LIST_REMOVE(w, in);
	if (w->p != NULL)
		hub_pull_drop(h, w->p);
	else
		hub_repo_drop(h, w->repo);
	lock_give(&h->lock);
	hub_notify_places(w->app);
	source_close(w->source);
	w->magic = 0;
	free(w);
}

/* With the lock. */
static struct hub_follower *follower_new(struct app *app, uint64_t owner, struct hub_repo *r,
                                         const struct hub_file *f)
{
	struct hub_follower *w = xcalloc(1, sizeof(*w));

	assert(lock_is_mine(&app->hub->lock));
	w->magic = FOLLOWER_MAGIC;
	w->app = app;
	w->owner = owner;
	LIST_INSERT_HEAD(&app->hub->followers, w, in);
	w->repo = r;
	w->f = f;
	return w;
}

int hub_read_through(struct app *app, uint64_t owner, struct hub_repo *r, const struct hub_file *f,
                     struct hub_bytes *out, struct err *err)
{
	struct hub *h = app->hub;
	struct hub_follower *w = NULL;
	struct source *s = NULL;

	if (hub_source_of(r, &s, err) < 0)
		return -1;
	lock_take(&h->lock);
	if (has_place(h, owner)) {
		w = follower_new(app, owner, r, f);
		w->source = s;
		hub_repo_hold(h, r);
		follower_check(h, w);
	}
	lock_give(&h->lock);
	if (w == NULL) {
		source_close(s);
		out->how = HUB_NO_PLACE;
		return 0;
	}
	out->how = HUB_STREAM;
	out->from = (struct reply_source){
		.read = through_read, .done = follow_done, .ready = through_ready, .arg = w};
	return 0;
}

/* With the lock: of a pull that is under way. */
void hub_follow(struct app *app, uint64_t owner, struct hub_pull *p, uint64_t first, uint64_t count,
                struct hub_bytes *out)
{
	uint64_t first_bytes = MIN(count, FOLLOW_MIN);
	struct hub_follower *w;

	if (p->fd < 0 || hub_pull_readable(p) < first + first_bytes) {
		p->wanted = MIN(p->wanted, first + first_bytes);
		out->how = HUB_NOT_YET;
		return;
	}
	if (!has_place(app->hub, owner)) {
		out->how = HUB_NO_PLACE;
		return;
	}
	w = follower_new(app, owner, NULL, p->f);
	w->p = p;
	w->began = p->began;
	p->refs++;
	follower_check(app->hub, w);
	out->how = HUB_STREAM;
	out->from = (struct reply_source){
		.read = follow_read, .done = follow_done, .ready = follow_ready, .arg = w};
}
