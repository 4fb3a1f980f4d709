/*
 * ship_table.h - what the ship_*.c files share: the tables of files and checkpoints.
 *
 * One lock protects them. It is never held across a call of the store, of the host or of the file
 * system; who gave it up looks things up again, but the sender of an entry (SHIP_SENDING) and the
 * publisher with its checkpoint: those stay.
 */
#ifndef SHIP_TABLE_H
#define SHIP_TABLE_H

#include "base/fs.h"
#include "base/sync.h"
#include "core/ckpt_rule.h"
#include "format/set.h"
#include "run/ship.h"

#include <sys/queue.h>

#define SHIP_REST_MS 500                  /* a file is sent when it has not changed for so long */
#define SHIP_ALONE_MS 2000                /* ... of a checkpoint that is one file */
#define SHIP_RESERVE ((uint64_t)64 << 20) /* of the disk: never taken by copies in the spool */
#define SHIP_PROBE_MS 1000                /* between two samples of a file that changes */
#define SHIP_LOG_MS 300000                /* between two sendings of a log that grows */
#define SHIP_GONE_MS 2000                 /* a folder that is being removed goes file by file */
#define SHIP_WORLD_MAX_MS 60000
#define SHIP_WORLD_MS 5000    /* between two looks for the number of ranks */
#define SHIP_WATCHES_MAX 4096 /* folders that inotify watches */
#define SHIP_FOLDERS_MAX 100000
#define SHIP_LITTER_MAX ((size_t)64 << 20) /* names of objects to remove */
#define SHIP_BATCH 512                     /* files that are looked at without the lock at a time */

/* Of an entry; only ship_entry_to() writes it. WAIT: until it rests. LOST: no try of ours will
 * bring it; only another content will. */
enum ship_state { SHIP_WAIT, SHIP_QUEUED, SHIP_SENDING, SHIP_SENT, SHIP_LOST };
#define SHIP_STATE_COUNT (SHIP_LOST + 1)

struct ship_group;

/* A file's content, as far as stat tells it. ctime: as it was before our own link set it. */
struct ship_fact {
	uint64_t ino, dev; /* first: together they are a key, ship_inode() */
	uint64_t size, blocks;
	int64_t mtime_ns, ctime_ns;
};

/* Result of a structure check; shared, freed with its last reference (under the lock). */
struct ship_check {
	unsigned refs;
	struct format_result r;
	int64_t ms; /* wall */
};

struct ship_entry {
	unsigned magic;
#define SHIP_ENTRY_MAGIC 0x53484945U
	TAILQ_ENTRY(ship_entry) link;  /* all */
	TAILQ_ENTRY(ship_entry) peer;  /* of its group */
	TAILQ_ENTRY(ship_entry) queue; /* when SHIP_QUEUED: in queued_small or queued_large */
	bool small;                    /* which of them */
	char *path;
	struct ship_group *group;
	enum format_name kind;
	enum ship_state state;

	/* as the walker sees it */
	struct ship_fact fact;
	int64_t base_ctime_ns; /* as of the last look: another one means another content */
	uint64_t links;
	uint64_t walk, first_walk, changed_walk; /* numbers of walks */
	uint64_t again_walk; /* that saw it written anew; 0: it has only grown */
	int64_t changed_ms;  /* monotonic */
	int64_t began_ms;    /* wall: when its present content was first seen to come; 0 */
	bool gone;
	bool writer, closed;         /* by the last sample; closed: none since the last change */
	bool left_open;              /* a process that outlived the commands had it open */
	int64_t probe_ms, writer_ms; /* of the last sample; of the last that found one */
	uint64_t writer_size;        /* of the file, when that one was found */
	struct ship_fact was_closed; /* by the journal: no writer when it was this */

	/* in the spool */
	uint64_t id;    /* its name there, 0 = not linked */
	bool own;       /* a copy: nobody writes into it */
	bool forgotten; /* by the folder's project: it does not count for the volume any more */
	bool relink;    /* what is there now is not what the spool has */
	int link_fault; /* errno: why the last link could not be made; 0 */
	bool rewritten; /* it changed while it was sent: the next time it is copied first */

