/* node.c - the runner's side of the node cache; see node.h. */
#include "run/node.h"

#include "base/fs.h"
#include "io/local.h"
#include "run/keeper.h"

#include <sys/mount.h>

#define LOOK_MS 50    /* between two looks whether it is canceled */
#define SEND_MS 60000 /* the other end reads all the time, or is gone */

struct node {
	struct node_cache *cache; /* NULL: there is a keeper */
	struct keeper_end keeper;
};

struct node_making {
	struct node *n;
	struct built *b; /* NULL: the keeper has it */
	const atomic_bool *cancel;
};

/* ---- messages -------------------------------------------------------------------------------- */

int node_send(int sock, const struct wire_node *m, int fd, struct err *err)
{
	AUTO_BUF struct buf out = BUF_INIT(LOCAL_MESSAGE_MAX);

	wire_node_write(m, &out);
	return local_send_within(sock, SEND_MS, buf_view(&out), fd, err);
}

int node_send_error(int sock, const char *verb, const struct err *why, struct err *err)
{
	const struct wire_node m = {.verb = verb, .error = err_id(why), .text = why->msg};

	return node_send(sock, &m, -1, err);
}

int node_told_error(const struct wire_node *m, struct err *err)
{
	enum err_code code = m->error != NULL ? err_of_id(m->error) : ERR_NONE;

	return err_set(err, code != ERR_NONE ? code : ERR_IO, "%s", m->text != NULL ? m->text : "");
}

int node_receive(int sock, int64_t wait_ms, struct arena *a, struct wire_node *out, int *fd,
                 struct err *err)
{
	AUTO_BUF struct buf in = BUF_INIT(LOCAL_MESSAGE_MAX);

	*fd = -1;
	if (local_receive_message(sock, wait_ms, &in, fd, err) == 0 &&
	    wire_node_parse(out, a, arena_str(a, buf_view(&in)), err) == 0)
		return 0;
	close_fd_p(fd);
	*fd = -1;
	return -1;
}

/* ---- the keeper ------------------------------------------------------------------------------ */

int node_open(struct node **out, const char *dir, uint64_t budget_bytes, struct err *err)
{
	struct node *n = xcalloc(1, sizeof(*n));

	n->keeper.sock = -1;
	if (node_cache_open(&n->cache, dir, budget_bytes, err) < 0) {
		free(n);
		return -1;
	}
	*out = n;
	return 0;
}

struct life {
	unsigned magic;
#define LIFE_MAGIC 0x524c4946U
	const struct confine *c;
	int making;
};

static void keep(void *arg, int sock, pid_t runner)
{
	const struct life *l = FROM_VOID(struct life, arg, LIFE_MAGIC);

	node_keep(sock, l->making, runner, l->c);
}

int node_start_keeper(struct node **out, struct confine *c, struct err *err)
{
	const char *name = strrchr(c->dir, '/') + 1, *dir = c->launch->node_dir;
	AUTO_FD int making = node_cache_making(dir, name, err);
	struct node *n;

	if (making < 0 || ids_own(&c->ids, making, dir, err) < 0)
		return -1;
	c->making = arena_printf(c->a, "%s/" NODE_CACHE_MAKING "/%s", dir, name);
	n = xcalloc(1, sizeof(*n));
	if (keeper_start(&n->keeper, "the node cache", keep, &(struct life){LIFE_MAGIC, c, making},
	                 err) < 0) {
		node_close(n);
		return -1;
	}
	*out = n;
	return 0;
}

bool node_has_keeper(const struct node *n)
{
	return n != NULL && n->cache == NULL;
}

void node_hang_up(struct node *n)
{
	if (n != NULL)
		keeper_hang_up(&n->keeper);
}

void node_close(struct node *n)
{
	if (n == NULL)
		return;
	node_cache_close(n->cache);
	keeper_close(&n->keeper);
	free(n);
}

/* ---- asking it ------------------------------------------------------------------------------- */

static int no_keeper(struct err *err)
{
	return keeper_lost("keeps the node cache for this job", err);
}

static int say(struct node *n, const struct wire_node *m, struct err *err)
{
	return node_send(n->keeper.sock, m, -1, err) < 0 ? no_keeper(err) : 0;
}

