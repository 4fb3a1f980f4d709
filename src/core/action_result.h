/*
 * action_result.h - what a Bazel action has made, without I/O: of the two messages of its remote
 * execution API (protocol buffers) that name content, just the digests.
 *
 * An ActionResult is only worth something with the content that it names: output files, stdout and
 * stderr, and for an output directory a Tree, which names its files in turn. Content of no bytes is
 * always there, and what a message carries itself need not be.
 */
#ifndef ACTION_RESULT_H
#define ACTION_RESULT_H

#include "base/arena.h"
#include "base/hash.h"

#define ACTION_RESULT_MAX ((size_t)16 << 20) /* bytes of one */
#define ACTION_TREE_MAX ((size_t)64 << 20)   /* of all Trees of one together */

struct action_content {
	struct digest sha256;
	uint64_t bytes; /* as the message says */
};

struct action_result {
	struct action_content *content; /* files, stdout, stderr, trees */
	size_t n;
	struct action_content *tree; /* those that are trees */
	size_t n_trees;
};

/* In the arena. ERR_INVALID: it is no such message, with what is wrong. */
int action_result_read(struct arena *a, struct str bytes, struct action_result *out,
                       struct err *err) MUST_CHECK;
/* The files of a Tree: out->content; there are no trees in a tree. */
int action_tree_read(struct arena *a, struct str bytes, struct action_result *out,
                     struct err *err) MUST_CHECK;

#endif
