/*
 * format_zip.c - what is made of a zip archive: torch.save, Keras, NumPy, or any other. The
 * directory is walked and every entry found in its place before the parts are looked into.
 *
 * Python's zipfile and torch finish their archive also when an exception passes through them: a
 * well-formed archive may lack what comes later, so each kind is asked for all of its parts.
 */
#include "format/parsers.h"

/* The archive's central directory. */
struct listing {
	bool data, version, weights, config, metadata, other, all_npy;
	struct zip_entry pkl;
};

static void note(struct listing *have, const struct zip_entry *e)
{
	struct str name = str_n(e->name, e->name_n);

	if (!have->data && torch_is_data(e)) {
		have->data = true;
		have->pkl = *e;
	}
	have->version = have->version || str_ends(name, "/version");
	have->config = have->config || str_eq(name, "config.json");
	have->metadata = have->metadata || str_eq(name, "metadata.json");
	have->weights = have->weights || str_starts(name, "model.weights.");
	have->all_npy = have->all_npy && str_ends(name, ".npy");
}

static enum zip_says list(struct look *l, struct zip z, struct listing *have)
{
	struct zip_entry e;
	enum zip_says says;

	have->all_npy = z.entries > 0;
	for (says = zip_next(l, &z, &e); says == ZIP_OK; says = zip_next(l, &z, &e)) {
		says = zip_locate(l, &z, &e);
		if (says != ZIP_OK)
			return says;
		note(have, &e);
	}
	return says;
}

static void (*part_check(const struct zip_entry *e))(struct look *l)
{
	struct str name = str_n(e->name, e->name_n);

	if (e->method != 0 || (e->flags & 1) != 0 || e->size != e->packed)
		return NULL;
	if (str_ends(name, ".json"))
		return check_json;
	if (str_ends(name, ".h5"))
		return check_hdf5;
	return str_ends(name, ".npy") ? check_npy : NULL;
}

/* Looks into the parts of an archive that are stored as they are. A torn one tears it. */
static void check_parts(struct look *l, struct zip z)
{
	struct zip_entry e;
	uint64_t arrays = 0;

	look_whole(l);
	while (zip_next(l, &z, &e) == ZIP_OK && zip_locate(l, &z, &e) == ZIP_OK) {
		void (*check)(struct look *) = part_check(&e);
		struct look_place was;

		arrays += str_ends(str_n(e.name, e.name_n), ".npy");
		l->out->tensors = arrays;
		if (check == NULL)
			continue;
		was = look_part(l, e.data_at, e.size, str_n(e.name, e.name_n));
		if (e.size == 0)
			look_torn(l, "is empty");
		else
			check(l);
		look_back(l, was);
		if (look_is(l, FORMAT_TORN)) {
			look_wrap(l, str_n(e.name, e.name_n));
			return;
		}
		look_whole(l);
	}
	l->out->tensors = arrays;
}

static void check_keras(struct look *l, const struct zip *z, const struct listing *have)
{
	l->out->format = "keras";
	if (!have->metadata)
		look_torn(l, "has no metadata.json");
	else if (!have->config)
		look_torn(l, "has no config.json");
	else if (!have->weights)
		look_torn(l, "has no model.weights.h5");
	else
		check_parts(l, *z);
}

void check_zip(struct look *l)
{
	struct listing *have = NULL;
	enum zip_says says;
	struct zip z;

	says = zip_open(l, l->size, true, &z);
	if (says != ZIP_OK) {
		zip_verdict(l, says);
		return;
	}
	if (z.start != 0) {
		look_unknown(l, "has something in front of its archive");
		return;
	}
	have = xcalloc(1, sizeof(*have));
	says = list(l, z, have);
	if (says != ZIP_END) {
		zip_verdict(l, says);
	} else if (have->data) {
		l->out->format = "torch zip";
		torch_archive(l, &z, &have->pkl);
	} else if (have->config + have->metadata + have->weights >= 2 ||
	           str_ends(l->name, ".keras")) {
		check_keras(l, &z, have);
	} else if (have->all_npy) {
		l->out->format = "npz";
		check_parts(l, z);
	} else if (have->version) { /* torch writes it last, and data.pkl first */
		l->out->format = "torch zip";
		look_torn(l, "has no data.pkl");
	} else {
		look_whole(l);
	}
	free(have);
}

/* Python's zipfile leaves this file when it is closed before anything was written. */
void check_empty_zip(struct look *l)
{
	if (str_ends(l->name, ".keras"))
		look_torn(l, "is an empty archive");
	else
		look_unknown(l, "is an empty archive");
}
