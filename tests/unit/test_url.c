/* test_url.c - URLs, escapes, queries, ranges and networks: tables, the refused first. */
#include "io/url.h"
#include "unit.h"

#include <arpa/inet.h>
#include <sys/socket.h>

static void url_refused(void **state UNUSED)
{
	static const struct {
		const char *text, *words;
	} cases[] = {
		{"", "http"},
		{"example.org/x", "http"},
		{"ftp://example.org/", "http"},
		{"file:///etc/passwd", "http"},
		{"http:/example.org/", "http"},
		{"httpsx://example.org/", "http"},
		{"http://", "host is missing"},
		{"http:///path", "host is missing"},
		{"http://:80/", "host is missing"},
		{"http://user@/", "host is missing"},
		{"http://host:0/", "port"},
		{"http://host:65536/", "port"},
		{"http://host:80x/", "port"},
		{"http://host:-1/", "port"},
		{"http://ho st/", "encoded"},
		{"http://host/a b", "encoded"},
		{"http://host/\x01", "encoded"},
		{"http://host/\xc3\xa4", "encoded"},
		{"http://host/\r\nX: y", "encoded"},
		{"http://ho%73t/", "invalid character"},
		{"http://ho\\st/", "invalid character"},
		{"http://[::1/", "]"},
		{"http://[::g]/", "IPv6"},
		{"http://[]/", "IPv6"},
		{"http://[::1]x/", "port"},
		{"http://us%er@host/", "user name"},
		{"http://user:p%@host/", "password"},
		{"http://user:%00@host/", "password"},
	};

	for (size_t i = 0; i < COUNT(cases); i++) {
		AUTO_ARENA struct arena *a = arena_new();
		struct url u = {.port = 7};
		struct err err = {0};

		if (url_parse(a, str_of(cases[i].text), &u, &err) == 0)
			fail_msg("taken: %s", cases[i].text);
		assert_row(strstr(err.msg, cases[i].words) != NULL, cases[i].text);
		assert_row(strstr(err.msg, "user:") == NULL, cases[i].text);
		assert_int_equal(err.code, ERR_INVALID);
		assert_int_equal(u.port, 7);
	}
}

static void url_too_long(void **state UNUSED)
{
	AUTO_BUF struct buf b = BUF_INIT(10000);
	AUTO_ARENA struct arena *a = arena_new();
	struct err err = {0};
	struct url u;

	buf_puts(&b, "http://host/");
	while (b.n < URL_MAX)
		buf_putc(&b, 'x');
	assert_ok(url_parse(a, buf_view(&b), &u, &err), &err);
	buf_putc(&b, 'x');
	assert_err(url_parse(a, buf_view(&b), &u, &err), &err, ERR_INVALID, "at most");
}

static bool same(const char *a, const char *b)
{
	return a == NULL || b == NULL ? a == b : strcmp(a, b) == 0;
}

static void url_taken(void **state UNUSED)
{
	static const struct {
		const char *text, *scheme, *host, *path, *query, *user, *password;
		unsigned port;
	} cases[] = {
		{"http://host", "http", "host", "/", NULL, NULL, NULL, 80},
		{"HTTPS://Host.Example/", "https", "host.example", "/", NULL, NULL, NULL, 443},
		{"http://host:8000/a/b", "http", "host", "/a/b", NULL, NULL, NULL, 8000},
		{"http://host:/a", "http", "host", "/a", NULL, NULL, NULL, 80},
		{"http://host?q=1", "http", "host", "/", "q=1", NULL, NULL, 80},
		{"http://host/?", "http", "host", "/", "", NULL, NULL, 80},
		{"http://host/a?b=c?d/e", "http", "host", "/a", "b=c?d/e", NULL, NULL, 80},
		{"http://host/a#b?c", "http", "host", "/a", NULL, NULL, NULL, 80},
		{"http://host/%2F..%2f//x/.", "http", "host", "/%2F..%2f//x/.", NULL, NULL, NULL,
	         80},
		{"http://u%40:p%3A@host/", "http", "host", "/", NULL, "u@", "p:", 80},
		{"http://u@v@host/", "http", "host", "/", NULL, "u@v", NULL, 80},
		{"http://u:@host/", "http", "host", "/", NULL, "u", "", 80},
		{"http://[2001:DB8::1]:81/x", "http", "[2001:db8::1]", "/x", NULL, NULL, NULL, 81},
		{"http://127.0.0.1:9/", "http", "127.0.0.1", "/", NULL, NULL, NULL, 9},
	};

	for (size_t i = 0; i < COUNT(cases); i++) {
		AUTO_ARENA struct arena *a = arena_new();
		struct err err = {0};
		struct url u;

		assert_ok(url_parse(a, str_of(cases[i].text), &u, &err), &err);
		assert_row(same(u.scheme, cases[i].scheme), cases[i].text);
		assert_row(same(u.host, cases[i].host), cases[i].text);
		assert_row(same(u.path, cases[i].path), cases[i].text);
		assert_row(same(u.query, cases[i].query), cases[i].text);
		assert_row(same(u.user, cases[i].user), cases[i].text);
		assert_row(same(u.password, cases[i].password), cases[i].text);
		assert_row(u.port == cases[i].port, cases[i].text);
	}
}

