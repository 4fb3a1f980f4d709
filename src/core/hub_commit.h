/*
 * hub_commit.h - what a client of a Hub sends to commit: lines of JSON, of which one may hold a
 * file of any size as base64, so that nothing is ever read into memory whole. Bytes are fed as they
 * come; what a line says is handed out when it ends, and the content of a file before, piece by
 * piece, decoded.
 *
 *   {"key":"header","value":{"summary":"...","description":"...","parentCommit":"<40 hex>",
 *                            "addOnly":true}}
 *   {"key":"file","value":{"content":"<base64>","path":"a/b","encoding":"base64"}}
 *   {"key":"lfsFile","value":{"path":"a","algo":"sha256","oid":"<64 hex>","size":1}}
 *   {"key":"deletedFile","value":{"path":"a"}}   {"key":"deletedFolder","value":{"path":"a/"}}
 *
 * addOnly is of this server alone: what is there stays as it is, and a line whose path is that of a
 * file or a folder, or leads through a file, is passed over.
 * Keys come in any order, those that are not known are skipped (with any value, to a bounded
 * depth), empty lines mean nothing. The protocol is that of huggingface_hub, _commit_api.py.
 */
#ifndef HUB_COMMIT_H
#define HUB_COMMIT_H

#include "core/hub.h"

#define HUB_COMMIT_LINES_MAX 50000             /* of one commit, behind its header */
#define HUB_COMMIT_TEXT_MAX ((size_t)64 << 10) /* bytes of any text but a content */

struct hub_line {
	enum hub_line_kind {
		HUB_LINE_HEADER,
		HUB_LINE_FILE,
		HUB_LINE_LFS_FILE,
		HUB_LINE_DELETED_FILE,
		HUB_LINE_DELETED_FOLDER,
	} kind;
	/* header; "" where it does not say */
	const char *summary, *description, *parent; /* parent: 40 hex, lower case, or "" */
	bool add_only;
	/* of the others: plain (manifest_path_ok) and not below .git; a folder without its slash */
	const char *path;
	struct digest oid; /* lfsFile */
	bool has_size;
	uint64_t size;
};

struct hub_commit_sink {
	/* A content begins (n 0, p NULL), or n bytes of it. It belongs to the line that `line` is
	 * called for next. */
	int (*content)(void *arg, const void *p, size_t n, struct err *err);
	/* Texts are valid until it returns. `had_content`: content was called for this line. */
	int (*line)(void *arg, const struct hub_line *l, bool had_content, struct err *err);
	void *arg;
};

/* Can a file have this path in a repository? */
bool hub_commit_path_ok(struct str path);

struct hub_commit_reader;

struct hub_commit_reader *hub_commit_reader_new(const struct hub_commit_sink *sink) MUST_CHECK;
void hub_commit_reader_free(struct hub_commit_reader *r); /* NULL is fine */
DEFINE_CLEANUP(struct hub_commit_reader, hub_commit_reader_free)
#define AUTO_HUB_COMMIT_READER CLEANUP(hub_commit_reader_free_p)

/* The next bytes. ERR_INVALID names the line (from 1) and what is wrong: no JSON, a key that is
 * missing or of another kind, an encoding that is not base64, content of a line that is no file, a
 * path that is not plain, a second header, a header that is not the first line. ERR_TOO_BIG: a
 * bound. What a sink fails with ends it, too. */
int hub_commit_feed(struct hub_commit_reader *r, const void *p, size_t n,
                    struct err *err) MUST_CHECK;
/* No more bytes come: the last line may lack its newline. ERR_INVALID: it ends inside of a line, or
 * there was no header. */
int hub_commit_end(struct hub_commit_reader *r, struct err *err) MUST_CHECK;

#endif
