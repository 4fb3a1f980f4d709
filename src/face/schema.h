/*
 * schema.h - JSON Schema from a notation that fits into a table. Members of an object, apart by
 * blanks:
 *
 *   key:type     type: text filled name time any bool num int int(min,max) enum(a,b)
 *                @Component
 *   key{...}     an object      key[type]  key[{...}]   lists
 *
 * each followed by ! when it is required, ? when it may be null and + when the list must not be
 * empty. `name` is a name as
 * spec_name_ok takes it, an `int` without bounds is not negative. Members that are not named may be
 * there too. @Component alone is an object of that kind.
 */
#ifndef FACE_SCHEMA_H
#define FACE_SCHEMA_H

#include "base/record.h"

#define SCHEMA_REQUIRED_MAX 32 /* required members of one object */

/* One object schema as the next value of js. The notation is ours: mistakes are assertions. */
void schema_object(struct js *js, const char *members);
/* What a record writes, in the notation. must: it is required, but for what is sparse. */
void schema_of_record(const struct record *r, bool must, struct buf *out);
/* The members as query parameters, as items of the open list of js. */
void schema_query(struct js *js, const char *members);

#endif