	/* as it is judged and sent */
	struct ship_check *check; /* of `checked`; NULL = not looked at */
	struct ship_fact checked;
	bool dirty;      /* it changed while it was being sent */
	bool quarantine; /* `sent` is a whole one of before: it is written over already */
	bool hole;       /* it has not all the blocks that its size promises */
	bool look_only;  /* it is stored: only its format is wanted */
	bool stored;     /* `sent` is in the store: at its path, or as part of a revision */
	struct ship_fact sent;
	struct digest sha256;
	uint32_t revision; /* 0 = at its path */
	int64_t sent_ms;   /* monotonic */
	uint64_t progress; /* bytes of the one being sent */
	char *fault;       /* why it cannot be read or stored, in words; NULL */
	bool refused;      /* ... and no try will change that */
	int64_t retry_ms;  /* monotonic: not before */
};
TAILQ_HEAD(ship_entries, ship_entry);

/* The manifest that the store has of a checkpoint. */
struct ship_base {
	bool known, there; /* it was asked for; there is one */
	struct arena *a;
	struct ckpt c;
};

struct ship_group {
	TAILQ_ENTRY(ship_group) link;
	struct ship_entries entries;
	char *name;
	char *lineage;   /* the name with its numbers taken out: siblings have the same */
	int64_t seen_ms; /* first, by the wall clock */
	struct ship_base base;
	struct ckpt_verdict verdict;
	bool judged; /* `verdict` is one */
	int64_t judged_ms;
	bool news;            /* something changed since */
	int64_t due_ms;       /* or when to judge again; INT64_MAX = never */
	bool written;         /* the store's manifest says what the verdict says */
	bool reported;        /* the host has heard of it from us */
	bool moving;          /* files of its new revision are still to get to their paths */
	bool was_written;     /* by the journal */
	bool stale;           /* `set` is of before the last change of its files */
	struct ship_set *set; /* ship_judge.c; NULL = not looked at */
	uint64_t version;     /* of its content: one more with each change */
	uint32_t stage;       /* the last number of a revision's folder: none is used twice */
	struct buf litter;    /* objects, below the rank's folder, that no manifest names; NUL */
	bool refused;         /* its manifest cannot be stored, and was said */
	int64_t changed_ms;   /* monotonic: anything in it */
	uint64_t grown_walk;  /* number of the last walk that saw it grow or change */
	uint64_t gone_walk;   /* ... that first saw something of it vanish, 0 = none */
	uint64_t moved_walk;  /* ... that saw the folder get its name; 0 = none */
	char *fault_path, *fault; /* a folder of it that cannot be read, or a name; NULL */
	uint64_t fault_walk;      /* when that was seen last */
	const struct set_layout *layout;
	uint64_t told_bytes;
	int64_t told_ms, retry_ms; /* retry_ms: not before, after the store refused */
	char told[CKPT_REASON_MAX];
};
TAILQ_HEAD(ship_groups, ship_group);

/* The last complete checkpoint of a lineage: what the next ones are compared with. */
struct ship_sibling {
	unsigned magic;
#define SHIP_SIBLING_MAGIC 0x52534849U
	struct arena *a;
	const char *name, *base; /* base: the last part of it */
	const char **file;
	size_t n;
};

struct ship_watch; /* ship_watch.c */
struct ship_set;   /* ship_judge.c */

