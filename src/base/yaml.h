/*
 * yaml.h - one YAML document to a doc tree, strictly: no anchors, aliases, tags or duplicate keys;
 * depth and size are bounded; plain scalars are typed here (int, real, true/false, null/~/empty),
 * so `no` and `on` stay text. A JSON object is read as JSON has it: its surrogate pairs too. The
 * only user of libyaml. Its functions own yaml_, ours are yml_.
 */
#ifndef BASE_YAML_H
#define BASE_YAML_H

#include "base/doc.h"

#define YML_TEXT_MAX ((size_t)1 << 20)
#define YML_DEPTH_MAX 32
#define YML_NODES_MAX 20000

/* ERR_INVALID: "line L, column C: what is wrong". An empty document is DOC_NULL. */
int yml_parse(struct arena *a, struct str text, const struct doc **out, struct err *err) MUST_CHECK;

#endif
