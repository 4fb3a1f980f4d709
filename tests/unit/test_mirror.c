/* test_mirror.c - a source becomes blobs: faults, twins, resuming after kill -9, sharing a fetch.
 */
#include "faulty.h"

#include "store/blobs/blob_objects.h"
#include "store/sources/mirror.h"
#include "store/sources/xfer.h"

#include <dirent.h>
#include <pthread.h>
#include <sys/wait.h>

#define MIB ((size_t)1 << 20)
#define LARGE_SIZE (24 * MIB + 777)
#define LONG_SIZE (40 * MIB + 777)
#define SECRET "{\"aws_access_key_id\":\"AKID\",\"aws_secret_access_key\":\"shh\"}"
#define N_SMALL 300

static struct faulty server;

static int setup(void **state UNUSED)
{
	char path[40];

	faulty_folder(&server);
	for (unsigned i = 0; i < N_SMALL; i++) {
		FMT(path, "small/%u/f%u.json", i % 7, i);
		faulty_fill(&server, path, 500 + i * 31, (uint8_t)i);
	}
	faulty_fill(&server, "mid.bin", 3 * MIB, 5);
	faulty_fill(&server, "twin.bin", 3 * MIB, 5);
	faulty_fill(&server, "large.safetensors", LARGE_SIZE, 2);
	faulty_fill(&server, "long.safetensors", LONG_SIZE, 7);
	faulty_fill(&server, "empty", 0, 0);
	faulty_start(&server);
	return 0;
}

static int teardown(void **state UNUSED)
{
	faulty_stop(&server);
	return 0;
}

/* --- one mirror ------------------------------------------------------------------------------ */

struct store {
	char dir[64];
	struct blobs *blobs;
};

static void store_open(struct store *st)
{
	struct err err = {0};

	FMT(st->dir, "/tmp/test-mirror-XXXXXX");
	assert_non_null(mkdtemp(st->dir));
	assert_ok(blobs_open(&st->blobs, st->dir, &err), &err);
}

static void store_done(struct store *st)
{
	struct err err = {0};

	blobs_close(st->blobs);
	assert_ok(fs_remove_tree(AT_FDCWD, st->dir, &err), &err);
}

static size_t names_in(const struct store *st, const char *folder)
{
	AUTO_FREE char *path = xasprintf("%s/%s", st->dir, folder);

	return dir_names(path);
}

struct run {
	const char *url; /* '@name' = a plain file of the server */
	const char *faults;
	const char *allow; /* one pattern, NULL = all */
	const atomic_bool *cancel;
	struct http_client *client; /* NULL = the server's */
	struct objstore *objects;   /* NULL = none */
	struct digest manifest;
	struct mirror_progress done;
};

static int run_mirror(struct store *st, struct run *run, struct err *err)
{
	AUTO_ARENA struct arena *a = arena_new();
	AUTO_SOURCE struct source *s = NULL;
	const char *faults = run->faults != NULL ? run->faults : "";
	char *at = arena_printf(a, "%s%s%s", server.base, *faults != '\0' ? "/f/" : "", faults);
	char *url = run->url[0] == '@'   ? arena_printf(a, "%s/plain/%s", at, run->url + 1)
	            : run->url[0] == '/' ? arena_printf(a, "file://%s%s", server.root, run->url)
	                                 : arena_cstr(a, run->url);
	const char *roots[] = {server.root};
	struct source_options o = {
		.client = run->client != NULL ? run->client : server.client,
		.hf_endpoint = at,
		.s3_endpoint = at,
		.file_roots = roots,
		.n_file_roots = 1,
		.secret = str_n(SECRET, strncmp(run->url, "s3", 2) == 0 ? strlen(SECRET) : 0),
		.stall_ms = strstr(faults, "stall") != NULL ? 2000 : 60000};
	struct glob_filter filter = {.allow = &run->allow, .n_allow = run->allow != NULL};
	struct source_listing l;
	AUTO_BLOB_PINS struct blob_pins *pins = blob_pins_new(st->blobs);
	struct mirror_job job = {.blobs = st->blobs,
	                         .pins = pins,
	                         .listing = &l,
	                         .objects = run->objects,
	                         .cancel = run->cancel};

	if (source_open(&s, url, &o, err) < 0 || source_list(s, a, &filter, NULL, &l, err) < 0)
		return -1;
	job.source = s;
	return mirror_fetch(&job, &run->manifest, &run->done, err);
}