struct ship {
	unsigned magic;
#define SHIP_MAGIC 0x53484950U
	struct ship_options o;
	int dir_fd, spool_fd, journal_fd;
	uint64_t journal_bytes, journal_most; /* most: where it is written anew */
	struct lock lock;                     /* of all below */
	struct cond changed;
	struct map *entries; /* path -> struct ship_entry */
	struct map *groups;
	struct map *inodes;   /* device and inode -> the entry that was seen last with it */
	struct map *stored;   /* ... that was sent last */
	struct map *folders;  /* ... of a folder -> its path */
	struct map *siblings; /* lineage -> struct ship_sibling */
	struct map *odd;      /* path -> why it is not kept, in words: ours to free */
	size_t odd_said;
	struct ship_entries all, queued_small, queued_large;
	struct ship_groups list;
	uint64_t walk, next_id, n_entries;
	uint64_t *doomed; /* files of the spool that nobody needs any more */
	size_t n_doomed, cap_doomed;
	uint64_t dropped_files, dropped_bytes; /* of rotated checkpoints, all in the store */
	bool final, ok, done, finished, lost;
	bool walked_final;    /* all that the trainer left is in the tables */
	bool last_look;       /* wanted: the commands have ended, their processes may not have */
	bool remote;          /* neither leases nor inotify: row 11 */
	bool network, blind;  /* a remote file system; not all of it is watched by inotify */
	bool probe_now;       /* a descriptor was closed: who is left? */
	atomic_bool no_lease; /* not ours to have: descriptors are looked at instead */
	atomic_bool no_clone; /* the file system shares no extents */
	int64_t died_ms;      /* monotonic: when the trainer ended */
	int64_t pause_ms;     /* longest pause within a checkpoint so far */
	uint32_t world;       /* ranks of the job; 0 = not known */
	int64_t world_ms, world_pause_ms;
	int warned;          /* percent */
	uint64_t most_bytes; /* of one checkpoint */
	int64_t space_ms, trouble_ms;
	bool too_many;
	struct ship_watch *watch; /* NULL = none */
	bool woken;               /* inotify has news */
	struct buf moved;         /* folders that got their name by a rename, each with a NUL */
	size_t moved_late;        /* bytes of it that the last walk has left */
	pthread_t walker, publisher, sender[SHIP_SENDERS];
	atomic_bool halt; /* cancels what is being sent */
};

/* The argument of its threads. */
static inline struct ship *ship_at(void *p)
{
	return FROM_VOID(struct ship, p, SHIP_MAGIC);
}

/* ship.c */
/* Asserts what is true whenever its lock is free; with the lock. */
void ship_check(const struct ship *s);
void ship_wait_ms(struct ship *s, int64_t ms); /* with the lock; a change ends it */
/* Says it as a warning, but not more than once a minute. Without the lock. */
void ship_trouble(struct ship *s, const char *what, const struct err *why);

/* ship_table.c: with the lock */
struct ship_group *ship_group_of(struct ship *s, const char *name); /* made when new */
struct ship_entry *ship_entry_of(struct ship *s, struct str path);  /* made when new */
/* The only way from one state to the next. Who enters SHIP_QUEUED is put into the queue of its
 * size, and who leaves it is taken out. */
void ship_entry_to(struct ship *s, struct ship_entry *e, enum ship_state to);
void ship_entry_check(const struct ship_entry *e);
bool ship_entry_drop(struct ship *s, struct ship_entry *e); /* false: it is in use */
/* What was last seen of its content, and what of it is stored. By the file that it was before it is
 * not found any more: another file may have its inode by then. */
void ship_entry_seen(struct ship *s, struct ship_entry *e, const struct ship_fact *is);
void ship_entry_sent(struct ship *s, struct ship_entry *e, const struct ship_fact *is);
void ship_entry_fault(struct ship_entry *e, bool for_good, const char *fmt, ...) PRINTF(3, 4);
void ship_group_fault(struct ship *s, struct ship_group *g, struct str path, const char *why);
void ship_note_odd(struct ship *s, struct str path, const char *why);
void ship_note_moved(struct ship *s, struct str path); /* a folder got this name by a rename */
void ship_check_done(struct ship_check *c);            /* lets go; NULL is fine */
struct ship_fact ship_fact_of(const struct stat *st);
struct str ship_inode(const struct ship_fact *f);
bool ship_same(const struct ship_fact *a, const struct ship_fact *b); /* content, as stat tells */
bool ship_counts(const struct ship_entry *e); /* takes part in the verdict */
/* Its path in the checkpoint: "model.safetensors". */
const char *ship_inner(const struct ship_group *g, const char *path);
void ship_tables_open(struct ship *s); /* empty */
void ship_tables_free(struct ship *s);
void ship_say_odd(struct ship *s); /* without the lock */

