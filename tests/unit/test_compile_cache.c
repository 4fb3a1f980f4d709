/* test_compile_cache.c - what of a compiler's cache is kept: names, neighbours, age, content. */
#include "unit.h"

#include <zlib.h>

#include "base/fs.h"
#include "base/hash.h"
#include "core/compile_cache.h"

#define NOW_MS 1000000
#define OLD_MS (NOW_MS - 60000)
#define FILES_MAX 32
#define MODULE "neuronxcc-2.21.1+8212/MODULE_163+abb26765/"
#define KEY "TRPXSAMJ2SDYUMXG/"

/* One file a line: what becomes of it (T taken, N no entry, X torn, Y young), '!' if it was just
 * written to, its path, and after a space its text. */
static const struct {
	const char *name;
	enum compile_kind kind;
	const char *files;
} sifts[] = {
	{"a graph of Neuron", COMPILE_NEURON,
         "T " MODULE "model.done\nT " MODULE "model.neff\nT " MODULE "compile_flags.json\n"
         "T " MODULE "model.hlo_module.pb\nN " MODULE "model.hlo_module.pb.lock\nN " MODULE
         "model.log\nN lock\nN neuronxcc-2.21.1+8212/lock\nN other/MODULE_1/model.done"},
	{"one that is being compiled", COMPILE_NEURON,
         "X " MODULE "model.hlo_module.pb\nX " MODULE "compile_flags.json\nX " MODULE
         "model.neff\nN " MODULE "model.hlo_module.pb.lock"},
	{"one that failed", COMPILE_NEURON,
         "X " MODULE "model.hlo_module.pb\nN " MODULE "model.log\nX " MODULE "model.done"},
	{"one that was done just now", COMPILE_NEURON,
         "Y " MODULE "model.neff\nY! " MODULE "model.done"},
	{"its registry", COMPILE_NEURON,
         "T neuronxcc-2+1/0_REGISTRY/0.4.5/llama/org/model/0a.json\n"
         "N neuronxcc-2+1/0_REGISTRY/0.4.5/llama/org/model/0a.json.lock\n"
         "N neuronxcc-2+1/0_REGISTRY/0.4.5/x.txt\nN neuronxcc-2+1/x.json\nN neuronxcc-2+1"},
	{"a kernel of Triton", COMPILE_TRITON,
         "T " KEY "add.cubin\nT " KEY "add.json\nT " KEY "add.ptx\n"
         "T " KEY "__grp__add.json {\"child_paths\":{\"add.json\":\"/x/add.json\","
         "\"add.ptx\":\"/x/add.ptx\",\"add.cubin\":\"/x/add.cubin\"}}\n"
         "T OTHER/launcher.so\nT " KEY "add.autotune.json\nN " KEY "tmp.pid_7_ab/add.ptx\n"
         "N tmp.pid_7_ab/add.ptx\nN add.ptx"},
	{"one whose group names more than there is", COMPILE_TRITON,
         "X " KEY "add.json\nX " KEY "add.ptx\n"
         "X " KEY "__grp__add.json {\"child_paths\":{\"add.json\":\"/x/add.json\","
         "\"add.ptx\":\"/x/add.ptx\",\"add.cubin\":\"/x/add.cubin\"}}\n"
         "T OTHER/mul.json\nT OTHER/mul.ptx\nT OTHER/__grp__mul.json"},
	{"groups that cannot be read", COMPILE_TRITON,
         "X A/a.json\nX A/a.ptx\nX A/__grp__a.json {\"child_pa\nX B/b.json\nX B/b.ptx\n"
         "X B/__grp__b.json {\"child_paths\":[]}\nX C/c.json\nX C/c.ptx\nX C/__grp__c.json 7"},
	{"kernels without a group, or only with one", COMPILE_TRITON,
         "X A/a.json\nX A/a.ttir\nX B/__grp__b.json\nX C/c.ptx\nX C/__grp__c.json\n"
         "X D/d.json\nX D/__grp__d.json"},
	{"one that is written now", COMPILE_TRITON,
         "Y " KEY "add.json\nY! " KEY "add.ptx\nY " KEY "__grp__add.json\nT O/x.so"},
	{"Inductor", COMPILE_INDUCTOR,
         "T fxgraph/ab/fabc/kq2\nN fxgraph/ab/fabc/.12.140.tmp\nT aotautograd/qa/aqab/entry\n"
         "T ab/cab1.py\nT ab/cab1.so\nN locks/x\nN locks/cab1.lock\nN ab/cab1.lock\n"
         "N cache/0123abcd\nT ab/cab1.best_config\nN triton/0\nN triton/0/x.json\n"
         "T triton/0/K/x.json\nT triton/0/K/x.ptx\nT triton/0/K/__grp__x.json\n"
         "X triton/1/K/x.json\nX triton/1/K/x.ptx\nN triton/0/tmp.pid_1_a/x.ptx"},
	{"code of Inductor that is compiled now", COMPILE_INDUCTOR,
         "Y ab/cab1.cpp\nY! ab/cab1.so\nT ab/cab2.py\nY! fxgraph/ab/fabc/kq2"},
	{"JAX", COMPILE_JAX,
         "T jit_f-00ff-cache\nT jit_g-01-cache\nT jit_g-01-atime\nX jit_h-02-atime\nN .lockfile\n"
         "T xla_gpu_per_fusion_autotune_cache_dir/a.textproto\n"
         "N xla_gpu_per_fusion_autotune_cache_dir/tmp/a.textproto\nN xla_gpu_kernel_cache_file\n"
         "N sub/jit_f-00ff-cache\nY! jit_k-03-cache\nY jit_k-03-atime"},
	{"vLLM", COMPILE_VLLM,
         "T torch_compile_cache/0a/rank_0_0/backbone/vllm_compile_cache.py\n"
         "T torch_compile_cache/0a/rank_0_0/backbone/computation_graph.py\n"
         "T torch_compile_cache/0a/rank_0_0/inductor_cache/fxgraph/a/fa/x\n"
         "N torch_compile_cache/0a/rank_0_0/inductor_cache/cache/0f\n"
         "N torch_compile_cache/0a/rank_0_0/inductor_cache/locks/a.lock\n"
         "X torch_compile_cache/0a/rank_0_0/triton_cache/K/k.json\n"
         "T torch_compile_cache/torch_aot_compile/ff/rank_0_0/model\n"
         "Y! torch_compile_cache/0b/rank_0_0/backbone/vllm_compile_cache.py\n"
         "Y torch_compile_cache/0b/rank_0_0/backbone/computation_graph.py\n"
         "N assets/x\nN modelinfos/x.json\nN torch_compile_cache"},
	{"extensions of PyTorch", COMPILE_TORCH_EXTENSIONS,
         "T py311_cu128/fast/fast.so\nT py311_cu128/fast/main.o\nT py311_cu128/fast/build.ninja\n"
         "T py311_cu128/fast/.ninja_log\nN py311_cu128/fast/lock\nX slow/main.o\n"
         "X slow/build.ninja\nN slow/lock\nY! new/new.so\nY new/build.ninja\nN stray.so.tmp\n"
         "N stray.so"},
	{"one that is built again", COMPILE_TORCH_EXTENSIONS, "X fast/fast.so\nX! fast/main.o"},
	{"CUDA", COMPILE_CUDA, "T index\nT 4/1/0a3f\nN x.tmp"},
	{"CUDA, while the index is written", COMPILE_CUDA, "Y! index\nY 4/1/0a3f"},
	{"ccache", COMPILE_CCACHE,
         "T 3/3/85lomj5o9i9q9po35s0i34kiphk841oR\nT f/61fg94eekbu3ft4knh4fmdrcjd8p0rmM\n"
         "T 3/3/85lomj5o9i9q9po35s0i34kiphk841o_0W\nT 3a/7bqrsq6plset09gui5jpm8tc7jrno5gR\n"
         "N 3/3/stats\nN stats\nN ccache.conf\nN tmp/inode_cache\nN lock/auto\nN CACHEDIR.TAG\n"
         "N 3/3/85lomj5o9i9q9po35s0i34kiphk841o\nN 3/3/85lomj5o9i9q9po35s0i34kiphk841oR.tmp\n"
         "N g/85lomj5o9i9q9po35s0i34kiphk841oR\nN 85lomj5o9i9q9po35s0i34kiphk841oR\nN 3/3/R"},
};