/* Every file of the manifest is there and has the server's content. */
static void assert_mirrored(struct store *st, const struct digest *name, size_t n)
{
	AUTO_ARENA struct arena *a = arena_new();
	struct manifest m;
	struct err err = {0};

	assert_ok(blobs_get_manifest(st->blobs, a, name, &m, &err), &err);
	assert_int_equal(m.n, n);
	for (size_t i = 0; i < m.n; i++) {
		AUTO_FREE char *path = xasprintf("%s/%s", server.root, m.file[i].path);
		AUTO_FD int fd = open(path, O_RDONLY | O_CLOEXEC);
		struct digest d;
		uint64_t size;

		assert_ok(blobs_verify(st->blobs, &m.file[i].sha256, NULL, NULL, &err), &err);
		assert_ok(hash_fd(fd, &d, &size, &err), &err);
		assert_true(digest_same(&d, &m.file[i].sha256));
		assert_int_equal(size, m.file[i].size);
	}
}

static void put_objects(struct store *st, struct objstore *os, const struct digest *manifest)
{
	AUTO_BLOB_PINS struct blob_pins *pins = blob_pins_new(st->blobs);
	const struct blob_objects_put put = {
		.from = st->blobs, .to = os, .pins = pins, .manifest = manifest};
	struct err err = {0};

	assert_ok(blob_objects_put(&put, &err), &err);
}

static void shorten(struct objstore *os, struct store *st, const struct digest *manifest,
                    const char *path)
{
	AUTO_ARENA struct arena *a = arena_new();
	struct manifest m;
	struct err err = {0};
	char key[BLOB_KEY_CAP];

	assert_ok(blobs_get_manifest(st->blobs, a, manifest, &m, &err), &err);
	blob_object_key(&manifest_find(&m, str_of(path))->sha256, key);
	assert_ok(objstore_put(os, key, STR_LIT("half"), &err), &err);
}

/* --- what goes well -------------------------------------------------------------------------- */

static void mirror_whole_repository(void **state UNUSED)
{
	struct run run = {.url = "hf://me/repo"};
	struct err err = {0};
	struct store st;
	uint64_t total = 0;

	store_open(&st);
	(void)faulty_stat(&server, "bytes");
	assert_ok(run_mirror(&st, &run, &err), &err);
	assert_mirrored(&st, &run.manifest, N_SMALL + 5);
	assert_int_equal(names_in(&st, "tmp"), 0);
	assert_int_equal(names_in(&st, "manifests"), 1);
	assert_int_equal(run.done.files_done, N_SMALL + 5);
	assert_int_equal(run.done.bytes_done, run.done.bytes_total);
	/* twins travel once */
	total = run.done.bytes_total - 3 * MIB;
	assert_int_equal(run.done.fetched, total);
	assert_int_equal(faulty_stat(&server, "bytes"), total);

	/* Again: nothing is asked for, nor is anything doubled. */
	assert_ok(run_mirror(&st, &run, &err), &err);
	assert_int_equal(run.done.fetched, 0);
	assert_int_equal(faulty_stat(&server, "bytes"), 0);
	assert_mirrored(&st, &run.manifest, N_SMALL + 5);
	assert_int_equal(names_in(&st, "manifests"), 1);
	store_done(&st);
}

/* A folder that has nothing, and an object store that has all: only what the source promises no
 * SHA-256 of travels, and the store lacks nothing behind it. */
