/* openapi.h - what a route takes and gives, beyond its row in the table of routes; for openapi.c.
 */
#ifndef FACE_OPENAPI_H
#define FACE_OPENAPI_H

#include "base/record.h"
#include "io/httpd.h"

/* All notations are those of schema.h; NULL = nothing. A route without a row takes nothing and
 * gives an object. */
struct route_doc {
	enum http_method method;
	const char *pattern;
	const char *query, *body, *reply;
	const char *type; /* of a reply that is not JSON */
	bool body_optional;
};
extern const struct route_doc route_docs[];
extern const size_t n_route_docs;

struct schema_doc { /* "#/components/schemas/<name>": the members named, else those of a record */
	const char *name, *members;
	const struct record *record, *more; /* more: what is not always there */
};
extern const struct schema_doc schema_docs[];
extern const size_t n_schema_docs;

#endif