static size_t read_files(struct arena *a, const char *text, struct compile_file *file, char *want)
{
	struct str rest = str_of(text), line, head, path;
	size_t n = 0;

	while (str_cut(&rest, '\n', &line)) {
		assert_true(n < FILES_MAX && str_cut(&line, ' ', &head) && head.n > 0);
		assert_true(str_cut(&line, ' ', &path));
		want[n] = head.p[0];
		file[n++] = (struct compile_file){.path = arena_strz(a, path),
		                                  .size = 1,
		                                  .changed_ms = head.n > 1 ? NOW_MS - 1 : OLD_MS,
		                                  .text = line};
	}
	return n;
}

static void compare(const char *name, const struct compile_file *f, char want)
{
	char is = "TNXY"[f->left];

	if (is != want)
		fail_msg("%s: %s: %c, expected %c", name, f->path, is, want);
	assert_int_equal(f->take, f->left == COMPILE_TAKEN);
}

static void sifts_as_the_compilers_write(void **state UNUSED)
{
	for (size_t i = 0; i < COUNT(sifts); i++) {
		AUTO_ARENA struct arena *a = arena_new();
		struct compile_file file[FILES_MAX], back[FILES_MAX];
		char want[FILES_MAX];
		size_t n = read_files(a, sifts[i].files, file, want);

		for (size_t k = 0; k < n; k++) /* the order says nothing */
			back[n - 1 - k] = file[k];
		compile_cache_sift(sifts[i].kind, file, n, NOW_MS);
		compile_cache_sift(sifts[i].kind, back, n, NOW_MS);
		for (size_t k = 0; k < n; k++) {
			compare(sifts[i].name, &file[k], want[k]);
			compare(sifts[i].name, &back[n - 1 - k], want[k]);
		}
		/* whose writers are gone: nothing is too young */
		compile_cache_sift(sifts[i].kind, file, n, 0);
		for (size_t k = 0; k < n; k++)
			compare(sifts[i].name, &file[k], want[k] == 'Y' ? 'T' : want[k]);
	}
	compile_cache_sift(COMPILE_JAX, NULL, 0, NOW_MS);
}

