/*
 * node_keeper.c - the keeper of the node cache: a process beside a runner that gave up root; see
 * node.h.
 */
#include "run/node.h"

#include "base/clock.h"
#include "base/log.h"
#include "io/client.h"
#include "io/local.h"
#include "run/keeper.h"
#include "run/mounts.h"
#include "run/report.h"
#include "run/stage.h"
#include "store/blobs/lease.h"

#include <sys/mount.h>

#define PROGRESS_MS 100

struct keeper {
	unsigned magic;
#define KEEPER_MAGIC 0x524b4550U
	struct arena *a;
	const struct wire_launch *launch;
	struct wire_start *start;
	struct ids ids;
	const char *making;    /* our folder in the cache, which the runner sees too */
	int sock, dir, runner; /* dir: `making`; runner: a pidfd */
	atomic_bool over;      /* the runner has hung up, or ended */
	struct err unable;     /* why it cannot do anything */
	struct node_cache *cache;
	struct report *report;
	struct http_client *http;
	struct tree_from from;
	int64_t told_ms;
};

/* ---- telling --------------------------------------------------------------------------------- */

/* Who hung up is not told; what comes next notices it. */
static void tell(struct keeper *k, const struct wire_node *m)
{
	struct err err = {0};

	if (node_send(k->sock, m, -1, &err) < 0)
		err_clear(&err);
}

/* Of what goes on there is news all the time: some of it is enough. */
static void tell_now_and_then(struct keeper *k, const struct wire_node *m)
{
	int64_t now = clock_mono_ms();

	if (now - k->told_ms < PROGRESS_MS)
		return;
	k->told_ms = now;
	tell(k, m);
}

/* A mount of this tree alone, as a runner may have it: of the ones that confine.c made. */
static int show(struct keeper *k, const struct node_lease *lease, struct err *err)
{
	const char *dir = k->launch->node_dir;
	AUTO_FREE char *at = xasprintf(CONFINE_NODE "%s", lease->path + strlen(dir));
	AUTO_FD int tree = open_tree(AT_FDCWD, at, OPEN_TREE_CLONE | OPEN_TREE_CLOEXEC);

	assert(mounts_is_below(lease->path, dir));
	return tree < 0 ? err_errno(err, errno, "%s", lease->path)
	                : node_send(k->sock, &(struct wire_node){.verb = "shown"}, tree, err);
}

/* Gives it away. */
static int tell_lease(struct keeper *k, const struct node_lease *lease, struct err *err)
{
	AUTO_FD int ours = lease->fd, held = lease_to_hold(ours, err);
	const struct wire_node m = {.verb = "leased",
	                            .text = lease->path,
	                            .bytes = lease->bytes,
	                            .files = lease->files,
	                            .fetched = lease->fetched,
	                            .hit = lease->hit};

	return held < 0 || show(k, lease, err) < 0 ? -1 : node_send(k->sock, &m, held, err);
}

/* ---- weights --------------------------------------------------------------------------------- */

static void on_progress(void *arg, uint64_t done, uint64_t total)
{
	tell_now_and_then(FROM_VOID(struct keeper, arg, KEEPER_MAGIC),
	                  &(struct wire_node){.verb = "progress", .done = done, .total = total});
}

/* When it is needed first: an environment needs none. */
static int open_sources(struct keeper *k, struct err *err)
{
	if (k->report == NULL && report_open(&k->report, k->start, k->launch->node_dir, err) < 0)
		return -1;
	if (k->from.objects == NULL &&
	    stage_objects(&k->from.objects, &k->http, k->launch->objstore, k->report, err) < 0)
		return -1;
	return stage_mirror(&k->from.mirror, k->from.objects, k->launch, k->report, err);
}

static bool is_ours(const struct keeper *k, const char *manifest)
{
	for (size_t i = 0; i < k->launch->n_weights; i++) {
		if (strcmp(k->launch->weights[i].manifest, manifest) == 0)
			return true;
	}
	return k->launch->has_compile && k->launch->compile.manifest != NULL &&
	       strcmp(k->launch->compile.manifest, manifest) == 0;
}

static int bring_tree(struct keeper *k, const char *hex, const struct digest *key, struct err *err)
{
	struct node_lease lease;

	if (!is_ours(k, hex))
		return err_set(err, ERR_DENIED, "this job has no weights of manifest %s", hex);
	if (open_sources(k, err) < 0 ||
	    node_cache_tree(k->cache, &k->from, key, on_progress, k, &k->over, &lease, err) < 0)
		return -1;
	return tell_lease(k, &lease, err);
}

/* ---- environments ---------------------------------------------------------------------------- */

static int grow(struct keeper *k, struct built *b, struct err *err)
{
	struct err why = {0};

	if (built_grow(b, &why) < 0)
		return node_send_error(k->sock, "grown", &why, err);
	return node_send(k->sock, &(struct wire_node){.verb = "grown"}, -1, err);
}

/* 1: it goes on. */
static int take_word(struct keeper *k, struct built *b, const struct wire_node *m, struct err *err)
{
	if (strcmp(m->verb, "made") == 0)
		return 0;
	if (strcmp(m->verb, "failed") == 0)
		return node_told_error(m, err);
	if (strcmp(m->verb, "say") == 0)
		built_say(b, m->text != NULL ? m->text : "");
	else if (strcmp(m->verb, "grow") == 0)
		return grow(k, b, err) < 0 ? -1 : 1;
	return 1;
}