static void url_origins(void **state UNUSED)
{
	static const struct {
		const char *a, *b;
		bool same;
	} cases[] = {
		{"http://h/", "https://h/", false},    {"http://h/", "http://h:81/", false},
		{"http://h/", "http://g/", false},     {"https://h/", "https://h.evil/", false},
		{"http://h/a", "HTTP://H:80/b", true}, {"https://h:443/", "https://h/", true},
	};

	for (size_t i = 0; i < COUNT(cases); i++) {
		AUTO_ARENA struct arena *a = arena_new();
		struct err err = {0};
		struct url u, v;

		assert_ok(url_parse(a, str_of(cases[i].a), &u, &err), &err);
		assert_ok(url_parse(a, str_of(cases[i].b), &v, &err), &err);
		assert_row(url_same_origin(&u, &v) == cases[i].same, cases[i].b);
	}
}

static void url_escapes(void **state UNUSED)
{
	static const char *const bad[] = {"%", "a%", "%4", "%zz", "%4g", "%00", "a%00b", "%%41"};
	static const struct {
		const char *plain, *coded, *with_slash;
	} cases[] = {
		{"", "", ""},
		{"aZ09-._~", "aZ09-._~", "aZ09-._~"},
		{"a b+c/d", "a%20b%2Bc%2Fd", "a%20b%2Bc/d"},
		{"\xc3\xa4\x7f\x01", "%C3%A4%7F%01", "%C3%A4%7F%01"},
		{"100%", "100%25", "100%25"},
	};
	AUTO_ARENA struct arena *a = arena_new();
	struct err err = {0};
	struct str out;

	for (size_t i = 0; i < COUNT(bad); i++)
		assert_err(url_decode(a, str_of(bad[i]), &out, &err), &err, ERR_INVALID, "%");
	for (size_t i = 0; i < COUNT(cases); i++) {
		AUTO_BUF struct buf b = BUF_INIT(100), c = BUF_INIT(100);

		url_encode(str_of(cases[i].plain), false, &b);
		assert_string_equal(buf_cstr(&b), cases[i].coded);
		url_encode(str_of(cases[i].plain), true, &c);
		assert_string_equal(buf_cstr(&c), cases[i].with_slash);
		assert_ok(url_decode(a, buf_view(&b), &out, &err), &err);
		assert_true(str_eq(out, cases[i].plain));
	}
	assert_ok(url_decode(a, str_of("a+b%2b%2F"), &out, &err), &err);
	assert_true(str_eq(out, "a+b+/"));
	{
		AUTO_BUF struct buf b = BUF_INIT(100);

		url_encode(str_n("a\0b", 3), true, &b);
		assert_string_equal(buf_cstr(&b), "a%00b");
	}
}

static void url_queries(void **state UNUSED)
{
	static const struct {
		const char *query, *name, *want; /* NULL: absent */
	} cases[] = {
		{"", "a", NULL},
		{"a=1", "b", NULL},
		{"ab=1", "a", NULL},
		{"a=%zz", "a", NULL},
		{"a=%00", "a", NULL},
		{"%zz=1&a=2", "a", "2"},
		{"a=1", "a", "1"},
		{"b=2&a=1&a=3", "a", "1"},
		{"&&a=1&", "a", "1"},
		{"a", "a", ""},
		{"a=", "a", ""},
		{"a=b=c", "a", "b=c"},
		{"a=x+y%2Bz", "a", "x y+z"},
		{"%61=1", "a", "1"},
		{"a%3D=1", "a=", "1"},
		{"list-type=2&prefix=p%2F", "prefix", "p/"},
	};

	for (size_t i = 0; i < COUNT(cases); i++) {
		AUTO_ARENA struct arena *a = arena_new();
		struct str out = {0};
		bool found = url_query(a, str_of(cases[i].query), cases[i].name, &out);

		assert_row(found == (cases[i].want != NULL), cases[i].query);
		assert_row(!found || str_eq(out, cases[i].want), cases[i].query);
	}
}

