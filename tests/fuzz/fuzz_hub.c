/* fuzz_hub.c - a list of a repository's files that is read is written so that it reads the same. */
#include "core/hub.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
	AUTO_ARENA struct arena *a = arena_new();
	AUTO_BUF struct buf one = BUF_INIT(HUB_LISTING_MAX), two = BUF_INIT(HUB_LISTING_MAX);
	struct hub_listing l, again;
	struct err err = {0};

	if (hub_listing_read(a, str_n((const char *)data, n), &l, &err) < 0)
		return 0;
	hub_listing_write(&l, &one);
	if (hub_listing_read(a, buf_view(&one), &again, &err) < 0)
		assert(false && "what was written cannot be read");
	hub_listing_write(&again, &two);
	assert(str_same(buf_view(&one), buf_view(&two)));
	for (size_t i = 0; i < l.n; i++) {
		assert(hub_listing_file(&l, str_of(l.file[i].path)) == &l.file[i]);
		assert(memcmp(l.file[i].oid, again.file[i].oid, HUB_OID_LEN) == 0);
	}
	for (size_t i = 0; i < l.n_folders; i++)
		assert(hub_listing_folder(&l, str_of(l.folder[i].path)) == &l.folder[i]);
	return 0;
}
