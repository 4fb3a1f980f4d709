/*
 * ship_journal.c - what was linked and sent, a line each, in the spool: a shipper that was killed
 * goes on where it was.
 *
 *   L <id> <path>                              linked
 *   C <inode> <size> <mtime> <ctime> <path>    nobody wrote into it any more; ctime as it was
 *                                              before our link set it: the order of files
 *   R <revision> <path>                        what follows is in a revision's folder, 0 = not
 *   S <inode> <size> <mtime> <sha256> <path>   sent
 *   M <state> <checkpoint>                     its manifest says so; SYNCING: there is none
 *
 * A line that is lost costs a second sending or a doubt, no more.
 */
#include "base/map.h"
#include "run/ship_table.h"

#define JOURNAL "journal"
#define JOURNAL_LINE_MAX ((size_t)FS_PATH_MAX + 256)
#define JOURNAL_LONG ((uint64_t)32 << 20) /* then what is not true any more goes */

static void journal(struct ship *s, const struct buf *line)
{
	struct err err = {0};

	s->journal_bytes += line->n;
	/* a cut line would spoil the next */
	if (s->journal_fd >= 0 && fs_write_all(s->journal_fd, line->p, line->n, &err) < 0) {
		(void)close(s->journal_fd);
		s->journal_fd = -1;
	}
}

static void add_link(struct buf *line, const struct ship_entry *e)
{
	buf_printf(line, "L %" PRIu64 " %s\n", e->id, e->path);
}

static void add_closed(struct buf *line, const struct ship_entry *e)
{
	buf_printf(line, "C %" PRIu64 " %" PRIu64 " %" PRId64 " %" PRId64 " %s\n", e->fact.ino,
	           e->fact.size, e->fact.mtime_ns, e->fact.ctime_ns, e->path);
}

static void add_sent(struct buf *line, const struct ship_entry *e)
{
	char hex[HASH_HEX_CAP];

	digest_hex(&e->sha256, hex);
	buf_printf(line, "R %" PRIu32 " %s\n", e->revision, e->path);
	buf_printf(line, "S %" PRIu64 " %" PRIu64 " %" PRId64 " %s %s\n", e->sent.ino, e->sent.size,
	           e->sent.mtime_ns, hex, e->path);
}

static void add_group(struct buf *line, const struct ship_group *g)
{
	buf_printf(line, "M %s %s\n", ckpt_state_word(g->verdict.state), g->name);
}

void ship_journal_link(struct ship *s, const struct ship_entry *e)
{
	AUTO_BUF struct buf line = BUF_INIT(JOURNAL_LINE_MAX);

	add_link(&line, e);
	journal(s, &line);
}

void ship_journal_closed(struct ship *s, const struct ship_entry *e)
{
	AUTO_BUF struct buf line = BUF_INIT(JOURNAL_LINE_MAX);

	add_closed(&line, e);
	journal(s, &line);
}

void ship_journal_sent(struct ship *s, const struct ship_entry *e)
{
	AUTO_BUF struct buf line = BUF_INIT(2 * JOURNAL_LINE_MAX);

	add_sent(&line, e);
	journal(s, &line);
}

void ship_journal_group(struct ship *s, const struct ship_group *g)
{
	AUTO_BUF struct buf line = BUF_INIT(JOURNAL_LINE_MAX);

	add_group(&line, g);
	journal(s, &line);
}

/* A long job that writes over its files says the same again and again. */
void ship_journal_tidy(struct ship *s)
{
	AUTO_BUF struct buf all = BUF_INIT(SHIP_JOURNAL_MAX);
	struct ship_entry *e = NULL;
	struct ship_group *g = NULL;
	struct err err = {0};
	int fd;

	if (s->journal_fd < 0 || s->journal_bytes < MAX(s->journal_most, JOURNAL_LONG))
		return;
	TAILQ_FOREACH(g, &s->list, link)
	if (g->judged && g->written)
		add_group(&all, g);
	TAILQ_FOREACH(e, &s->all, link)
	{
		if (e->id > 0)
			add_link(&all, e);
		if (e->closed)
			add_closed(&all, e);
		if (e->stored && !e->quarantine && e->state == SHIP_SENT)
			add_sent(&all, e);
	}
	s->journal_most = 4 * all.n;
	if (all.full || fs_write_atomic(s->spool_fd, JOURNAL, buf_view(&all), 0600, &err) < 0)
		return;
	fd = openat(s->spool_fd, JOURNAL, O_WRONLY | O_APPEND | O_CLOEXEC);
	(void)close(s->journal_fd);
	s->journal_fd = fd;
	s->journal_bytes = all.n;
}

int ship_journal_open(struct ship *s, struct err *err)
{
	struct stat st;
	char last = '\n';

	s->journal_fd = openat(s->spool_fd, JOURNAL,
	                       O_RDWR | O_CREAT | O_APPEND | O_NOFOLLOW | O_CLOEXEC, 0600);
	if (s->journal_fd < 0 || fstat(s->journal_fd, &st) < 0)
		return err_errno(err, errno, "%s/" JOURNAL, s->o.spool);
	s->journal_bytes = (uint64_t)st.st_size;
	/* a line that was cut by a crash ends here */
	if (st.st_size > 0 && pread(s->journal_fd, &last, 1, st.st_size - 1) == 1 && last != '\n')
		return fs_write_all(s->journal_fd, "\n", 1, err);
	return 0;
}

