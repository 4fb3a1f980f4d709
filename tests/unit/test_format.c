/* test_format.c - verdicts on single files: whole, cut, with holes, and what is refused. Files of
 * real savers are in the corpora of the fuzzers and in tests/e2e/test_savers.py. */
#include "base/fs.h"
#include "format/format.h"

#include "unit.h"

struct bytes {
	const char *p;
	size_t n;
	size_t step; /* the most that one read may ask for; 0 = any */
};

static int read_bytes(void *arg, uint64_t at, void *p, size_t n, struct err *err)
{
	const struct bytes *b = arg;

	if (at > b->n || n > b->n - at)
		return err_set(err, ERR_IO, "read behind the end");
	memcpy(p, b->p + at, n);
	return 0;
}

static void check(const char *name, const char *p, size_t n, struct format_result *r)
{
	struct bytes b = {p, n, 0};
	struct format_source src = {.name = name, .size = n, .read = read_bytes, .arg = &b};
	struct err err = {0};

	assert_ok(format_check(&src, r, &err), &err);
	assert_true(r->verdict == FORMAT_WHOLE || r->reason[0] != '\0' || r->format[0] == '\0');
}

#define W FORMAT_WHOLE
#define T FORMAT_TORN
#define U FORMAT_UNKNOWN

static const struct {
	const char *name, *text;
	enum format_verdict want;
} texts[] = {
	{"config.json", "{\"a\": [1, 2.5e-3, true, null, \"x\\u00e9\\n\"]}\n", W},
	{"config.json", "{\"a\": [1, 2.5e-3, tru", T},
	{"config.json", "{\"a\": [1, 2", T},
	{"config.json", "{\"a\": \"x\\u00", T},
	{"config.json", "{\"a\": \"x\\", T},
	{"config.json", "{\"a\"", T},
	{"config.json", "{", T},
	{"config.json", "  ", T},
	{"config.json", "", T},
	{"config.json", "{\"a\": 1}", W}, /* the newline is all that was cut */
	{"config.json", "{\"a\": 1,}", U},
	{"config.json", "{\"a\" 1}", U},
	{"config.json", "[1 2]", U},
	{"config.json", "{\"a\": 01x}", U},
	{"config.json", "hello there", U},
	{"config.json", "{\"a\": 1}\n{\"b\": 2}\n", W},
	{"config.json", "{\"a\": 1}\n{\"b\": ", T},
	{"config.json", "123", U},
	{"config.json", "[]", W},
	/* Python's json writes these, and jansson takes none of them */
	{"trainer_state.json", "{\"loss\": NaN, \"best\": -Infinity, \"x\": Infinity}\n", W},
	{"trainer_state.json", "{\"loss\": NaN, \"best\": -Infin", T},
	{"vocab.json", "{\"\\ud83d\": 1, \"\\u0000\": 2, \"a\": 3, \"a\": 4}", W},
	{"log.jsonl", "{\"a\": 1}\n{\"a\": 2}\n", W},
	{"log.jsonl", "{\"a\": 1}\n{\"a\": 2}", T},
	{"log.jsonl", "{\"a\": 1}\n{\"a\": \n", T},
	{"latest", "global_step20", W},
	{"latest", "", T},
	{"latest_checkpointed_iteration.txt", "100", W},
	{"merges.txt", "", T},
	{"merges.txt", "#version: 0.2\n", U},
	{"README.md", "", U},
	{"CHECKPOINT_COMPLETE", "", W},
	{"weights.bin", "anything", U},
	{"model.safetensors", "abc", T},
	{"model.safetensors", "something else entirely", U},
	{"x.pt", "PK\3\4 and no end", T},
	{"x.pt", "P", T},
	{"model.bin", "weights\n", U},
	{"x.gguf", "GGUF\3", T},
	{"checkpoint_7",
         "\x81\xa1"
         "a\xc0",
         W},
	{"checkpoint_7",
         "\x81\xa1"
         "a",
         T},
	{"checkpoint_7",
         "\x81\xa1"
         "a\xc0\xc0",
         U},
	{"m.msgpack",
         "\x82\xa1"
         "a\x93\1\2\3\xa1"
         "b\xc4\2xy",
         W},
	{"m.msgpack",
         "\x82\xa1"
         "a\x93\1\2\3\xa1"
         "b\xc4\2x",
         T},
	{"x.pkl", "I1\n.", U}, /* protocol 0 */
	{"x.pkl", "\x80\2]q", T},
	{"x.pkl", "\x80\2K\1.", W},
	{"x.pkl", "\x80\2K\1.\x80\2K\2.", W},
	{"x.pkl", "\x80\2K\1.\x80\2K\2", T},
	{"x.pkl", "\x80\2K\1.junk", U},
	{"x.pkl", "\x80\2t.", U}, /* no mark */
};