/* However many parts are missing, what is taken of a group is all of it or nothing. */
static void without_any_one_file(void **state UNUSED)
{
	static const char *const whole =
		"T K/__grp__a.json "
		"{\"child_paths\":{\"a.json\":\"\",\"a.ptx\":\"\",\"a.ttir\":\"\"}}\n"
		"T K/a.json\nT K/a.ptx\nT K/a.ttir";
	char want[FILES_MAX];

	for (size_t left_out = 0; left_out < 4; left_out++) {
		AUTO_ARENA struct arena *a = arena_new();
		struct compile_file file[FILES_MAX];
		size_t n = read_files(a, whole, file, want);

		file[left_out] = file[n - 1];
		compile_cache_sift(COMPILE_TRITON, file, n - 1, NOW_MS);
		for (size_t k = 0; k + 1 < n; k++)
			assert_int_equal(file[k].left, COMPILE_TORN);
	}
}

/* What goes together has one number, and nothing else has it. */
static void units(void **state UNUSED)
{
	AUTO_ARENA struct arena *a = arena_new();
	struct compile_file file[FILES_MAX];
	char want[FILES_MAX];
	size_t n =
		read_files(a,
	                   "T fxgraph/a/fa/x\nT fxgraph/a/fa/y\nT ab/c.py\nT ab/c.so\nT "
	                   "triton/0/K/k.json\nT triton/0/K/k.ptx\nT triton/0/K/__grp__k.json\nT "
	                   "triton/0/K/l.so",
	                   file, want);
	static const size_t same[] = {0, 1, 2, 2, 4, 4, 4, 7};

	compile_cache_sift(COMPILE_INDUCTOR, file, n, NOW_MS);
	for (size_t i = 0; i < n; i++)
		for (size_t k = 0; k < n; k++)
			assert_int_equal(file[i].unit == file[k].unit, same[i] == same[k]);
}