static void mirror_asks_the_object_store(void **state UNUSED)
{
	struct run first = {.url = "hf://me/repo"}, second = first;
	AUTO_OBJSTORE struct objstore *os = NULL;
	struct err err = {0};
	struct store one, two;
	uint64_t large = LARGE_SIZE + LONG_SIZE;

	assert_ok(objstore_open(&os, "mem:", &(struct objstore_env){0}, &err), &err);
	second.objects = os;
	store_open(&one);
	store_open(&two);
	assert_ok(run_mirror(&one, &first, &err), &err);
	put_objects(&one, os, &first.manifest);
	assert_ok(run_mirror(&two, &second, &err), &err);
	assert_true(digest_same(&first.manifest, &second.manifest));
	assert_true(second.done.fetched + large <= second.done.bytes_total);
	assert_int_equal(second.done.bytes_done, second.done.bytes_total);
	put_objects(&two, os, &second.manifest); /* nothing that is not there */
	store_done(&two);
	store_open(&two);
	/* one that is half there is not there */
	shorten(os, &one, &first.manifest, "large.safetensors");
	assert_ok(run_mirror(&two, &second, &err), &err);
	assert_true(second.done.fetched >= LARGE_SIZE);
	put_objects(&two, os, &second.manifest);
	store_done(&one);
	store_done(&two);
}

/* Large files share sixteen streams; of small ones there are more under way when each takes long.
 */
static void mirror_stays_within_its_streams(void **state UNUSED)
{
	static const struct {
		const char *faults, *allow;
		uint64_t above, most;
	} rows[] = {
		{"slow=40000000", "l*", 2, 16},
		{"slow=60000", "small/**", 16, 48},
	};

	for (size_t i = 0; i < COUNT(rows); i++) {
		struct run run = {
			.url = "hf://me/repo", .faults = rows[i].faults, .allow = rows[i].allow};
		struct err err = {0};
		struct store st;
		uint64_t most;

		store_open(&st);
		(void)faulty_stat(&server, "at_once_max");
		assert_ok(run_mirror(&st, &run, &err), &err);
		most = faulty_stat(&server, "at_once_max");
		assert_row(most > rows[i].above, rows[i].allow);
		assert_row(most <= rows[i].most, rows[i].allow);
		store_done(&st);
	}
}

/* Faults that pass: each row ends in the whole, right content. */
static void mirror_gets_through(void **state UNUSED)
{
	static const struct {
		const char *url, *faults, *allow;
	} rows[] = {
		{"hf://me/repo", "cut=6000000", "large*"},
		{"hf://me/repo", "norange", "large*"},
		{"hf://me/repo", "expire=1", "large*"},
		{"hf://me/repo", "status=503:1", "large*"},
		{"hf://me/repo", "reset:1", "mid*"},
		{"hf://me/repo", "status=429:1,retry-after=1", "mid*"},
		{"hf://me/repo", "stall=100000:1", "mid*"},
		{"hf://me/repo", "cut=2000000:2", "mid*"},
		{"hf://me/repo", "norange,cut=1000000:2", "mid*"},
		{"hf://me/repo", "status=503:2", "small/1/*"},
		{"hf://me/repo", "cut=100:2", "small/2/*"},
		{"@large.safetensors", "digest", NULL},
		{"@large.safetensors", "norange,nohead", NULL},
		{"@large.safetensors", "cut=9000000", NULL},
		{"@large.safetensors", "noetag,cut=9000000", NULL},
		{"@large.safetensors", "noetag,nodate", NULL},
		{"@large.safetensors", "noetag,nodate,cut=20000000:1", NULL},
		{"s3://bucket/", "cut=9000000", "large*"},
		{"s3://bucket/", "norange,status=503:1", "large*"},
		{"s3://bucket/", "reset:1", "small/4/*"},
		{"/", NULL, "large*"},
		{"/", NULL, "small/**"},
	};

	for (size_t i = 0; i < COUNT(rows); i++) {
		struct run run = {
			.url = rows[i].url, .faults = rows[i].faults, .allow = rows[i].allow};
		struct err err = {0};
		struct store st;

		store_open(&st);
		if (run_mirror(&st, &run, &err) < 0)
			fail_msg("row %zu: %s", i, err.msg);
		assert_mirrored(&st, &run.manifest, run.done.files_total);
		assert_int_equal(names_in(&st, "tmp"), 0);
		store_done(&st);
	}
}