static void url_query_pairs(void **state UNUSED)
{
	static const char *const want[][2] = {{"a", "%41"}, {"uploads", ""}, {"b", "=c"}};
	struct str query = str_of("a=%41&uploads&&b==c"), name, value;
	size_t n = 0;

	while (url_query_next(&query, &name, &value)) {
		assert_true(n < COUNT(want));
		assert_true(str_eq(name, want[n][0]) && str_eq(value, want[n][1]));
		n++;
	}
	assert_int_equal(n, COUNT(want));
}

static void url_ranges(void **state UNUSED)
{
	static const struct {
		const char *header;
		uint64_t size;
		enum { WHOLE, PART, NONE } want;
		uint64_t first, count;
	} cases[] = {
		{"bytes=10-", 10, NONE, 0, 0},
		{"bytes=0-", 0, NONE, 0, 0},
		{"bytes=0-0", 0, NONE, 0, 0},
		{"bytes=-0", 10, NONE, 0, 0},
		{"bytes=-5", 0, NONE, 0, 0},
		{"bytes=99999999999999999999999-", 10, NONE, 0, 0},
		{"", 10, WHOLE, 0, 0},
		{"bytes", 10, WHOLE, 0, 0},
		{"bytes=", 10, WHOLE, 0, 0},
		{"bytes=-", 10, WHOLE, 0, 0},
		{"bytes=5-4", 10, WHOLE, 0, 0},
		{"bytes=a-b", 10, WHOLE, 0, 0},
		{"bytes=1-2,4-5", 10, WHOLE, 0, 0},
		{"bytes=1-2x", 10, WHOLE, 0, 0},
		{"bytes=+1-2", 10, WHOLE, 0, 0},
		{"bytes=1", 10, WHOLE, 0, 0},
		{"items=1-2", 10, WHOLE, 0, 0},
		{"bytes=0-0", 10, PART, 0, 1},
		{"bytes=0-9", 10, PART, 0, 10},
		{"bytes=0-10", 10, PART, 0, 10},
		{"bytes=9-", 10, PART, 9, 1},
		{"bytes=-3", 10, PART, 7, 3},
		{"bytes=-30", 10, PART, 0, 10},
		{"BYTES=2-3", 10, PART, 2, 2},
		{" bytes= 2-3 ", 10, PART, 2, 2},
		{"bytes=2-99999999999999999999999", 10, PART, 2, 8},
		{"bytes=-99999999999999999999999", 10, PART, 0, 10},
		{"bytes=18446744073709551613-", UINT64_MAX, PART, UINT64_MAX - 2, 2},
	};

	for (size_t i = 0; i < COUNT(cases); i++) {
		uint64_t first = 99, n = 99;
		struct err err = {0};
		bool whole = false;
		int r = url_range(str_of(cases[i].header), cases[i].size, &first, &n, &whole, &err);

		if (cases[i].want == NONE) {
			assert_row(r < 0 && err.code == ERR_RANGE, cases[i].header);
			assert_row(first == 99 && n == 99, cases[i].header);
			continue;
		}
		assert_row(r == 0, cases[i].header);
		assert_row(whole == (cases[i].want == WHOLE), cases[i].header);
		if (whole)
			assert_row(first == 0 && n == cases[i].size, cases[i].header);
		else
			assert_row(first == cases[i].first && n == cases[i].count, cases[i].header);
	}
}

static struct sockaddr_storage address(const char *text)
{
	struct sockaddr_storage ss = {0};
	struct sockaddr_in in = {.sin_family = AF_INET};
	struct sockaddr_in6 in6 = {.sin6_family = AF_INET6};

	if (inet_pton(AF_INET, text, &in.sin_addr) == 1)
		memcpy(&ss, &in, sizeof(in));
	else if (inet_pton(AF_INET6, text, &in6.sin6_addr) == 1)
		memcpy(&ss, &in6, sizeof(in6));
	else
		fail_msg("not an address: %s", text);
	return ss;
}