static void format_texts(void **state UNUSED)
{
	for (size_t i = 0; i < COUNT(texts); i++) {
		AUTO_FORMAT struct format_result r = {0};

		check(texts[i].name, texts[i].text, strlen(texts[i].text), &r);
		if (r.verdict != texts[i].want)
			fail_msg("%s \"%s\": %s, %s", texts[i].name, texts[i].text,
			         format_verdict_word(r.verdict), r.reason);
	}
}

static void format_zeros_are_torn_where_a_name_promises(void **state UNUSED)
{
	static const char *const promising[] = {
		"model.safetensors",
		"x.gguf",
		"a.pt",
		"a.ckpt",
		"w.h5",
		"m.keras",
		"x.npz",
		"x.npy",
		"__0_0.distcp",
		".metadata",
		"c.json",
		"optimizer.bin",
	};
	char zeros[600] = {0};

	for (size_t i = 0; i < COUNT(promising); i++) {
		AUTO_FORMAT struct format_result r = {0};

		check(promising[i], zeros, sizeof(zeros), &r);
		assert_row(r.verdict == FORMAT_TORN, promising[i]);
	}
	AUTO_FORMAT struct format_result r = {0};
	check("data.raw", zeros, sizeof(zeros), &r);
	assert_int_equal(r.verdict, FORMAT_UNKNOWN);
}

/* u64 length, header, `data` bytes. */
static size_t safetensors(char *out, const char *header, size_t data)
{
	size_t n = strlen(header);

	for (size_t i = 0; i < 8; i++)
		out[i] = (char)(n >> 8 * i & 0xff);
	memcpy(out + 8, header, n);
	memset(out + 8 + n, 7, data);
	return 8 + n + data;
}

static const struct {
	const char *name, *header;
	size_t data;
	enum format_verdict want;
} tensors[] = {
	{"two",
         "{\"a\":{\"dtype\":\"F32\",\"shape\":[2,2],\"data_offsets\":[0,16]},"
         "\"b\":{\"dtype\":\"U8\",\"shape\":[3],\"data_offsets\":[16,19]}}",
         19, W},
	{"not in order",
         "{\"b\":{\"dtype\":\"U8\",\"shape\":[3],\"data_offsets\":[16,19]},"
         "\"a\":{\"dtype\":\"F32\",\"shape\":[2,2],\"data_offsets\":[0,16]}}",
         19, W},
	{"metadata",
         "{\"__metadata__\":{\"format\":\"pt\"},\"a\":{\"dtype\":\"BF16\",\"shape\":[],"
         "\"data_offsets\":[0,2]}}   ",
         2, W},
	{"half bytes", "{\"a\":{\"dtype\":\"F4\",\"shape\":[4],\"data_offsets\":[0,2]}}", 2, W},
	{"none", "{}", 0, W},
	{"type not known", "{\"a\":{\"dtype\":\"F7\",\"shape\":[4],\"data_offsets\":[0,3]}}", 3, W},
	{"one byte short", "{\"a\":{\"dtype\":\"U8\",\"shape\":[3],\"data_offsets\":[0,3]}}", 2, T},
	{"one byte more", "{\"a\":{\"dtype\":\"U8\",\"shape\":[3],\"data_offsets\":[0,3]}}", 4, T},
	{"gap", "{\"a\":{\"dtype\":\"U8\",\"shape\":[3],\"data_offsets\":[1,4]}}", 4, U},
	{"shape", "{\"a\":{\"dtype\":\"U8\",\"shape\":[4],\"data_offsets\":[0,3]}}", 3, U},
	{"overflow",
         "{\"a\":{\"dtype\":\"U8\",\"shape\":[4294967296,4294967296,2],"
         "\"data_offsets\":[0,0]}}",
         0, U},
	{"backwards", "{\"a\":{\"dtype\":\"U8\",\"shape\":[0],\"data_offsets\":[5,0]}}", 5, U},
	{"negative", "{\"a\":{\"dtype\":\"U8\",\"shape\":[-1],\"data_offsets\":[0,0]}}", 0, U},
	{"no offsets", "{\"a\":{\"dtype\":\"U8\",\"shape\":[1]}}", 1, U},
	{"not JSON", "{\"a\":}", 1, U},
	{"text behind", "{} x", 0, U},
};

