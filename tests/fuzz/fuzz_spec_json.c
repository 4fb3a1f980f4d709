/* fuzz_spec_json.c - a specification from the body of a request. */
#include "fuzz/fuzz_spec.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
	AUTO_ARENA struct arena *a = arena_new();
	const struct doc *d;
	struct job_spec stored;
	struct err err = {0};

	if (js_parse(a, str_n((const char *)data, n), &d, &err) == 0)
		fuzz_spec(a, d, SPEC_API);
	err_clear(&err);
	if (spec_read_stored(a, arena_strz(a, str_n((const char *)data, n)), &stored, &err) == 0) {
		/* What others rely on without looking again. */
		for (size_t i = 0; i < stored.n_weights; i++)
			assert(stored.weights[i].source && stored.weights[i].mount_location);
		for (size_t i = 0; i < stored.load.n_refs; i++)
			assert(stored.load.refs[i].latest || stored.load.refs[i].name);
		for (size_t i = 0; i < stored.n_notify; i++)
			assert(stored.notify[i].webhook);
		assert(stored.n_weights <= SPEC_WEIGHTS_MAX && stored.retry.max_attempts > 0);
	}
	return 0;
}