/* ---- reading -----------------------------------------------------------------------------------
 */

static bool take_u64(struct str *line, uint64_t *out)
{
	struct str word;
	struct err err = {0};

	return str_cut(line, ' ', &word) && str_u64(word, 0, INT64_MAX, out, &err) == 0;
}

/* The rest of a line is a path that can be kept; its entry. */
static struct ship_entry *entry(struct ship *s, struct str path)
{
	if (ckpt_path_fault(path) != NULL || s->n_entries >= CKPT_FILES_MAX)
		return NULL;
	return ship_entry_of(s, path);
}

static void read_link(struct ship *s, struct str line)
{
	struct ship_entry *e = NULL;
	struct stat st;
	uint64_t id = 0;
	char name[32];

	if (!take_u64(&line, &id) || id == 0)
		return;
	s->next_id = MAX(s->next_id, id + 1);
	FMT(name, "%" PRIu64, id);
	if (fstatat(s->spool_fd, name, &st, AT_SYMLINK_NOFOLLOW) < 0 || !S_ISREG(st.st_mode))
		return;
	e = entry(s, line);
	if (e != NULL)
		e->id = id;
}

static bool take_fact(struct str *line, struct ship_fact *f)
{
	uint64_t mtime = 0;

	*f = (struct ship_fact){0};
	if (!take_u64(line, &f->ino) || !take_u64(line, &f->size) || !take_u64(line, &mtime))
		return false;
	f->mtime_ns = (int64_t)mtime;
	return true;
}

static void read_closed(struct ship *s, struct str line)
{
	struct ship_entry *e = NULL;
	struct ship_fact f;
	uint64_t ctime = 0;

	if (!take_fact(&line, &f) || !take_u64(&line, &ctime))
		return;
	f.ctime_ns = (int64_t)ctime;
	e = entry(s, line);
	if (e != NULL)
		e->was_closed = f;
}

static void read_revision(struct ship *s, struct str line)
{
	struct ship_entry *e = NULL;
	uint64_t revision = 0;

	if (!take_u64(&line, &revision) || revision > UINT32_MAX)
		return;
	e = entry(s, line);
	if (e == NULL)
		return;
	e->revision = (uint32_t)revision;
	e->group->stage = MAX(e->group->stage, e->revision);
}

static void read_sent(struct ship *s, struct str line)
{
	struct ship_entry *e = NULL;
	struct ship_fact f;
	struct digest d;
	struct str hex;
	struct err err = {0};

	if (!take_fact(&line, &f) || !str_cut(&line, ' ', &hex) || digest_parse(hex, &d, &err) < 0)
		return;
	e = entry(s, line);
	if (e == NULL)
		return;
	e->sha256 = d;
	e->sent = f;
	e->stored = true;
	ship_entry_to(s, e, SHIP_SENT);
}

/* The last word counts. */
static void read_group(struct ship *s, struct str line)
{
	enum ckpt_state state = CKPT_SYNCING;
	struct str word;
	struct err err = {0};
	char name[CKPT_NAME_MAX];

	if (!str_cut(&line, ' ', &word) || ckpt_state_parse(word, &state, &err) < 0 ||
	    str_copy(line, name, sizeof(name), "checkpoint", &err) < 0)
		return;
	ship_group_of(s, name)->was_written = state != CKPT_SYNCING;
}

/* A line that was cut by a crash names nothing that exists. */
int ship_journal_read(struct ship *s, struct err *err)
{
	static const struct {
		const char *start;
		void (*read)(struct ship *s, struct str line);
	} lines[] = {
		{"L ", read_link}, {"C ", read_closed}, {"R ", read_revision},
		{"S ", read_sent}, {"M ", read_group},
	};
	AUTO_BUF struct buf body = BUF_INIT(SHIP_JOURNAL_MAX);
	struct ship_entry *e = NULL;
	struct str rest, line;

	if (fs_read(s->spool_fd, JOURNAL, &body, err) < 0) {
		if (err->code != ERR_NOT_FOUND)
			return -1;
		err_clear(err);
		return 0;
	}
	rest = buf_view(&body);
	while (str_cut(&rest, '\n', &line)) {
		for (size_t i = 0; i < COUNT(lines); i++)
			if (str_starts(line, lines[i].start))
				lines[i].read(s, str_skip(line, 2));
	}
	TAILQ_FOREACH(e, &s->all, link)
	{
		e->first_walk = e->changed_walk = 1; /* before our own first one */
		ship_entry_seen(s, e, &e->sent);
		if (ship_same(&e->was_closed, &e->fact))
			e->fact.ctime_ns = e->was_closed.ctime_ns;
		e->closed = e->stored;
	}
	return 0;
}