/* Sources that promise no SHA-256: what has not changed does not travel again. */
static void mirror_knows_what_it_has_fetched(void **state UNUSED)
{
	static const char *const urls[] = {"s3://bucket/", "/", "@mid.bin"};
	struct err err = {0};

	for (size_t i = 0; i < COUNT(urls); i++) {
		struct run run = {.url = urls[i], .allow = i == 0 ? NULL : "*.bin"};
		struct store st;
		struct digest first;
		uint64_t n;
		char path[80];

		store_open(&st);
		assert_ok(run_mirror(&st, &run, &err), &err);
		assert_true(run.done.fetched > 0);
		first = run.manifest;
		n = run.done.files_total;
		(void)faulty_stat(&server, "bytes");
		assert_ok(run_mirror(&st, &run, &err), &err);
		assert_int_equal(run.done.fetched, 0);
		assert_int_equal(faulty_stat(&server, "bytes"), 0);
		assert_true(digest_same(&first, &run.manifest));
		assert_mirrored(&st, &run.manifest, n);

		faulty_fill(&server, "mid.bin", 3 * MIB, (uint8_t)(50 + i));
		assert_ok(run_mirror(&st, &run, &err), &err);
		assert_int_equal(run.done.fetched, 3 * MIB);
		assert_mirrored(&st, &run.manifest, n);

		/* A blob that is gone is fetched again, whatever is known. */
		FMT(path, "%s/blobs", st.dir);
		assert_ok(fs_remove_tree(AT_FDCWD, path, &err), &err);
		blobs_close(st.blobs);
		assert_ok(blobs_open(&st.blobs, st.dir, &err), &err);
		assert_ok(run_mirror(&st, &run, &err), &err);
		assert_true(run.done.fetched >= 3 * MIB);
		assert_mirrored(&st, &run.manifest, n);
		store_done(&st);
	}
	faulty_fill(&server, "mid.bin", 3 * MIB, 5);
}

/* --- what goes wrong ------------------------------------------------------------------------- */

static void mirror_failures(void **state UNUSED)
{
	static const struct {
		const char *url, *faults, *allow;
		enum err_code id;
	} rows[] = {
		{"hf://me/repo", "lie", "large*", ERR_DIGEST_MISMATCH},
		{"hf://me/repo", "lie", "small/1/f1.json", ERR_DIGEST_MISMATCH},
		{"hf://me/repo", "corrupt=20000000", "large*", ERR_DIGEST_MISMATCH},
		{"hf://me/repo", "corrupt=7", "small/3/*", ERR_DIGEST_MISMATCH},
		{"@large.safetensors", "digest,corrupt=123", NULL, ERR_DIGEST_MISMATCH},
		{"hf://me/repo", "length=+1", "large*", ERR_SOURCE_CHANGED},
		{"hf://me/repo", "length=-1", "mid*", ERR_SOURCE_CHANGED},
		{"@large.safetensors", "noetag,nodate,cut=20000000", NULL, ERR_SOURCE_UNREACHABLE},
		{"hf://me/repo", "cut=0", "mid*", ERR_SOURCE_UNREACHABLE},
		{"hf://me/repo", "loop", "large*", ERR_SOURCE_REDIRECT_DENIED},
		{"hf://me/repo", "status=404", "large*", ERR_SOURCE_NOT_FOUND},
		{"hf://me/repo", "status=416", "large*", ERR_RANGE},
		{"hf://me/repo", "status=429,retry-after=4000", "mid*", ERR_SOURCE_BUSY},
		{"hf://me/repo", "gzip", "large*", ERR_SOURCE_BROKEN},
		{"@large.safetensors", "etag=3", NULL, ERR_SOURCE_CHANGED},
	};

	for (size_t i = 0; i < COUNT(rows); i++) {
		struct run run = {
			.url = rows[i].url, .faults = rows[i].faults, .allow = rows[i].allow};
		struct err err = {0};
		struct store st;

		store_open(&st);
		if (run_mirror(&st, &run, &err) == 0 || err.id != rows[i].id)
			fail_msg("row %zu: %s: %s", i, err_id(&err), err.msg);
		assert_true(str_starts(str_of(err.msg),
		                       rows[i].url[0] == '@' ? server.base : "hf://me/repo: "));
		assert_int_equal(names_in(&st, "manifests"), 0);
		store_done(&st);
	}
}