static void entries(void **state UNUSED)
{
	static const struct {
		enum compile_kind kind;
		const char *path, *entry;
	} cases[] = {
		{COMPILE_NEURON, MODULE "model.neff", "neuronxcc-2.21.1+8212/MODULE_163+abb26765"},
		{COMPILE_NEURON, "neuronxcc-2+1/0_REGISTRY/0.4/x/y.json", NULL},
		{COMPILE_TRITON, "K/a.ptx", "K"},
		{COMPILE_INDUCTOR, "fxgraph/ab/fabc/x", "fxgraph/ab/fabc"},
		{COMPILE_INDUCTOR, "triton/0/K/a.ptx", "triton/0/K"},
		{COMPILE_INDUCTOR, "ab/cabc.py", NULL},
		{COMPILE_INDUCTOR, "fxgraph/ab", NULL},
		{COMPILE_JAX, "jit_f-00-cache", "jit_f-00-cache"},
		{COMPILE_JAX, "jit_f-00-atime", NULL},
		{COMPILE_VLLM, "torch_compile_cache/0a/rank_0_0/x", "torch_compile_cache/0a"},
		{COMPILE_TORCH_EXTENSIONS, "fast/fast.so", "fast"},
		{COMPILE_CUDA, "4/1/0a", "4/1/0a"},
		{COMPILE_CCACHE, "3/3/85lomjR", "3/3/85lomjR"},
		{COMPILE_CCACHE, "3/3/85lomjM", NULL},
	};
	AUTO_ARENA struct arena *a = arena_new();

	for (size_t i = 0; i < COUNT(cases); i++) {
		const char *got = compile_cache_entry(a, cases[i].kind, cases[i].path);

		if (cases[i].entry == NULL)
			assert_null(got);
		else
			assert_string_equal(got, cases[i].entry);
	}
}

/* Where a file is in the repository, there and back. */
static void places(void **state UNUSED)
{
	static const struct {
		enum compile_kind kind;
		const char *device, *path, *in_repo;
	} cases[] = {
		{COMPILE_NEURON, "", MODULE "model.neff", MODULE "model.neff"},
		{COMPILE_CCACHE, "", "3/3/aR", "ccache/3/3/aR"},
		{COMPILE_INDUCTOR, "nvidia-h100", "fxgraph/a/b/c",
	         "inductor/nvidia-h100/fxgraph/a/b/c"},
		{COMPILE_JAX, "cpu", "jit_f-0-cache", "jax/cpu/jit_f-0-cache"},
	};
	static const char *const none[] = {
		"README.md", ".gitattributes", "jax/x",
		"jax//x",    "jax/cpu/",       "other/cpu/x",
		"neuron/x",  "neuronxcc-1",    ".stoker/harvests/a.json"};
	AUTO_ARENA struct arena *a = arena_new();
	struct compile_place p;

	for (size_t i = 0; i < COUNT(cases); i++) {
		assert_string_equal(
			compile_cache_repo_path(a, cases[i].kind, cases[i].device, cases[i].path),
			cases[i].in_repo);
		assert_true(compile_cache_place(a, cases[i].in_repo, &p));
		assert_int_equal(p.kind, cases[i].kind);
		assert_string_equal(p.device, cases[i].device);
		assert_string_equal(p.path, cases[i].path);
	}
	for (size_t i = 0; i < COUNT(none); i++)
		assert_false(compile_cache_place(a, none[i], &p));
}

/* ---- content -------------------------------------------------------------------------------- */

/* Of python3 -c 'base64.b32encode(hashlib.sha256(b"a graph").digest())[:51].lower()' */
#define GRAPH_NAME "c4g7mfclcw67dxhnq6hel263fwwjlufruo6gqrmugs533cdicfl"

static struct str of_base64(const char *text, struct buf *out)
{
	struct err err = {0};

	buf_clear(out);
	assert_int_equal(base64_decode(str_of(text), false, out, &err), 0);
	return buf_view(out);
}