static int hear(struct node *n, const atomic_bool *cancel, struct arena *a, struct wire_node *out,
                int *fd, struct err *err)
{
	while (node_receive(n->keeper.sock, LOOK_MS, a, out, fd, err) < 0) {
		if (err->code != ERR_TIMEOUT)
			return no_keeper(err);
		err_clear(err);
		if (cancel != NULL && atomic_load(cancel)) {
			node_hang_up(n); /* which ends it */
			return err_set(err, ERR_CANCELED, "canceled");
		}
	}
	return 0;
}

/* Where the cache has it, in a folder of our own. Two of a job's weights may be one tree. */
static int attach(const char *path, int shown, struct err *err)
{
	struct stat st, tree;

	if (fstat(shown, &tree) < 0 || fs_mkdirs(AT_FDCWD, path, 0755, err) < 0)
		return err->code != ERR_NONE ? -1 : err_errno(err, errno, "%s", path);
	if (stat(path, &st) == 0 && st.st_dev == tree.st_dev && st.st_ino == tree.st_ino)
		return 0;
	return move_mount(shown, "", AT_FDCWD, path, MOVE_MOUNT_F_EMPTY_PATH) < 0
	               ? err_errno(err, errno, "mounting %s", path)
	               : 0;
}

static int take_lease(const struct wire_node *m, int shown, int fd, struct node_lease *out,
                      struct err *err)
{
	if (m->text == NULL || shown < 0 || fd < 0) {
		close_fd_p(&fd);
		return err_set(err, ERR_IO, "a lease without a path, a tree or a descriptor");
	}
	if (attach(m->text, shown, err) < 0) {
		close_fd_p(&fd);
		return -1;
	}
	*out = (struct node_lease){.fd = fd,
	                           .hit = m->hit,
	                           .bytes = m->bytes,
	                           .files = m->files,
	                           .fetched = m->fetched};
	return str_copy(str_of(m->text), out->path, sizeof(out->path), "the path of a tree", err);
}

struct talk {
	struct node *n;
	void (*progress)(void *arg, uint64_t done, uint64_t total);
	void *arg;
	const struct node_maker *maker;
	const atomic_bool *cancel;
	int shown; /* a tree's mount, of which the lease comes next; -1: none */
	struct node_lease *out;
};

/* The keeper tells it to those who wait, and us again. */
static int tell_failed(struct node *n, const struct err *why, struct err *err)
{
	if (n->keeper.sock >= 0 && node_send_error(n->keeper.sock, "failed", why, err) == 0)
		return 0;
	*err = *why; /* it is gone: perhaps that is why */
	return -1;
}

static int make(struct talk *t, const char *dir, struct err *err)
{
	struct node_making making = {.n = t->n, .cancel = t->cancel};
	struct err why = {0};

	if (t->maker == NULL || dir == NULL)
		return err_set(err, ERR_IO, "a folder to fill that nobody asked for");
	if (t->maker->make(t->maker->arg, &making, dir, &why) < 0)
		return tell_failed(t->n, &why, err);
	return say(t->n, &(struct wire_node){.verb = "made"}, err);
}

/* 1: it goes on. */
static int take_word(struct talk *t, const struct wire_node *m, int *fd, struct err *err)
{
	const char *words = m->text != NULL ? m->text : "";

	if (strcmp(m->verb, "leased") == 0)
		return take_lease(m, t->shown, TAKE_FD(*fd), t->out, err);
	if (strcmp(m->verb, "failed") == 0)
		return node_told_error(m, err);
	if (strcmp(m->verb, "make") == 0)
		return make(t, m->text, err) < 0 ? -1 : 1;
	if (strcmp(m->verb, "shown") == 0 && t->shown < 0)
		t->shown = TAKE_FD(*fd);
	else if (strcmp(m->verb, "progress") == 0 && t->progress != NULL)
		t->progress(t->arg, m->done, m->total);
	else if (strcmp(m->verb, "wait") == 0 && t->maker != NULL && t->maker->wait != NULL)
		t->maker->wait(t->maker->arg, words);
	else if (strcmp(m->verb, "damaged") == 0 && t->maker != NULL && t->maker->damaged != NULL)
		t->maker->damaged(t->maker->arg, words);
	return 1;
}