static void mirror_checks_space_first(void **state UNUSED)
{
	AUTO_SOURCE struct source *s = NULL;
	struct source_options o = {.client = server.client, .hf_endpoint = server.base};
	struct source_file huge = {.path = "huge", .size = (uint64_t)1 << 60};
	struct source_listing l = {.revision = "x", .file = &huge, .n = 1, .bytes = huge.size};
	struct mirror_progress done;
	struct digest manifest;
	struct err err = {0};
	struct store st;
	struct mirror_job job = {.listing = &l};

	store_open(&st);
	assert_ok(source_open(&s, "hf://me/repo", &o, &err), &err);
	job.blobs = st.blobs;
	job.pins = blob_pins_new(st.blobs);
	job.source = s;
	assert_err(mirror_fetch(&job, &manifest, &done, &err), &err, ERR_NO_SPACE, "1.15 EB");
	blob_pins_free(job.pins);
	assert_int_equal(names_in(&st, "tmp"), 0);
	store_done(&st);
}

static void *cancel_soon(void *arg)
{
	(void)usleep(300000);
	atomic_store((atomic_bool *)arg, true);
	return NULL;
}

static void mirror_can_be_canceled(void **state UNUSED)
{
	atomic_bool cancel = false;
	struct run run = {.url = "hf://me/repo",
	                  .faults = "slow=200000", /* two minutes */
	                  .allow = "large*",
	                  .cancel = &cancel};
	struct err err = {0};
	struct store st;
	pthread_t t;

	store_open(&st);
	assert_int_equal(pthread_create(&t, NULL, cancel_soon, &cancel), 0);
	assert_err(run_mirror(&st, &run, &err), &err, ERR_CANCELED, "hf://me/repo: canceled");
	(void)pthread_join(t, NULL);
	/* What came so far is kept. */
	run.cancel = NULL;
	run.faults = NULL;
	assert_ok(run_mirror(&st, &run, &err), &err);
	assert_mirrored(&st, &run.manifest, 1);
	store_done(&st);
}

/* --- resuming and sharing -------------------------------------------------------------------- */

/* Bytes that the journal vouches for, of parts that are whole and of those that are not. */
static uint64_t noted_bytes(const struct store *st)
{
	AUTO_FREE char *tmp = xasprintf("%s/tmp", st->dir);
	AUTO_BUF struct buf b = BUF_INIT(1 << 20);
	uint64_t part_bytes[LONG_SIZE / XFER_PART_MIN + 1] = {0}, sum = 0;
	DIR *d = opendir(tmp);
	struct err err = {0};
	struct str rest, line;
	unsigned value;

	assert_non_null(d);
	for (struct dirent *e = readdir(d); e != NULL; e = readdir(d)) {
		if (str_ends(str_of(e->d_name), ".journal"))
			assert_ok(fs_read(dirfd(d), e->d_name, &b, &err), &err);
	}
	(void)closedir(d);
	rest = buf_view(&b);
	while (str_cut(&rest, '\n', &line)) {
		if (line.n != 19)
			continue;
		if (sscanf(line.p, "w %8x", &value) == 1)
			part_bytes[value / 256] = value % 256 * (XFER_PART_MIN / 256);
		else if (sscanf(line.p, "p %8x", &value) == 1)
			part_bytes[value] = MIN(XFER_PART_MIN, LONG_SIZE - value * XFER_PART_MIN);
	}
	for (size_t i = 0; i < COUNT(part_bytes); i++)
		sum += part_bytes[i];
	return sum;
}

