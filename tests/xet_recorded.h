/*
 * xet_recorded.h - what real clients have sent; it is the corpus of the fuzzers, too. The files in
 * four and footer are the same: one.bin, text.txt, weights.bin and random.bin.
 *   xorbs:  one, four, zeros: hf_xet 1.8.0; footer: 1.1.3, which sends one
 *   shards: four, zeros (each of its terms is the same chunk), tree (58 chunks in a xorb), again
 *           (files whose xorbs were sent before), empty (a file without bytes): 1.8.0; footer:
 *           1.1.3; footer-promised: 1.2.0
 */
#ifndef XET_RECORDED_H
#define XET_RECORDED_H

#include "base/fs.h"
#include "core/xet.h"
#include "unit.h"

#define XORB_FOUR "cf5a15c59ba08c7ac3b79d4b846f306baab30dd7dd7d3f3db25aa67c2ba1e32e"
#define XORB_FOOTER "b9a6392afbd40e210010a51b98fc72244b0b8aa5baf7dd34d670e09e077ae99a"
#define XORB_ZEROS "6e8449b4aac8c36e4e6d69cca1897f25a9e15c8a93bb6c5381e985bc04401116"
#define XORB_ONE "06ce6a7a21b7b0a1d5f78961c0121bad538b70f033b096dfa588f37bc0805276"
#define FILE_ONE "ee8f129a399d20f10cae506c65e70831a63945b2cf619d39bb4eae90736fd8d7"
#define FILE_TEXT "4a598f9817302a07d01213e3a94131730118a9eba2ea762a230293d355e61a8f"
#define FILE_WEIGHTS "485f8bb607463f0e93bc9c8dc780551ca259ce56e020b964b40231c618b16ca5"
#define FILE_RANDOM "dc804e2eeaeb33af8f2124d3eb804d1b914eae0793fe831e32c2e967b2801994"
#define FILE_ZEROS "f1107de85e83ca5361f5bb666fbbb203926efb6d69a4362e426ca4c9755907d2"

/* kind: "xorb" or "shard". */
static inline void recorded(const char *kind, const char *name, struct buf *out)
{
	const char *root = getenv("SOURCE_DIR");
	AUTO_FREE char *path = NULL;
	struct err err = {0};

	if (root == NULL)
		fail_msg("SOURCE_DIR is not set; run by meson test");
	path = xasprintf("%s/tests/fuzz/corpus/xet_%s/%s", root, kind, name);
	*out = (struct buf)BUF_INIT((size_t)1 << 20);
	assert_ok(fs_read(AT_FDCWD, path, out, &err), &err);
}

static inline void hash_is(struct xet_hash h, const char *want)
{
	char text[XET_HASH_CAP];

	xet_hash_text(&h, text);
	assert_string_equal(text, want);
}

#endif