static int ask(struct talk *t, const char *verb, const struct digest *key, struct err *err)
{
	char hex[HASH_HEX_CAP];
	int r = 1;

	if (t->n->keeper.sock < 0)
		return err_set(err, ERR_CANCELED, "canceled");
	digest_hex(key, hex);
	if (say(t->n, &(struct wire_node){.verb = verb, .key = hex}, err) < 0)
		return -1;
	t->shown = -1;
	while (r == 1) {
		AUTO_ARENA struct arena *a = arena_new();
		struct wire_node m = {0};
		AUTO_FD int fd = -1;

		r = hear(t->n, t->cancel, a, &m, &fd, err) < 0 ? -1 : take_word(t, &m, &fd, err);
	}
	close_fd_p(&t->shown);
	return r;
}

int node_tree(struct node *n, const struct tree_from *from, const struct digest *manifest,
              void (*progress)(void *arg, uint64_t done, uint64_t total), void *arg,
              const atomic_bool *cancel, struct node_lease *out, struct err *err)
{
	struct talk t = {.n = n, .progress = progress, .arg = arg, .cancel = cancel, .out = out};

	if (n->cache != NULL)
		return node_cache_tree(n->cache, from, manifest, progress, arg, cancel, out, err);
	return ask(&t, "tree", manifest, err);
}

/* ---- environments ---------------------------------------------------------------------------- */

struct digest node_key(const char *team_id, const struct digest *key)
{
	AUTO_BUF struct buf text = BUF_INIT(1024);
	char hex[HASH_HEX_CAP];

	digest_hex(key, hex);
	buf_printf(&text, "stoker environment of team %s: %s", team_id, hex);
	return hash_sha256(text.p, text.n);
}

struct own_maker {
	unsigned magic;
#define OWN_MAKER_MAGIC 0x524f574dU
	const struct node_maker *maker;
	struct node *n;
};

static int make_own(void *arg, struct built *b, const char *dir, struct err *err)
{
	struct own_maker *own = FROM_VOID(struct own_maker, arg, OWN_MAKER_MAGIC);
	struct node_making making = {.n = own->n, .b = b};

	return own->maker->make(own->maker->arg, &making, dir, err);
}

static void wait_own(void *arg, const char *words)
{
	struct own_maker *own = FROM_VOID(struct own_maker, arg, OWN_MAKER_MAGIC);

	own->maker->wait(own->maker->arg, words);
}

static void damaged_own(void *arg, const char *why)
{
	struct own_maker *own = FROM_VOID(struct own_maker, arg, OWN_MAKER_MAGIC);

	own->maker->damaged(own->maker->arg, why);
}

int node_built(struct node *n, const char *team_id, const struct digest *key,
               const struct node_maker *maker, const atomic_bool *cancel, struct node_lease *out,
               struct err *err)
{
	struct talk t = {.n = n, .maker = maker, .cancel = cancel, .out = out};
	struct own_maker own = {OWN_MAKER_MAGIC, maker, n};
	const struct built_maker by = {make_own, wait_own, damaged_own, &own};
	struct digest of_team;

	if (n->cache == NULL)
		return ask(&t, "built", key, err);
	of_team = node_key(team_id, key);
	return node_cache_built(n->cache, &of_team, &by, cancel, out, err);
}

int node_grow(struct node_making *m, struct err *err)
{
	AUTO_ARENA struct arena *a = arena_new();
	struct wire_node got = {0};
	AUTO_FD int fd = -1;

	if (m->b != NULL)
		return built_grow(m->b, err);
	if (say(m->n, &(struct wire_node){.verb = "grow"}, err) < 0 ||
	    hear(m->n, m->cancel, a, &got, &fd, err) < 0)
		return -1;
	return got.error == NULL ? 0 : node_told_error(&got, err);
}

void node_say(struct node_making *m, const char *words)
{
	struct err ignored = {0};

	if (m->b != NULL)
		built_say(m->b, words);
	else if (say(m->n, &(struct wire_node){.verb = "say", .text = words}, &ignored) < 0)
		err_clear(&ignored); /* it is gone, which the next question finds */
}