/* Is killed when `more` bytes than before are noted. */
static void mirror_and_kill(struct store *st, uint64_t more)
{
	struct run run = {.url = "hf://me/repo", .faults = "slow=4000000", .allow = "long*"};
	uint64_t want = noted_bytes(st) + more;
	struct err err = {0};
	int status;
	pid_t pid = fork();

	assert_true(pid >= 0);
	if (pid == 0) {
		run.client = http_client_new(&(struct http_policy){0});
		_exit(run_mirror(st, &run, &err) == 0 ? 0 : 1);
	}
	for (int i = 0; i < 12000 && noted_bytes(st) < want; i++)
		(void)usleep(10000);
	assert_int_equal(kill(pid, SIGKILL), 0);
	assert_int_equal(waitpid(pid, &status, 0), pid);
	assert_true(WIFSIGNALED(status));
	assert_true(noted_bytes(st) >= want);
}

/* From a slow source, before its first part is whole, too: each time it goes on. */
static void mirror_resumes_after_kill(void **state UNUSED)
{
	struct run again = {.url = "hf://me/repo", .allow = "long*"};
	struct err err = {0};
	struct store st;
	uint64_t noted;

	store_open(&st);
	for (int i = 0; i < 3; i++)
		mirror_and_kill(&st, XFER_PART_MIN / 8);
	noted = noted_bytes(&st);
	assert_true(noted < LONG_SIZE);
	(void)faulty_stat(&server, "bytes");
	assert_ok(run_mirror(&st, &again, &err), &err);
	assert_mirrored(&st, &again.manifest, 1);
	assert_int_equal(again.done.fetched, LONG_SIZE - noted);
	assert_int_equal(faulty_stat(&server, "bytes"), LONG_SIZE - noted);
	assert_int_equal(names_in(&st, "tmp"), 0);
	store_done(&st);
}

struct duplicate {
	struct store *st;
	struct run run;
	struct err err;
	int r;
};

static void *run_twin(void *arg)
{
	struct duplicate *t = arg;

	t->r = run_mirror(t->st, &t->run, &t->err);
	return NULL;
}

/* Two jobs want the same blob at the same time: it travels once. */
static void mirror_shares_a_fetch(void **state UNUSED)
{
	struct duplicate duplicate[2] = {0};
	pthread_t thread[2];
	struct store st;

	store_open(&st);
	(void)faulty_stat(&server, "bytes");
	for (size_t i = 0; i < COUNT(duplicate); i++) {
		duplicate[i].st = &st;
		duplicate[i].run = (struct run){.url = i == 0 ? "hf://me/repo" : "hf://you/fork",
		                                .allow = "large*",
		                                .faults = "slow=30000000"};
		assert_int_equal(pthread_create(&thread[i], NULL, run_twin, &duplicate[i]), 0);
	}
	for (size_t i = 0; i < COUNT(duplicate); i++)
		(void)pthread_join(thread[i], NULL);
	for (size_t i = 0; i < COUNT(duplicate); i++) {
		if (duplicate[i].r < 0)
			fail_msg("%s", duplicate[i].err.msg);
		assert_mirrored(&st, &duplicate[i].run.manifest, 1);
	}
	assert_true(digest_same(&duplicate[0].run.manifest, &duplicate[1].run.manifest));
	assert_int_equal(faulty_stat(&server, "bytes"), LARGE_SIZE);
	store_done(&st);
}

static const struct CMUnitTest tests[] = {
	cmocka_unit_test(mirror_whole_repository),
	cmocka_unit_test(mirror_asks_the_object_store),
	cmocka_unit_test(mirror_stays_within_its_streams),
	cmocka_unit_test(mirror_gets_through),
	cmocka_unit_test(mirror_knows_what_it_has_fetched),
	cmocka_unit_test(mirror_failures),
	cmocka_unit_test(mirror_checks_space_first),
	cmocka_unit_test(mirror_can_be_canceled),
	cmocka_unit_test(mirror_resumes_after_kill),
	cmocka_unit_test(mirror_shares_a_fetch),
};

UNIT_MAIN_IN(tests, setup, teardown)