static void format_safetensors(void **state UNUSED)
{
	for (size_t i = 0; i < COUNT(tensors); i++) {
		AUTO_FORMAT struct format_result r = {0};
		char file[400];
		size_t n = safetensors(file, tensors[i].header, tensors[i].data);

		check("model.safetensors", file, n, &r);
		assert_row(r.verdict == tensors[i].want, tensors[i].name);
		assert_string_equal(r.format, "safetensors");
		for (size_t cut = 0; r.verdict == W && cut < n; cut++) {
			AUTO_FORMAT struct format_result part = {0};

			check("model.safetensors", file, cut, &part);
			assert_row(part.verdict == T, tensors[i].name);
		}
	}
}

/* A checker of a file of 140 GB reads its header. */
static int read_huge(void *arg, uint64_t at, void *p, size_t n, struct err *err UNUSED)
{
	const struct bytes *b = arg;

	memset(p, 0, n);
	if (at < b->n)
		memcpy(p, b->p + at, MIN(n, b->n - at));
	return 0;
}

static void format_huge_costs_its_header(void **state UNUSED)
{
	AUTO_FORMAT struct format_result r = {0};
	char file[200];
	size_t n = safetensors(file,
	                       "{\"a\":{\"dtype\":\"U8\",\"shape\":[140000000000],"
	                       "\"data_offsets\":[0,140000000000]}}",
	                       0);
	struct bytes b = {file, n, 0};
	struct format_source src = {
		.name = "x.safetensors", .size = n + 140000000000, .read = read_huge, .arg = &b};
	struct err err = {0};

	assert_ok(format_check(&src, &r, &err), &err);
	assert_int_equal(r.verdict, FORMAT_WHOLE);
	assert_true(r.bytes_read < 8192);
	src.size--;
	format_result_done(&r);
	assert_ok(format_check(&src, &r, &err), &err);
	assert_int_equal(r.verdict, FORMAT_TORN);
}

static void format_index_names_its_shards(void **state UNUSED)
{
	static const char text[] =
		"{\"metadata\": {\"total_size\": 9}, \"weight_map\": {\"a\": "
		"\"model-2.safetensors\", \"b\": \"model-1.safetensors\", \"c\": "
		"\"model-2.safetensors\"}}\n";
	AUTO_FORMAT struct format_result r = {0};

	check("x/model.safetensors.index.json", text, sizeof(text) - 1, &r);
	assert_int_equal(r.verdict, FORMAT_WHOLE);
	assert_int_equal(r.facts->role, FORMAT_INDEX);
	assert_int_equal(r.facts->n_need, 2);
	assert_string_equal(r.facts->need[0].path, "model-1.safetensors");
	assert_string_equal(r.facts->need[1].path, "model-2.safetensors");
	assert_int_equal(r.facts->need[1].tensors, 2);
}

static void format_facts_of_json(void **state UNUSED)
{
	AUTO_FORMAT struct format_result a = {0}, b = {0}, c = {0}, d = {0};
	static const char state_json[] = "{\"epoch\": 1.0, \"global_step\": 500, \"x\": {}}";
	static const char hashes[] = "{\"algorithm\": \"sha256\", \"files\": {\"common.pt\": \""
				     "9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f0"
				     "0a08\"}}";
	static const char pipe[] = "{\"_class_name\": \"X\", \"unet\": [\"diffusers\", \"U\"], "
				   "\"safety\": [null, null], \"scale\": [1, 2]}";

	check("trainer_state.json", state_json, sizeof(state_json) - 1, &a);
	assert_int_equal(a.facts->step, 500);
	check("integrity.json", hashes, sizeof(hashes) - 1, &b);
	assert_int_equal(b.facts->n_need, 1);
	assert_true(b.facts->need[0].hashed && b.facts->need[0].sha256.b[0] == 0x9f);
	check("model_index.json", pipe, sizeof(pipe) - 1, &c);
	assert_int_equal(c.facts->n_need, 1);
	assert_string_equal(c.facts->need[0].path, "unet/");
	check("latest", "global_step20\n", 14, &d);
	assert_int_equal(d.facts->step, 20);
	assert_string_equal(d.facts->text, "global_step20");
}