static int hear_maker(struct keeper *k, struct built *b, struct err *err)
{
	int r = 1;

	while (r == 1) {
		AUTO_ARENA struct arena *a = arena_new();
		struct wire_node m = {0};
		AUTO_FD int fd = -1;

		r = node_receive(k->sock, -1, a, &m, &fd, err) < 0 ? -1 : take_word(k, b, &m, err);
	}
	return r;
}

#define ENVIRONMENT "environment" /* in our folder */

/* Empty, and the job's. The runner may do there what it likes meanwhile: no path is followed. */
static int make_empty(struct keeper *k, struct err *err)
{
	AUTO_FD int own = -1;

	if (fs_remove_tree(k->dir, ENVIRONMENT, err) < 0) /* of a try before */
		return -1;
	own = fs_make_beneath(k->dir, ENVIRONMENT, 0755, err);
	return own < 0 ? -1 : ids_own(&k->ids, own, ENVIRONMENT, err);
}

/* By the runner, which cannot reach it any more where it is moved to, and owns nothing of it by any
 * folder that it has open. Files that it has open for writing are of no use: one that is changed
 * after it was listed is noticed by its ctime. */
static int make(void *arg, struct built *b, const char *dir UNUSED, struct err *err)
{
	struct keeper *k = FROM_VOID(struct keeper, arg, KEEPER_MAGIC);
	const struct wire_node m = {.verb = "make",
	                            .text = arena_printf(k->a, "%s/" ENVIRONMENT, k->making)};
	struct err later = {0};
	int r;

	if (make_empty(k, err) < 0)
		return -1;
	built_fill_at(b, k->dir, ENVIRONMENT);
	r = node_send(k->sock, &m, -1, err) < 0 ? -1 : hear_maker(k, b, err);
	if (r < 0 && fs_remove_tree(k->dir, ENVIRONMENT, &later) < 0)
		err_clear(&later); /* it goes with us */
	return r;
}

static void on_wait(void *arg, const char *words)
{
	tell_now_and_then(FROM_VOID(struct keeper, arg, KEEPER_MAGIC),
	                  &(struct wire_node){.verb = "wait", .text = words});
}

static void on_damaged(void *arg, const char *why)
{
	tell(FROM_VOID(struct keeper, arg, KEEPER_MAGIC),
	     &(struct wire_node){.verb = "damaged", .text = why});
}

static int bring_built(struct keeper *k, const struct digest *key, struct err *err)
{
	const struct built_maker by = {make, on_wait, on_damaged, k};
	const struct digest of_team = node_key(k->launch->team_id, key);
	struct node_lease lease;

	return node_cache_built(k->cache, &of_team, &by, &k->over, &lease, err) < 0
	               ? -1
	               : tell_lease(k, &lease, err);
}

/* ---- its life -------------------------------------------------------------------------------- */

static int answer(struct keeper *k, const struct wire_node *m, struct err *err)
{
	struct digest key;

	if (k->unable.code != ERR_NONE) {
		*err = k->unable;
		return -1;
	}
	if (m->key == NULL || digest_parse(str_of(m->key), &key, err) < 0)
		return m->key != NULL ? -1 : err_set(err, ERR_INVALID, "a question without a key");
	if (strcmp(m->verb, "tree") == 0)
		return bring_tree(k, m->key, &key, err);
	if (strcmp(m->verb, "built") == 0)
		return bring_built(k, &key, err);
	return err_set(err, ERR_INVALID, "no question: %s", m->verb);
}

static int begin(struct keeper *k, pid_t runner, const struct confine *theirs, struct err *err)
{
	const struct confine c = {.a = theirs->a,
	                          .keeps = theirs->launch->node_dir,
	                          .start = theirs->start,
	                          .ids = theirs->ids};
	int *ours[] = {&k->sock, &k->dir};
	AUTO_FD int was = -1;

	if (keeper_keep_fds(ours, COUNT(ours), runner, &k->runner, err) < 0 ||
	    confine_enter(&c, ARENA_NEW(c.a, struct confined), &k->ids, err) < 0)
		return -1;
	was = k->dir; /* opened as root: what is removed and made there is so by our own mount */
	k->dir = fs_open_dir(k->making, err);
	if (k->dir < 0 || keeper_watch(k->sock, k->runner, &k->over, err) < 0)
		return -1;
	return node_cache_open(&k->cache, c.keeps, theirs->launch->node_budget_bytes, err);
}

/* One question; the error is the answer when it is no question, or we are not able. */
static int serve(struct keeper *k, struct err *err)
{
	AUTO_ARENA struct arena *a = arena_new();
	struct wire_node m = {0};
	struct err why = {0};
	AUTO_FD int fd = -1;

	if (node_receive(k->sock, -1, a, &m, &fd, err) < 0)
		return -1;
	return answer(k, &m, &why) == 0 ? 0 : node_send_error(k->sock, "failed", &why, err);
}

void node_keep(int sock, int making, pid_t runner, const struct confine *c)
{
	struct keeper k = {.magic = KEEPER_MAGIC,
	                   .a = c->a,
	                   .launch = c->launch,
	                   .start = c->start,
	                   .making = c->making,
	                   .sock = sock,
	                   .dir = making,
	                   .runner = -1};
	struct err err = {0};

	if (begin(&k, runner, c, &k.unable) < 0) { /* and perhaps as root: one answer, no more */
		(void)serve(&k, &err);
		_exit(1);
	}
	while (serve(&k, &err) == 0)
		;
	err_clear(&err); /* the runner has ended, or has what it wanted */
	if (fs_remove_tree(AT_FDCWD, k.making, &err) < 0)
		log_warn("node cache: %s", err.msg); /* the server sweeps it */
	_exit(0);
}