static void url_internal_addresses(void **state UNUSED)
{
	static const char *const internal[] = {
		"0.0.0.0",
		"10.1.2.3",
		"100.64.0.1",
		"100.100.100.200",
		"127.0.0.1",
		"127.255.255.254",
		"169.254.169.254",
		"172.16.0.1",
		"172.31.255.255",
		"192.0.0.192",
		"192.0.2.1",
		"192.168.1.1",
		"198.18.0.1",
		"198.19.255.255",
		"198.51.100.7",
		"203.0.113.9",
		"224.0.0.1",
		"239.1.1.1",
		"240.0.0.1",
		"255.255.255.255",
		"168.63.129.16",
		"::",
		"::1",
		"::ffff:127.0.0.1",
		"::ffff:10.0.0.1",
		"::127.0.0.1",
		"64:ff9b::7f00:1",
		"64:ff9b:1::1",
		"2002:7f00:1::",
		"2002:c0a8:101::1",
		"2001::1",
		"2001:db8::1",
		"fc00::1",
		"fd00:ec2::254",
		"fe80::1",
		"fec0::1",
		"ff02::1",
		"100::1",
		"3fff::1",
	};
	static const char *const public[] = {
		"1.1.1.1",        "9.255.255.255",    "11.0.0.0",        "100.63.255.255",
		"100.128.0.0",    "126.1.1.1",        "128.0.0.1",       "172.15.0.1",
		"172.32.0.1",     "192.0.1.1",        "192.169.0.1",     "198.17.0.1",
		"198.20.0.1",     "223.255.255.1",    "2606:4700::1",    "2a00:1450::1",
		"::ffff:8.8.8.8", "64:ff9b::808:808", "2002:808:808::1", "2001:4860::1",
	};
	struct sockaddr un = {.sa_family = AF_UNIX};

	for (size_t i = 0; i < COUNT(internal); i++) {
		struct sockaddr_storage ss = address(internal[i]);

		assert_row(url_addr_is_internal((struct sockaddr *)&ss), internal[i]);
	}
	for (size_t i = 0; i < COUNT(public); i++) {
		struct sockaddr_storage ss = address(public[i]);

		assert_row(!url_addr_is_internal((struct sockaddr *)&ss), public[i]);
	}
	assert_true(url_addr_is_internal(&un));
}

static void url_networks(void **state UNUSED)
{
	static const char *const bad[] = {"",       "10.0.0.0/33", "10.0.0.0/-1",
	                                  "10.0.0", "10.0.0.0/x",  "::1/129",
	                                  "host/8", "10.0.0.0/",   "fd00::/8/8"};
	static const struct {
		const char *net, *addr;
		bool has;
	} cases[] = {
		{"10.0.0.0/8", "11.0.0.1", false},
		{"192.168.1.7", "192.168.1.8", false},
		{"fd00::/8", "fe00::1", false},
		{"fd00::/8", "10.0.0.1", false},
		{"10.0.0.0/8", "::a00:1", false},
		{"10.0.0.0/8", "10.255.0.1", true},
		{"10.9.9.9/8", "10.255.0.1", true},
		{"192.168.1.7", "192.168.1.7", true},
		{"0.0.0.0/0", "8.8.8.8", true},
		{"172.16.0.0/12", "172.31.0.1", true},
		{"172.16.0.0/12", "172.32.0.1", false},
		{"::1/128", "::1", true},
		{"::1", "::1", true},
		{"fd00::/8", "fdab::1", true},
		{"::/0", "2001::1", true},
		{"127.0.0.0/8", "::ffff:127.0.0.1", true},
	};
	struct err err = {0};

	for (size_t i = 0; i < COUNT(bad); i++) {
		struct url_net net;

		if (url_net_parse(str_of(bad[i]), &net, &err) == 0)
			fail_msg("taken: \"%s\"", bad[i]);
		err_clear(&err);
	}
	for (size_t i = 0; i < COUNT(cases); i++) {
		struct sockaddr_storage ss = address(cases[i].addr);
		struct url_net net;

		assert_ok(url_net_parse(str_of(cases[i].net), &net, &err), &err);
		assert_row(url_net_has(&net, (struct sockaddr *)&ss) == cases[i].has, cases[i].net);
	}
}

static const struct CMUnitTest tests[] = {
	cmocka_unit_test(url_refused),
	cmocka_unit_test(url_too_long),
	cmocka_unit_test(url_taken),
	cmocka_unit_test(url_origins),
	cmocka_unit_test(url_escapes),
	cmocka_unit_test(url_queries),
	cmocka_unit_test(url_query_pairs),
	cmocka_unit_test(url_ranges),
	cmocka_unit_test(url_internal_addresses),
	cmocka_unit_test(url_networks),
};
UNIT_MAIN(tests)
