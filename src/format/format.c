/* format.c - the table of formats, and which row a file belongs to; see format.h. */
#include "format/format.h"

#include "format/name.h"
#include "format/parsers.h"

#define HEAD_MAX ((size_t)512)
#define LEAST 16 /* bytes of what has a magic number */

const char *format_verdict_word(enum format_verdict v)
{
	static const char *const words[] = {
		[FORMAT_UNKNOWN] = "unknown", [FORMAT_WHOLE] = "whole", [FORMAT_TORN] = "torn"};

	assert(v < COUNT(words));
	return words[v];
}

struct head {
	const uint8_t *p;
	size_t n;
	uint64_t size;
	struct str name;
};

static bool begins(const struct head *h, const char *magic, size_t n)
{
	return h->n >= n && memcmp(h->p, magic, n) == 0;
}

static bool is_gguf(const struct head *h)
{
	return begins(h, "GGUF", 4);
}

static bool is_hdf5(const struct head *h)
{
	return begins(h, "\x89HDF\r\n\x1a\n", 8);
}

static bool is_npy(const struct head *h)
{
	return begins(h, "\x93NUMPY", 6);
}

static bool is_zip(const struct head *h)
{
	return begins(h, "PK\3\4", 4);
}

static bool is_empty_zip(const struct head *h)
{
	return begins(h, "PK\5\6", 4);
}

static bool is_distcp(const struct head *h)
{
	return is_zip(h) && str_ends(h->name, ".distcp");
}

static bool is_legacy(const struct head *h)
{
	return begins(h, "\x80\x02\x8a\x0a\x6c\xfc\x9c\x46\xf9\x20", 10);
}

static bool is_pickle(const struct head *h)
{
	return h->n >= 2 && h->p[0] == 0x80 && h->p[1] <= 5 && !str_ends(h->name, ".msgpack");
}

static bool is_metadata(const struct head *h)
{
	return is_pickle(h) && str_eq(h->name, DCP_METADATA);
}

static bool is_ocdbt(const struct head *h)
{
	uint32_t magic = h->n >= 4 ? be32(h->p) : 0;

	return magic == OCDBT_MANIFEST || magic == OCDBT_NODE || magic == OCDBT_VERSIONS;
}

static bool is_tar(const struct head *h)
{
	return h->n >= 263 && memcmp(h->p + 257, "ustar", 5) == 0;
}

/* Before the pickles in the table: the length of a header may begin as they do, 80 04. */
static bool is_safetensors(const struct head *h)
{
	return h->n >= 9 && h->p[8] == '{' && le64(h->p) <= 100000000;
}

/* The rest have no magic number. */
static bool named(struct str name, const char *const *patterns, size_t n)
{
	for (size_t i = 0; i < n; i++)
		if (name_match(patterns[i], name, NULL))
			return true;
	return false;
}

static bool is_pointer(const struct head *h)
{
	return format_name(h->name) == FORMAT_NAME_POINTER && h->size <= 256;
}

static bool is_json(const struct head *h)
{
	static const char *const names[] = {
		"*.json",
		".zarray",
		".zattrs",
		".zgroup",
		"_METADATA",
		"_sharding",
		"_CHECKPOINT_METADATA",
		"_ROOT_METADATA",
		"_STRINGS",
	};

	return named(h->name, names, COUNT(names)) ||
	       (name_match("process_#", h->name, NULL) && begins(h, "{", 1)); /* Orbax */
}

static bool is_json_lines(const struct head *h)
{
	return str_ends(h->name, ".jsonl");
}

static bool is_sentencepiece(const struct head *h)
{
	static const char *const names[] = {"tokenizer.model", "spiece.model",
	                                    "sentencepiece*.model", "*.spm"};

	return h->n > 0 && h->p[0] == 0x0a && named(h->name, names, COUNT(names));
}

/* Flax writes a map; and what is not one is not looked at, for there is no magic number. */
static bool is_msgpack(const struct head *h)
{
	static const char *const names[] = {"*.msgpack", "checkpoint_#", "checkpoint_#.#",
	                                    "checkpoint"};

	return h->n > 0 && ((h->p[0] & 0xf0) == 0x80 || h->p[0] == 0xde || h->p[0] == 0xdf) &&
	       named(h->name, names, COUNT(names));
}

