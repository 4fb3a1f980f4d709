/* test_conf.c - settings: who wins, what is refused and how it is said. */
#include "base/conf.h"
#include "base/fs.h"

#include "unit.h"

struct settings {
	const char *config, *data, *mode;
	bool verbose, colour;
	int64_t port;
	uint64_t budget, wait;
	struct conf_list nets, ends;
};

static const struct conf_row rows[] = {
	{"config", CONF_TEXT, offsetof(struct settings, config), NULL, "FILE", "General", "a file"},
	{"data", CONF_TEXT, offsetof(struct settings, data), "/var", "DIR", "General", "where"},
	{"run-mode", CONF_CHOICE, offsetof(struct settings, mode), "auto", "auto|bwrap", "General",
         "how to run, said in so many words that the line has to be broken somewhere before it "
         "ends"},
	{"verbose", CONF_BOOL, offsetof(struct settings, verbose), "false", NULL, "General",
         "talk"},
	{"colour", CONF_BOOL, offsetof(struct settings, colour), "true", NULL, "General", "paint"},
	{"port", CONF_INT, offsetof(struct settings, port), "8000", "N", "Net", "the port"},
	{"budget", CONF_BYTES, offsetof(struct settings, budget), "2Gi", "SIZE", "Net", "bytes"},
	{"wait-time", CONF_SECONDS, offsetof(struct settings, wait), "1m", "T", "Net", "time"},
	{"net", CONF_LIST, offsetof(struct settings, nets), NULL, "CIDR", "Net", "networks"},
	{"move", CONF_PAIR, offsetof(struct settings, ends), NULL, "FROM TO", "Net", "two of them"},
};

static int load(struct arena *a, struct settings *s, struct err *err, const char *const *argv)
{
	char *args[12];
	int n = 0;

	while (argv[n] != NULL) {
		args[n] = arena_cstr(a, argv[n]);
		n++;
	}
	memset(s, 0, sizeof(*s));
	return conf_load(a, rows, COUNT(rows), n, args, s, err);
}
#define ARGS(...) ((const char *const[]){__VA_ARGS__, NULL})

static void test_refuses(void **state)
{
	static const struct {
		const char *arg, *words;
	} cases[] = {
		{"stray", "unexpected argument \"stray\""},
		{"--", "unexpected argument"},
		{"--prot=1", "did you mean \"port\"?"},
		{"--wait_time=1", "did you mean \"wait-time\"?"},
		{"--qqqqqqqq=1", "no setting named \"qqqqqqqq\""},
		{"--port", "--port wants a value: N"},
		{"--move", "--move wants two values: FROM TO"},
		{"--move=a", "--move wants two values: FROM TO"},
		{"--port=x", "--port: \"x\" is not a whole number"},
		{"--budget=big", "--budget: \"big\" is not a size"},
		{"--run-mode=docker", "not one of auto|bwrap"},
		{"--verbose=maybe", "not true or false"},
		{"--no-port", "no setting"},
		{"--config=/none/at/all", "config file: reading /none/at/all"},
	};
	AUTO_ARENA struct arena *a = arena_new();
	struct settings s;
	struct err err = {0};

	(void)state;
	for (size_t i = 0; i < COUNT(cases); i++) {
		if (load(a, &s, &err, ARGS(cases[i].arg)) == 0 ||
		    strstr(err.msg, cases[i].words) == NULL)
			fail_msg("row \"%s\": %s", cases[i].arg, err.msg);
		err_clear(&err);
	}
}

