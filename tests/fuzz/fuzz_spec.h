/* fuzz_spec.h - what must hold of every specification, whatever text it came from: a problem or a
 * spec that survives being written and read again. */
#ifndef FUZZ_SPEC_H
#define FUZZ_SPEC_H

#include "core/spec.h"

static void fuzz_spec(struct arena *a, const struct doc *d, enum spec_form form)
{
	AUTO_FREE struct spec_problems *p = xcalloc(1, sizeof(*p));
	AUTO_BUF struct buf once = BUF_INIT((size_t)64 << 20);
	AUTO_BUF struct buf again = BUF_INIT((size_t)64 << 20);
	struct job_spec s, back;
	struct err err = {0};
	const struct doc *tree;
	struct js js;

	if (spec_read(a, d, form, &s, p) < 0) {
		assert(p->n > 0);
		spec_problems_text(p, "train.yaml", &err);
		js_init(&js, &once);
		spec_problems_json(p, &js);
		return;
	}
	js_init(&js, &once);
	spec_write(&s, &js);
	if (js_parse(a, buf_view(&once), &tree, &err) < 0 ||
	    spec_read(a, tree, SPEC_API, &back, p) < 0) {
		(void)fprintf(stderr, "%s %s %s\n%s\n", err.msg, p->item[0].path, p->item[0].text,
		              buf_cstr(&once));
		abort();
	}
	js_init(&js, &again);
	spec_write(&back, &js);
	assert(str_same(buf_view(&once), buf_view(&again)));
}

#endif