static bool is_text(const struct head *h)
{
	static const char *const names[] = {"*.txt",  "*.md",  "*.jinja", "*.py",
	                                    "*.yaml", "*.yml", "*.toml"};

	return named(h->name, names, COUNT(names));
}

/* clang-format off */
static const struct format {
	const char *name;
	bool (*is)(const struct head *h);
	void (*check)(struct look *l);
	const char *magic, *proves, *does_not;
} formats[] = {
	{"safetensors", is_safetensors, check_safetensors, "u64 length, {", "nothing is missing at the end", "that the bytes were written: a preallocated file passes"},
	{"gguf", is_gguf, check_gguf, "GGUF", "no tensor is cut", "values; that no split is missing (the set's matter)"},
	{"hdf5", is_hdf5, check_hdf5, "\\x89HDF\\r\\n\\x1a\\n", "closed or flushed, and not cut", "that no more datasets were to follow"},
	{"npy", is_npy, check_npy, "\\x93NUMPY", "the items that the shape asks for are there", "values"},
	{"distcp", is_distcp, check_distcp, "PK\\3\\4, named *.distcp", "each archive of the chain is whole", "which items should be there: .metadata says it"},
	{"zip", is_zip, check_zip, "PK\\3\\4", "torch zip: all tensors are there; keras: its three parts are, and whole; npz: all arrays that it has are whole", "values; of npz, that no more arrays were to follow"},
	{"zip", is_empty_zip, check_empty_zip, "PK\\5\\6", "nothing", "-"},
	{"torch legacy", is_legacy, check_torch_legacy, "pickled 0x1950a86a20f9469cfc6c", "all tensors are there", "values"},
	{"dcp metadata", is_metadata, check_metadata, "\\x80, named .metadata", "not cut; which .distcp there must be, each with its length", "values"},
	{"pickle", is_pickle, check_pickle, "\\x80 and a protocol up to 5", "not cut", "values"},
	{"ocdbt", is_ocdbt, check_ocdbt, "\\x0c\\xdb and \\x3a\\x2a, \\x20\\xde or \\x12\\x34", "not cut, checksum right", "that the data files are whole"},
	{"tar", is_tar, check_tar, "ustar at 257", "not cut", "values"},
	{"pointer", is_pointer, check_pointer, "by name", "names something", "that it is there"},
	{"json", is_json, check_json, "by name", "all of it is there, but perhaps a last newline", "-"},
	{"json lines", is_json_lines, check_json_lines, "by name", "the last line is whole", "that no more were to follow"},
	{"sentencepiece", is_sentencepiece, check_sentencepiece, "by name", "not cut", "values"},
	{"msgpack", is_msgpack, check_msgpack, "by name, and a map", "not cut", "values"},
	{"text", is_text, check_text, "by name", "nothing", "anything"},
};
/* clang-format on */

/* Names that promise one of the formats above. What has such a name and is empty or begins with
 * zeros was not written yet. */
static const struct promise {
	const char *pattern, *format;
} promises[] = {
	{"*.safetensors", "safetensors"},
	{"*.gguf", "gguf"},
	{"*.h5", "hdf5"},
	{"*.hdf5", "hdf5"},
	{"*.keras", "keras"},
	{"*.npz", "npz"},
	{"*.npy", "npy"},
	{"*.distcp", "distcp"},
	{DCP_METADATA, "dcp metadata"},
	{"*.metadata", "dcp metadata"},
	{"*.pt", "torch zip"},
	{"*.pth", "torch zip"},
	{"*.ckpt", "torch zip"},
	{"*.pth.tar", "torch zip"},
	{"pytorch_model*.bin", "torch zip"},
	{"adapter_model*.bin", "torch zip"},
	{"optimizer*.bin", "torch zip"},
	{"scheduler*.bin", "torch zip"},
	{"training_args.bin", "torch zip"},
	{"diffusion_pytorch_model*.bin", "torch zip"},
	{"model*.bin", "torch zip"},
	{"*.pkl", "pickle"},
	{"*.pickle", "pickle"},
	{"manifest.ocdbt", "ocdbt"},
	{"*.tar", "tar"},
	{"*.nemo", "tar"},
	{"*.msgpack", "msgpack"},
	{"*.jsonl", "json lines"},
	{"tokenizer.model", "sentencepiece"},
	{"spiece.model", "sentencepiece"},
	{"merges.txt", "text"},
	{"vocab.txt", "text"},
	{"*.jinja", "text"},
};