/* ship_walk.c: one look at the folder, without the lock; true when something changed. */
bool ship_walk(struct ship *s);
/* ship_watch.c: inotify, so that a look follows what happens. */
void ship_watch_start(struct ship *s);
void ship_watch_folder(struct ship *s, int dirfd, const char *path); /* "" = the root */
/* Takes note of all that has happened; with the lock. False: no more can be read. */
bool ship_watch_take(struct ship *s);
void ship_watch_stop(struct ship *s);
/* ship_probe.c: who writes? Without the lock. */
void ship_probe(struct ship *s);
enum ship_writer { SHIP_WRITER_NONE, SHIP_WRITER, SHIP_WRITER_UNKNOWN };
enum ship_writer ship_probe_fd(struct ship *s, int fd);
/* ship_spool.c: links and copies. Without the lock. */
/* False: there is no link, by the errno in *why, or because the file is not there any more (0). */
bool ship_spool_link(struct ship *s, int dirfd, const char *name, uint64_t id,
                     const struct ship_fact *seen, struct stat *after, int *why);
void ship_spool_doom(struct ship *s, uint64_t id); /* with the lock: it goes at the next sweep */
void ship_spool_sweep(struct ship *s);
/* The file itself: its link in the spool, else its place; a plain file, opened without waiting.
 * -1: it is not there, or not plain (errno). */
int ship_open(struct ship *s, uint64_t id, const char *path);
/* The folder's project forgets the spool's file, which has no other name and which nobody writes.
 * False: not yet. */
bool ship_spool_forget(struct ship *s, uint64_t id);
/* Makes the spool's file of e one that nobody writes into; *fd becomes its descriptor. */
bool ship_spool_own(struct ship *s, uint64_t id, bool copy, int *fd);
/* ship_journal.c */
void ship_journal_sent(struct ship *s, const struct ship_entry *e);
void ship_journal_link(struct ship *s, const struct ship_entry *e);
void ship_journal_closed(struct ship *s, const struct ship_entry *e);
void ship_journal_group(struct ship *s, const struct ship_group *g);
int ship_journal_read(struct ship *s, struct err *err) MUST_CHECK;
int ship_journal_open(struct ship *s, struct err *err) MUST_CHECK;
void ship_journal_tidy(struct ship *s); /* one that has grown long is written anew */
/* ship_send.c */
void *ship_sender(void *ship);       /* takes any file */
void *ship_small_sender(void *ship); /* takes small ones only */
/* ship_judge.c: facts of a group, and the verdict; with the lock. */
void ship_judge(struct ship *s, struct ship_group *g);
void ship_sibling_set(struct ship *s, const struct ship_group *g, const struct ckpt *c);
void ship_set_free(struct ship_set *x);
const char *ship_trainer(const struct ship_group *g); /* NULL = not known */
bool ship_is_live(const struct ship_group *g);        /* something of it is in the folder */
bool ship_is_logs(const struct ship_group *g);        /* nothing but logs and pointers */
bool ship_is_complete(const struct ship_group *g);    /* by the manifest in the store */
bool ship_is_as_base(const struct ship_group *g);     /* ... and has not changed since */
/* ... and yet was saved anew, with the same content: nodes of a job that save together. */
bool ship_is_saved_anew(const struct ship *s, const struct ship_group *g);
/* The entry of a file in that manifest; NULL: it is not complete, or does not name it. */
const struct manifest_file *ship_in_base(const struct ship_group *g, const char *path);
/* ship_publish.c: manifests, revisions and reports; with the lock, which is given up meanwhile.
 * False: the store is away, g->retry_ms says when to try again. */
bool ship_load_base(struct ship *s, struct ship_group *g);
bool ship_publish(struct ship *s, struct ship_group *g);
bool ship_withdraw(struct ship *s, struct ship_group *g);
bool ship_move(struct ship *s, struct ship_group *g);
void ship_litter(struct ship_group *g, const char *at); /* no lock is given up */
void ship_tell(struct ship *s, struct ship_group *g);
/* ship_group.c: which checkpoints are due. */
void ship_groups_step(struct ship *s);
bool ship_all_done(struct ship *s);
/* ship_space.c, without the lock */
/* The trainer is gone and the disk is full: what is in the store leaves the folder. True: something
 * did. */
bool ship_make_room(struct ship *s);
void ship_check_space(struct ship *s);

#endif