/* What real savers wrote (tests/fuzz/seeds.py), and whether a shorter file can be whole: padding,
 * and a chain that is cut between two links. */
static const struct {
	const char *seed, *name, *format;
	bool padded;
	uint64_t tensors;
} seeds[] = {
	{"zip/torch", "ckpt.pt", "torch zip", false, 11},
	{"zip/torch-2.15.0", "ckpt.pt", "torch zip", false, 11},
	{"zip/module", "m.pth", "torch zip", false, 4},
	{"zip/script", "s.pt", "torch zip", false, 4},
	{"zip/scheduler", "scheduler.pt", "torch zip", false, 0},
	{"zip/training_args", "training_args.bin", "torch zip", false, 0},
	{"zip/npz", "a.npz", "npz", false, 3},
	{"zip/npz-packed", "a.npz", "npz", false, 3},
	{"zip/keras", "m.keras", "keras", false, 0},
	{"pickle/legacy", "a.pt", "torch legacy", false, 7},
	{"pickle/legacy-2.15.0", "a.pt", "torch legacy", false, 7},
	{"dcp_metadata/two-ranks", ".metadata", "dcp metadata", false, 0},
	{"dcp_metadata/two-ranks-2.15.0", ".metadata", "dcp metadata", false, 0},
	{"distcp/chain", "__0_0.distcp", "distcp", true, 2},
	{"distcp/one", "__0_0.distcp", "distcp", false, 1},
	{"safetensors/shard", "m.safetensors", "safetensors", false, 0},
	{"safetensors/begins-as-a-pickle", "m.safetensors", "safetensors", false, 0},
	{"gguf/model", "m.gguf", "gguf", true, 3},
	{"gguf/types", "m.gguf", "gguf", true, 0},
	{"hdf5/earliest", "m.h5", "hdf5", false, 0},
	{"hdf5/latest", "m.h5", "hdf5", false, 0},
	{"npy/floats", "m.npy", "npy", false, 1},
	{"npy/objects", "m.npy", "npy", false, 1},
	{"ocdbt/manifest", "manifest.ocdbt", "ocdbt", false, 0},
	{"ocdbt/nodes", "d/0123", "ocdbt", false, 0},
	{"msgpack/flax", "checkpoint_1", "msgpack", false, 0},
	{"tarball/shards", "a.tar", "tar", true, 0},
	{"sentencepiece/small", "tokenizer.model", "sentencepiece", false, 0},
	{"json_file/trainer_state", "trainer_state.json", "json", true, 0},
};

static void format_real_files(void **state UNUSED)
{
	const char *root = getenv("SOURCE_DIR");

	assert_non_null(root);
	for (size_t i = 0; i < COUNT(seeds); i++) {
		AUTO_BUF struct buf body = BUF_INIT((size_t)1 << 20);
		AUTO_FREE char *path = xasprintf("%s/tests/fuzz/corpus/%s", root, seeds[i].seed);
		AUTO_FORMAT struct format_result r = {0};
		struct err err = {0};

		assert_ok(fs_read(AT_FDCWD, path, &body, &err), &err);
		check(seeds[i].name, buf_cstr(&body), body.n, &r);
		if (r.verdict != FORMAT_WHOLE)
			fail_msg("%s: %s", seeds[i].seed, r.reason);
		assert_string_equal(r.format, seeds[i].format);
		if (seeds[i].tensors > 0)
			assert_int_equal(r.tensors, seeds[i].tensors);
		for (size_t n = 0; n < body.n && !seeds[i].padded; n += body.n > 8000 ? 7 : 1) {
			AUTO_FORMAT struct format_result part = {0};

			check(seeds[i].name, buf_cstr(&body), n, &part);
			if (part.verdict == FORMAT_WHOLE)
				fail_msg("%s: whole with %zu of %zu bytes", seeds[i].seed, n,
				         body.n);
		}
	}
}