static void graphs_by_their_names(void **state UNUSED)
{
	static const struct {
		const char *path, *content;
		bool whole;
	} cases[] = {
		{"fxgraph/ab/fabc/" GRAPH_NAME, "a graph", true},
		{"fxgraph/ab/fabc/" GRAPH_NAME, "a grap", false},
		{"fxgraph/ab/fabc/" GRAPH_NAME, "", false},
		{"aotautograd/ab/aabc/" GRAPH_NAME, "a graph", true},
		{"aotautograd/ab/aabc/" GRAPH_NAME, "another", false},
		{"aotautograd/ab/aabc/entry", "\x80\x04K\x01.", true},
		{"aotautograd/ab/aabc/entry", "\x80\x04K\x01", false},
		{"aotautograd/ab/aabc/entry", "", false},
		{"ab/" GRAPH_NAME, "x", true}, /* code */
		{"my_fxgraph/ab/fabc/" GRAPH_NAME, "x", true},
	};

	for (size_t i = 0; i < COUNT(cases); i++)
		assert_int_equal(compile_cache_is_whole(COMPILE_INDUCTOR, cases[i].path,
		                                        str_of(cases[i].content)),
		                 cases[i].whole);
	assert_false(compile_cache_is_whole(
		COMPILE_VLLM,
		"torch_compile_cache/0a/rank_0_0/inductor_cache/fxgraph/a/fa/" GRAPH_NAME,
		STR_LIT("torn")));
}

/* What JAX packs: zlib of Python, zstd of the zstd program with and without a checksum and a size,
 * of two frames, and of zeros. No piece of one is whole, nor one with more behind it. */
static void frames(void **state UNUSED)
{
	static const char *const packed[] = {
		"eJxjYGBgLE4tykzMyaxKTVFIrUhNLi1JTMpJVRgVHeyiDIxMzCysbOwcnFzcPLx8/AKCQs"
		"IiomLiEpJS0jKycvIKikrKKqpq6hqaWto6unr6BoZGxiamZuYWllbWNrZ29g6OTs4urm7u"
		"Hp5e3j6+fv4BgUHBIaFh4RGRUdExsXHxCYlJySmpaekZmVnZObl5+QWFRcUlpWXlFZVV1T"
		"W1dfUNjU3NLa1t7R2dXd09vX39EyZOmjxl6rTpM2bOmj1n7rz5CxYuWrxk6bLlK1auWr1m"
		"7br1GzZu2rxl67btO3bu2r1n7779Bw4eOnzk6LHjJ06eOn3m7LnzFy5eunzl6rXrN27eun"
		"3n7r37Dx4+evzk6bPnL16+ev3m7bv3Hz5++vzl67fvP37++v3n77//AIEMKqk=",
		"KLUv/QRYFQkApBEAAAABc2VyaWFsaXplZCBleGVjdXRhYmxlIAABAgMEBQYHCAkKCwwNDg"
		"8QERITFBUWFxgZGhscHR4fICEiIyQlJicoKSorLC0uLzAxMjM0NTY3ODk6Ozw9Pj9AQUJD"
		"REVGR0hJSktMTU5PUFFSU1RVVldYWVpbXF1eX2BhYmNkZWZnaGlqa2xtbm9wcXJzdHV2d3"
		"h5ent8fX5/gIGCg4SFhoeIiYqLjI2Oj5CRkpOUlZaXmJmam5ydnp+goaKjpKWmp6ipqqus"
		"ra6vsLGys7S1tre4ubq7vL2+v8DBwsPExcbHyMnKy8zNzs/Q0dLT1NXW19jZ2tvc3d7f4O"
		"Hi4+Tl5ufo6err7O3u7/Dx8vP09fb3+Pn6+/z9/v8BAH6mOsfTzwx9",
		"KLUv/QBYFQkApBEAAAABc2VyaWFsaXplZCBleGVjdXRhYmxlIAABAgMEBQYHCAkKCwwNDg"
		"8QERITFBUWFxgZGhscHR4fICEiIyQlJicoKSorLC0uLzAxMjM0NTY3ODk6Ozw9Pj9AQUJD"
		"REVGR0hJSktMTU5PUFFSU1RVVldYWVpbXF1eX2BhYmNkZWZnaGlqa2xtbm9wcXJzdHV2d3"
		"h5ent8fX5/gIGCg4SFhoeIiYqLjI2Oj5CRkpOUlZaXmJmam5ydnp+goaKjpKWmp6ipqqus"
		"ra6vsLGys7S1tre4ubq7vL2+v8DBwsPExcbHyMnKy8zNzs/Q0dLT1NXW19jZ2tvc3d7f4O"
		"Hi4+Tl5ufo6err7O3u7/Dx8vP09fb3+Pn6+/z9/v8BAH6mOsc=",
		"KLUv/QRYVAAAEAAAAQD7/znAAgIAEAADnwQALSjeJg==",
		"KLUv/QRYDQEA0AAAAAFzZXJpYWxpemVkIGV4ZWN1dGFibGUgAQCukppjkrlPlCi1L/0EWF"
		"UAACBtb3JlAQDjjghll0L6",
		"KLUv/SQAAQAAmenYUQ==",
		"KLUv/WS8ARUJAKQRAAAAAXNlcmlhbGl6ZWQgZXhlY3V0YWJsZSAAAQIDBAUGBwgJCgsMDQ"
		"4PEBESExQVFhcYGRobHB0eHyAhIiMkJSYnKCkqKywtLi8wMTIzNDU2Nzg5Ojs8PT4/QEFC"
		"Q0RFRkdISUpLTE1OT1BRUlNUVVZXWFlaW1xdXl9gYWJjZGVmZ2hpamtsbW5vcHFyc3R1dn"
		"d4eXp7fH1+f4CBgoOEhYaHiImKi4yNjo+QkZKTlJWWl5iZmpucnZ6foKGio6Slpqeoqaqr"
		"rK2ur7CxsrO0tba3uLm6u7y9vr/AwcLDxMXGx8jJysvMzc7P0NHS09TV1tfY2drb3N3e3+"
		"Dh4uPk5ebn6Onq6+zt7u/w8fLz9PX29/j5+vv8/f7/AQB+pjrH088MfQ==",
	};
	AUTO_BUF struct buf b = BUF_INIT((size_t)1 << 20);

	for (size_t i = 0; i < COUNT(packed); i++) {
		struct str whole = of_base64(packed[i], &b);
		AUTO_FREE char *cut = NULL;

		assert_true(compile_cache_is_whole(COMPILE_JAX, "f-0-cache", whole));
		for (size_t n = 0; n < whole.n; n++) {
			bool at_frame = i == 4 && n == 46;

			free(cut);
			cut = str_dup(str_n(whole.p, n)); /* memory of its own */
			if (compile_cache_is_whole(COMPILE_JAX, "f-0-cache", str_n(cut, n)) !=
			    at_frame)
				fail_msg("frame %zu, %zu of %zu bytes", i, n, whole.n);
		}
		buf_putc(&b, 'x');
		assert_false(compile_cache_is_whole(COMPILE_JAX, "f-0-cache", buf_view(&b)));
	}
	assert_true(compile_cache_is_whole(COMPILE_JAX, "f-0-atime", STR_LIT("x")));
	assert_false(compile_cache_is_whole(COMPILE_JAX, "f-0-cache", STR_LIT("plain")));
}