/* Markers: that they are there is what they say. */
static const char *const markers[] = {"CHECKPOINT_COMPLETE",
                                      "commit_success.txt",
                                      "_SUCCESS",
                                      "DONE",
                                      "COMPLETE",
                                      ".complete",
                                      ".done"};

static const char *promised(const struct head *h)
{
	if (is_json(h))
		return "json";
	for (size_t i = 0; i < COUNT(promises); i++)
		if (name_match(promises[i].pattern, h->name, NULL))
			return promises[i].format;
	return NULL;
}

/* Cut short it would still begin as torch.save begins: an archive, or a pickle. */
static bool begins_otherwise(const char *as, const struct head *h)
{
	return strcmp(as, "torch zip") == 0 && h->p[0] != 'P' && h->p[0] != 0x80 && h->p[0] != 0;
}

/* No row: nothing is known, but that what was promised is not there. */
static void no_row(struct look *l, const struct head *h)
{
	const char *as = promised(h);

	if (as == NULL)
		return;
	l->out->format = as;
	if (h->n < LEAST && strcmp(as, "text") != 0 && strcmp(as, "pickle") != 0 &&
	    strcmp(as, "msgpack") != 0 && !begins_otherwise(as, h))
		look_torn(l, "has %zu bytes: ends in its header", h->n);
	else if (look_zeros(h->p, h->n))
		look_torn(l, "begins with zeros: not written yet");
	else
		look_unknown(l, "is named as %s but is something else", as);
}

static void check_empty(struct look *l, const struct head *h)
{
	l->out->format = promised(h) == NULL ? "" : promised(h);
	if (format_name(h->name) == FORMAT_NAME_POINTER || l->out->format[0] != '\0')
		look_torn(l, "is empty");
	else
		look_unknown(l, "is empty");
}

static void choose(struct look *l)
{
	struct head h = {.size = l->size, .name = l->name};
	uint8_t copy[HEAD_MAX];

	if (named(h.name, markers, COUNT(markers))) {
		l->out->format = "marker";
		look_whole(l);
		return;
	}
	if (l->size == 0) {
		check_empty(l, &h);
		return;
	}
	h.n = (size_t)MIN(l->size, (uint64_t)HEAD_MAX);
	h.p = look_at(l, 0, h.n);
	if (h.p == NULL)
		return;
	memcpy(copy, h.p, h.n);
	h.p = copy;
	for (size_t i = 0; i < COUNT(formats); i++) {
		if (!formats[i].is(&h))
			continue;
		l->out->format = formats[i].name;
		formats[i].check(l);
		return;
	}
	no_row(l, &h);
}

int format_check(const struct format_source *src, struct format_result *out, struct err *err)
{
	struct look l;

	look_start(&l, src, out, err);
	choose(&l);
	out->hole = src->hole_at > 0 && src->hole_at < src->size;
	return look_end(&l);
}

bool format_row(size_t i, struct format_row *out)
{
	if (i >= COUNT(formats))
		return false;
	*out = (struct format_row){formats[i].name, formats[i].magic, formats[i].proves,
	                           formats[i].does_not};
	return true;
}

bool format_is_settings(const char *format)
{
	static const char *const settings[] = {"json", "json lines", "text", "sentencepiece"};

	for (size_t i = 0; i < COUNT(settings); i++)
		if (strcmp(format, settings[i]) == 0)
			return true;
	return false;
}

bool format_is_list(struct str path)
{
	struct str base = name_base(path);

	if (str_eq(base, DCP_METADATA))
		return true;
	switch (json_role(base)) {
	case FORMAT_INDEX:
	case FORMAT_DCP:
	case FORMAT_INTEGRITY:
	case FORMAT_PIPELINE:
	case FORMAT_COMMIT:
		return true;
	case FORMAT_PLAIN:
	case FORMAT_STATE:
	case FORMAT_POINTER:
		break;
	}
	return false;
}