static void format_metadata_names_its_shards(void **state UNUSED)
{
	AUTO_BUF struct buf body = BUF_INIT((size_t)1 << 20);
	AUTO_FREE char *path = xasprintf("%s/tests/fuzz/corpus/dcp_metadata/two-ranks-2.15.0",
	                                 getenv("SOURCE_DIR"));
	AUTO_FORMAT struct format_result r = {0};
	struct err err = {0};

	assert_ok(fs_read(AT_FDCWD, path, &body, &err), &err);
	check("step-2/.metadata", buf_cstr(&body), body.n, &r);
	assert_int_equal(r.facts->role, FORMAT_DCP);
	assert_int_equal(r.facts->n_need, 4);
	assert_string_equal(r.facts->need[0].path, "__0_0.distcp");
	assert_true(r.facts->need[0].sized && r.facts->need[0].size == 1961);
}

static int fail_read(void *arg, uint64_t at UNUSED, void *p, size_t n, struct err *err)
{
	int *left = arg;

	if (--*left < 0)
		return err_set(err, ERR_IO, "it became shorter");
	memset(p, ' ', n);
	return 0;
}

static void format_reader_that_fails(void **state UNUSED)
{
	for (int left = 0; left < 3; left++) {
		AUTO_FORMAT struct format_result r = {0};
		int n = left;
		struct format_source src = {
			.name = "a.json", .size = 1 << 20, .read = fail_read, .arg = &n};
		struct err err = {0};

		assert_err(format_check(&src, &r, &err), &err, ERR_IO, "");
		assert_int_equal(r.verdict, FORMAT_UNKNOWN);
		assert_null(r.facts);
	}
}

static const struct {
	const char *path;
	enum format_name want;
} names[] = {
	{"model.safetensors", FORMAT_NAME_PLAIN},
	{".metadata", FORMAT_NAME_PLAIN},
	{"__0_0.distcp", FORMAT_NAME_PLAIN},
	{".metadata.json", FORMAT_NAME_PLAIN},
	{".tmpAb3dEf", FORMAT_NAME_TEMPORARY},
	{"checkpoint-5/.tmpAb3dEf", FORMAT_NAME_TEMPORARY},
	{"tmp-checkpoint-5/model.safetensors", FORMAT_NAME_TEMPORARY},
	{"tmp_step_3/x", FORMAT_NAME_TEMPORARY},
	{"step100-tmp/x", FORMAT_NAME_TEMPORARY},
	{"100.orbax-checkpoint-tmp/d/x", FORMAT_NAME_TEMPORARY},
	{"100.orbax-checkpoint-tmp-1700", FORMAT_NAME_TEMPORARY},
	{"checkpoint_tmp", FORMAT_NAME_TEMPORARY},
	{".metadata.tmp", FORMAT_NAME_TEMPORARY},
	{"a.incomplete", FORMAT_NAME_TEMPORARY},
	{".model.safetensors.Xy12Za", FORMAT_NAME_TEMPORARY},
	{"a/.nfs000012", FORMAT_NAME_TEMPORARY},
	{"x.__lock", FORMAT_NAME_TEMPORARY},
	{"events.out.tfevents.17.host", FORMAT_NAME_LOG},
	{"runs/Nov1/x", FORMAT_NAME_LOG},
	{"train.log", FORMAT_NAME_LOG},
	{"latest", FORMAT_NAME_POINTER},
	{"latest_checkpointed_iteration.txt", FORMAT_NAME_POINTER},
	{"latest.pt", FORMAT_NAME_PLAIN},
	{"latest-rank0.pt", FORMAT_NAME_POINTER},
};

static void format_names(void **state UNUSED)
{
	for (size_t i = 0; i < COUNT(names); i++)
		assert_row(format_name(str_of(names[i].path)) == names[i].want, names[i].path);
}

static void format_rows_are_said(void **state UNUSED)
{
	struct format_row row;
	size_t n = 0;

	while (format_row(n, &row)) {
		assert_true(row.name[0] != '\0' && row.magic[0] != '\0' && row.proves[0] != '\0');
		n++;
	}
	assert_true(n > 10);
}

static const struct CMUnitTest tests[] = {
	cmocka_unit_test(format_texts),
	cmocka_unit_test(format_zeros_are_torn_where_a_name_promises),
	cmocka_unit_test(format_safetensors),
	cmocka_unit_test(format_huge_costs_its_header),
	cmocka_unit_test(format_index_names_its_shards),
	cmocka_unit_test(format_facts_of_json),
	cmocka_unit_test(format_real_files),
	cmocka_unit_test(format_metadata_names_its_shards),
	cmocka_unit_test(format_reader_that_fails),
	cmocka_unit_test(format_names),
	cmocka_unit_test(format_rows_are_said),
};

UNIT_MAIN(tests)