static void libraries_and_others(void **state UNUSED)
{
	AUTO_BUF struct buf elf = BUF_INIT((size_t)64 << 20);
	struct err err = {0};
	struct str s;

	assert_int_equal(fs_read(AT_FDCWD, "/proc/self/exe", &elf, &err), 0);
	s = buf_view(&elf);
	assert_true(compile_cache_is_whole(COMPILE_INDUCTOR, "ab/c.so", s));
	assert_true(compile_cache_is_whole(COMPILE_TORCH_EXTENSIONS, "x/x.so", s));
	for (size_t n = 0; n < s.n; n += 1 + s.n / 97) {
		AUTO_FREE char *cut = str_dup(str_n(s.p, n));

		assert_false(compile_cache_is_whole(COMPILE_TRITON, "K/x.so", str_n(cut, n)));
	}
	assert_false(compile_cache_is_whole(COMPILE_TRITON, "K/__grp__a.json", STR_LIT("{\"ch")));
	assert_true(compile_cache_is_whole(COMPILE_TRITON, "K/__grp__a.json", STR_LIT("{}")));
	assert_false(compile_cache_is_whole(COMPILE_TRITON, "K/a.json", STR_LIT("")));
	assert_false(compile_cache_is_whole(COMPILE_INDUCTOR, "triton/0/K/__grp__a.json",
	                                    STR_LIT("{\"ch")));
	assert_true(compile_cache_is_whole(COMPILE_TRITON, "K/a.ptx", STR_LIT("")));
	assert_false(compile_cache_is_whole(COMPILE_NEURON, MODULE "model.neff", STR_LIT("")));
	assert_true(compile_cache_is_whole(COMPILE_NEURON, MODULE "model.done", STR_LIT("")));
	assert_true(compile_cache_is_whole(COMPILE_CCACHE, "3/aR", STR_LIT("\xcc\xac\x01")));
	assert_false(compile_cache_is_whole(COMPILE_CCACHE, "3/aR", STR_LIT("\xcc")));
	assert_true(compile_cache_is_whole(COMPILE_CUDA, "index", STR_LIT("")));
}

