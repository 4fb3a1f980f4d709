/* test_cpu.c - one word for machines that run the same code. */
#include "unit.h"

#include "base/cpu.h"

static void same_and_other_flags(void **state UNUSED)
{
	static const struct {
		const char *name, *a, *b;
		bool same;
	} cases[] = {
		{"another order", "flags\t\t: fpu avx2 sse4_2\n", "flags : sse4_2  avx2\n", true},
		{"what compilers do not use", "flags : avx2 md_clear\n", "flags : avx2 ibrs\n",
	         true},
		{"another model", "model name : A\nflags : avx2\n",
	         "model name : B\nflags : avx2\n", true},
		{"more cores", "flags : avx2\n\nflags : avx2\n", "flags : avx2\n", true},
		{"another extension", "flags : avx2\n", "flags : avx2 avx512f\n", false},
		{"Arm counts all", "Features : fp asimd\n", "Features : fp asimd sve\n", false},
		{"nothing is said", "", "flags : fpu\n", true},
		{"a file without a line end", "flags : avx2", "flags : avx2\n", true},
	};

	for (size_t i = 0; i < COUNT(cases); i++) {
		char a[CPU_FLAGS_CAP], b[CPU_FLAGS_CAP];

		cpu_flags(str_of(cases[i].a), a);
		cpu_flags(str_of(cases[i].b), b);
		assert_row((strcmp(a, b) == 0) == cases[i].same, cases[i].name);
		assert_row(strlen(a) == CPU_FLAGS_CAP - 1, cases[i].name);
	}
}

static void of_this_machine(void **state UNUSED)
{
	char one[CPU_KIND_CAP], other[CPU_KIND_CAP];

	cpu_kind(one);
	cpu_kind(other);
	assert_string_equal(one, other);
	assert_non_null(strrchr(one, '-'));
	assert_int_equal(strlen(strrchr(one, '-')), CPU_FLAGS_CAP);
}

static const struct CMUnitTest tests[] = {
	cmocka_unit_test(same_and_other_flags),
	cmocka_unit_test(of_this_machine),
};
UNIT_MAIN(tests)