static void test_order(void **state)
{
	AUTO_ARENA struct arena *a = arena_new();
	char dir[] = "/tmp/test-conf-XXXXXX", flag[64], path[64];
	struct settings s;
	struct err err = {0};

	(void)state;
	assert_non_null(mkdtemp(dir));
	FMT(path, "%s/c.yaml", dir);
	FMT(flag, "--config=%s", path);
	assert_ok(load(a, &s, &err, (const char *const[]){NULL}), &err);
	assert_int_equal(s.port, 8000);
	assert_true(s.budget == 2ULL << 30);
	assert_true(s.wait == 60 && s.colour && !s.verbose && s.nets.n == 0);
	assert_ok(fs_write_atomic(AT_FDCWD, path,
	                          STR_LIT("port: 1\ndata: 007\nwait_time: 1h\nverbose: true\n"
	                                  "net: [a, b]\nbudget:\n"),
	                          0600, &err),
	          &err);
	assert_ok(load(a, &s, &err, ARGS(flag)), &err);
	assert_int_equal(s.port, 1);
	assert_string_equal(s.data, "007");
	assert_true(s.wait == 3600 && s.verbose && s.nets.n == 2);
	assert_int_equal(setenv("STOKER_PORT", "2", 1), 0);
	assert_int_equal(setenv("STOKER_NET", "c, d,,e", 1), 0);
	assert_ok(load(a, &s, &err, ARGS(flag)), &err);
	assert_int_equal(s.port, 2);
	assert_int_equal(s.nets.n, 3);
	assert_string_equal(s.nets.item[1], "d");
	assert_ok(load(a, &s, &err,
	               ARGS("--port", "3", flag, "--net=x", "--move", "from", "to", "--no-verbose",
	                    "--net", "y")),
	          &err);
	assert_int_equal(s.port, 3);
	assert_int_equal(s.nets.n, 2);
	assert_string_equal(s.nets.item[1], "y");
	assert_int_equal(s.ends.n, 2);
	assert_string_equal(s.ends.item[1], "to");
	assert_false(s.verbose);
	assert_int_equal(unsetenv("STOKER_NET"), 0);
	assert_int_equal(setenv("STOKER_PORT", "many", 1), 0);
	assert_err(load(a, &s, &err, ARGS(flag)), &err, ERR_INVALID, "STOKER_PORT: \"many\"");
	assert_int_equal(unsetenv("STOKER_PORT"), 0);
	assert_ok(fs_write_atomic(AT_FDCWD, path, STR_LIT("port: 1\nwait-time: 3\n"), 0600, &err),
	          &err);
	assert_err(load(a, &s, &err, ARGS(flag)), &err, ERR_INVALID,
	           "c.yaml:2:1: no setting named \"wait-time\"; did you mean \"wait_time\"?");
	assert_ok(fs_write_atomic(AT_FDCWD, path, STR_LIT("port: [1]\n"), 0600, &err), &err);
	assert_err(load(a, &s, &err, ARGS(flag)), &err, ERR_INVALID, "a single value is expected");
	assert_ok(fs_write_atomic(AT_FDCWD, path, STR_LIT("just text\n"), 0600, &err), &err);
	assert_err(load(a, &s, &err, ARGS(flag)), &err, ERR_INVALID, "name: value");
	assert_ok(fs_remove_tree(AT_FDCWD, dir, &err), &err);
}

static void test_help(void **state)
{
	AUTO_BUF struct buf b = BUF_INIT(10000);
	struct str rest, line;

	(void)state;
	conf_help(rows, COUNT(rows), &b);
	assert_non_null(strstr(buf_cstr(&b), "--run-mode auto|bwrap"));
	rest = buf_view(&b);
	while (str_cut(&rest, '\n', &line))
		assert_true(line.n <= 110);
	buf_clear(&b);
	conf_reference(rows, COUNT(rows), &b);
	assert_non_null(strstr(buf_cstr(&b),
	                       "| `--run-mode auto\\|bwrap` | `STOKER_RUN_MODE` | `run_mode` |"));
}

static void test_nearest(void **state)
{
	static const char *const words[] = {"checkpoint", "cache", "cpu"};

	(void)state;
	assert_string_equal(conf_nearest(STR_LIT("chekcpoint"), words, 3), "checkpoint");
	assert_string_equal(conf_nearest(STR_LIT("cahce"), words, 3), "cache");
	assert_string_equal(conf_nearest(STR_LIT("cpus"), words, 3), "cpu");
	assert_null(conf_nearest(STR_LIT("memory"), words, 3));
	assert_null(conf_nearest(STR_LIT(""), words, 3));
	assert_null(conf_nearest(STR_LIT("x"), words, 0));
}

static const struct CMUnitTest tests[] = {
	cmocka_unit_test(test_refuses),
	cmocka_unit_test(test_order),
	cmocka_unit_test(test_help),
	cmocka_unit_test(test_nearest),
};

UNIT_MAIN(tests)