/* A group file that comes to another place names its children there. */
static void moves(void **state UNUSED)
{
	static const struct {
		enum compile_kind kind;
		const char *path, *text, *moved;
	} cases[] = {
		{COMPILE_TRITON, "K/__grp__a.json",
	         "{\"child_paths\": {\"a.json\": \"/x/K/a.json\", \"a.ptx\": \"/x/K/a.ptx\"}}",
	         "{\"child_paths\":{\"a.json\":\"/new/K/a.json\",\"a.ptx\":\"/new/K/a.ptx\"}}"},
		{COMPILE_INDUCTOR, "triton/0/K/__grp__a.json", "{\"child_paths\":{\"a\":1}}",
	         "{\"child_paths\":{\"a\":\"/new/triton/0/K/a\"}}"},
		{COMPILE_TRITON, "K/__grp__a.json", "{\"child_paths\":{}}", "{\"child_paths\":{}}"},
		{COMPILE_TRITON, "K/__grp__a.json", "{\"child_pa", NULL},
		{COMPILE_TRITON, "K/__grp__a.json", "{}", NULL},
		{COMPILE_TRITON, "K/a.json", "{\"child_paths\":{\"a\":\"/x\"}}", NULL},
		{COMPILE_JAX, "K/__grp__a.json", "{\"child_paths\":{}}", NULL},
	};

	for (size_t i = 0; i < COUNT(cases); i++) {
		AUTO_BUF struct buf out = BUF_INIT((size_t)4096);
		bool is = compile_cache_move(cases[i].kind, cases[i].path, str_of(cases[i].text),
		                             "/new", &out);

		assert_int_equal(is, cases[i].moved != NULL);
		assert_string_equal(buf_cstr(&out), is ? cases[i].moved : "");
	}
	assert_true(compile_cache_is_sign("K/__grp__a.json"));
	assert_true(compile_cache_is_sign(MODULE "model.done"));
	assert_false(compile_cache_is_sign(MODULE "model.neff"));
}

/* A thousand times what it is read from. */
static void bombs(void **state UNUSED)
{
	static const size_t piece = (size_t)1 << 20;
	AUTO_FREE unsigned char *zeros = xcalloc(1, piece), *packed = xcalloc(1, piece);
	AUTO_FREE char *list = xcalloc(1, 17 * piece);
	z_stream z = {.next_out = packed, .avail_out = (uInt)piece};

	assert_int_equal(deflateInit(&z, Z_BEST_SPEED), Z_OK);
	for (size_t i = 0; i < 128; i++) {
		z.next_in = zeros;
		z.avail_in = (uInt)piece;
		assert_int_equal(deflate(&z, i == 127 ? Z_FINISH : Z_NO_FLUSH),
		                 i == 127 ? Z_STREAM_END : Z_OK);
	}
	assert_false(compile_cache_is_whole(COMPILE_JAX, "f-1-cache",
	                                    str_n((char *)packed, z.total_out)));
	assert_int_equal(deflateEnd(&z), Z_OK);
	memset(list, ' ', 17 * piece);
	memcpy(list, "[]", 2);
	assert_true(compile_cache_is_whole(COMPILE_TRITON, "K/a.json", str_n(list, piece)));
	assert_false(compile_cache_is_whole(COMPILE_TRITON, "K/a.json", str_n(list, 17 * piece)));
}

