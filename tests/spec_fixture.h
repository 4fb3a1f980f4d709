/* spec_fixture.h - the smallest job file, with more, and texts as a file or a client has them. */
#ifndef SPEC_FIXTURE_H
#define SPEC_FIXTURE_H

#include "base/yaml.h"
#include "core/spec.h"
#include "unit.h"

#define JOB(more) "project: p\njob:\n  runtime: { start_commands: [x] }\n" more
#define RUN(more) "project: p\njob:\n  runtime:\n    start_commands: [x]\n" more

static const struct doc *yaml(struct arena *a, const char *text)
{
	const struct doc *d = NULL;
	struct err err = {0};

	assert_ok(yml_parse(a, str_of(text), &d, &err), &err);
	return d;
}

static int read_json(struct arena *a, const char *text, struct job_spec *s, struct spec_problems *p)
{
	const struct doc *d = NULL;
	struct err err = {0};

	assert_ok(js_parse(a, str_of(text), &d, &err), &err);
	return spec_read(a, d, SPEC_API, s, p);
}

#endif
