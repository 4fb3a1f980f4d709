/* ship_table.h - what ship_walk.c (looks), ship_group.c (decides) and ship_send.c (sends) share. */
#ifndef SHIP_TABLE_H
#define SHIP_TABLE_H

#include "base/fs.h"
#include "run/ship.h"

#include <pthread.h>
#include <sys/queue.h>

enum ship_state { SHIP_WAIT, SHIP_QUEUED, SHIP_SENDING, SHIP_SENT, SHIP_LOST };

struct ship_group;

struct ship_entry {
	TAILQ_ENTRY(ship_entry) link;  /* all */
	TAILQ_ENTRY(ship_entry) peer;  /* of its group */
	TAILQ_ENTRY(ship_entry) queue; /* when SHIP_QUEUED */
	char *path;
	struct ship_group *group;
	struct ckpt_fact fact;
	enum ship_state state;
	uint64_t id;                 /* name in the spool, 0 = not linked */
	uint64_t walk;               /* number of the last walk that saw it */
	bool temporary, gone, dirty; /* dirty: changed while it was being sent */
	struct ckpt_fact sent;       /* what was sent */
	struct digest sha256;
	uint64_t progress; /* bytes of the one being sent */
};
TAILQ_HEAD(ship_entries, ship_entry);

struct ship_group {
	TAILQ_ENTRY(ship_group) link;
	struct ship_entries entries;
	char *name;
	enum ckpt_state state;
	bool manifest;             /* it is in the store, and says `state` */
	bool reported;             /* the host has heard of it from us */
	int64_t changed_ms;        /* monotonic: anything in it */
	uint64_t grown_walk;       /* number of the last walk that saw it grow or change */
	uint64_t gone_walk;        /* ... that first saw something of it vanish, 0 = none */
	uint64_t told_bytes;       /* bytes_sent of the last report */
	int64_t told_ms, retry_ms; /* retry_ms: not before, after the store refused the manifest */
};
TAILQ_HEAD(ship_groups, ship_group);

struct ship {
	struct ship_options o;
	int dir_fd, spool_fd, journal_fd;
	int alive_fd; /* touched at each look: when the trainer was last alive; -1 = it is dead */
	pthread_mutex_t lock; /* of all below */
	pthread_cond_t changed;
	struct map *entries; /* path -> struct ship_entry */
	struct map *groups;
	struct map *odd; /* path -> why it cannot be kept, in words */
	size_t odd_said;
	struct ship_entries all, queued;
	struct ship_groups list;
	uint64_t walk, next_id, n_entries;
	uint64_t dropped_files, dropped_bytes; /* of rotated checkpoints, all in the store */
	bool final, ok, done, finished, lost;
	bool walked_final;   /* all that the trainer left is in the tables */
	int64_t died_ms;     /* monotonic: when the trainer ended */
	int warned;          /* percent */
	uint64_t most_bytes; /* of one checkpoint */
	int64_t space_ms, trouble_ms;
	bool too_many;
	pthread_t walker, clerk, sender[SHIP_SENDERS];
	atomic_bool halt; /* cancels what is being sent */
};

/* ship_walk.c: one look at the folder; true when something changed. */
bool ship_walk(struct ship *s);
struct ship_group *ship_group_of(struct ship *s, const char *name); /* made when new */
struct ship_entry *ship_entry_of(struct ship *s, struct str path);  /* made when new */
void ship_entry_drop(struct ship *s, struct ship_entry *e);
void ship_check_space(struct ship *s);
void ship_say_odd(struct ship *s); /* without the lock */
/* ship_send.c */
void *ship_sender(void *ship);
void ship_journal_sent(struct ship *s, const struct ship_entry *e);
void ship_journal_link(struct ship *s, const struct ship_entry *e);
void ship_journal_group(struct ship *s, const struct ship_group *g);
/* Says it as a warning, but not more than once a minute. Without the lock. */
void ship_trouble(struct ship *s, const char *what, const struct err *why);
int ship_journal_read(struct ship *s, struct err *err) MUST_CHECK;
/* The file itself: its link in the spool, else its place. fd or -1. */
int ship_open(struct ship *s, uint64_t id, const char *path);
/* ship_group.c: which checkpoints are due, their manifests and reports. */
void ship_groups_step(struct ship *s);
bool ship_all_done(struct ship *s);

#endif