static void texts_that_are_read(void **state UNUSED)
{
	size_t room = 3 * COMPILE_TEXT_MAX / 2;

	assert_false(compile_cache_takes_text(COMPILE_TRITON, "K/a.json", 1, &room));
	assert_false(compile_cache_takes_text(COMPILE_TRITON, "K/__grp__a.json",
	                                      COMPILE_TEXT_MAX + 1, &room));
	assert_true(compile_cache_takes_text(COMPILE_TRITON, "K/__grp__a.json", COMPILE_TEXT_MAX,
	                                     &room));
	assert_int_equal(room, COMPILE_TEXT_MAX / 2);
	assert_false(compile_cache_takes_text(COMPILE_TRITON, "K/__grp__b.json", COMPILE_TEXT_MAX,
	                                      &room));
	assert_true(compile_cache_takes_text(COMPILE_TRITON, "K/__grp__b.json", 1, &room));
	assert_int_equal(room, COMPILE_TEXT_MAX / 2 - 1);
}

static void devices(void **state UNUSED)
{
	static const struct {
		const char *name, *part;
	} cases[] = {{"NVIDIA H100 80GB HBM3", "nvidia-h100-80gb-hbm3"},
	             {"  a//b..", "a-b"},
	             {"", ""},
	             {"\xc3\xa9", ""}};
	char out[COMPILE_DEVICE_CAP];
	char long_name[300];

	for (size_t i = 0; i < COUNT(cases); i++) {
		compile_cache_device(str_of(cases[i].name), out);
		assert_string_equal(out, cases[i].part);
	}
	memset(long_name, 'a', sizeof(long_name));
	compile_cache_device(str_n(long_name, sizeof(long_name)), out);
	assert_int_equal(strlen(out), COMPILE_DEVICE_CAP - 1);
}

static void what_ninja_has_built(void **state UNUSED)
{
	AUTO_ARENA struct arena *a = arena_new();
	static const char *const useless[] = {
		"",
		"# ninja log v5\n",
		"0\t9\t1700000000000000001\tmain.o\tabc\n",                /* no head */
		"# ninja log v5\n0\t9\t1700000000\tmain.o\tabc\n",         /* in seconds */
		"# ninja log v5\n0\t9\t-5\tmain.o\tabc\n0\t9\t\t\t\n\t\n", /* damaged */
	};
	static const char log[] = "# ninja log v6\n"
				  "0\t9\t1700000000000000005\tmain.o\t1a\n"
				  "0\t9\t1700000000000000002\ta/cuda.cuda.o\t2b\n"
				  "damaged\n"
				  "9\t12\t1700000000000000009\tfast.so\t3c\n"
				  "0\t9\t1700000000000000007\tmain.o\t1a\n"; /* built again */
	static const struct {
		const char *path;
		int64_t ns;
	} rows[] = {{"py/fast/main.o", 1700000000000000007},
	            {"py/fast/a/cuda.cuda.o", 1700000000000000002},
	            {"py/fast/fast.so", 1700000000000000009},
	            {"py/fast/main.cpp", 1700000000000000002},
	            {"py/fast/", 1700000000000000002}};
	static const char record[] = "py/fast/.ninja_log";
	struct compile_built b;
	int64_t ns;

	assert_true(compile_cache_is_built(record));
	assert_false(compile_cache_is_built("py/fast/x.ninja_log"));
	assert_false(compile_cache_is_built("py/.ninja_log/x"));
	for (size_t i = 0; i < COUNT(useless); i++)
		assert_false(compile_cache_built(a, record, str_of(useless[i]), &b));
	assert_true(compile_cache_built(a, record, str_of(log), &b));
	for (size_t i = 0; i < COUNT(rows); i++) {
		assert_true(compile_cache_built_ns(&b, rows[i].path, &ns));
		assert_true(ns == rows[i].ns);
	}
	assert_false(compile_cache_built_ns(&b, "py/faster/main.o", &ns));
	assert_false(compile_cache_built_ns(&b, "py", &ns));
}

static const struct CMUnitTest tests[] = {
	cmocka_unit_test(sifts_as_the_compilers_write),
	cmocka_unit_test(without_any_one_file),
	cmocka_unit_test(units),
	cmocka_unit_test(entries),
	cmocka_unit_test(places),
	cmocka_unit_test(graphs_by_their_names),
	cmocka_unit_test(frames),
	cmocka_unit_test(libraries_and_others),
	cmocka_unit_test(moves),
	cmocka_unit_test(bombs),
	cmocka_unit_test(texts_that_are_read),
	cmocka_unit_test(devices),
	cmocka_unit_test(what_ninja_has_built),
};
UNIT_MAIN(tests)
