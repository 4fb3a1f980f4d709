/* cpu.c - see cpu.h. */
#include "base/cpu.h"

#include "base/arena.h"
#include "base/fs.h"
#include "base/hash.h"

#define CPUINFO_MAX ((size_t)16 << 20)
#define FLAGS_MAX 1000

/* Extensions that compilers make use of; the rest changes with kernels and microcode. */
static bool is_for_compilers(struct str flag)
{
	static const char *const begins[] = {"avx",  "amx",  "sse",    "ssse", "fma",  "bmi",
	                                     "f16c", "sha_", "gfni",   "vaes", "vpcl", "pclmul",
	                                     "aes",  "adx",  "popcnt", "abm",  "movbe"};

	for (size_t i = 0; i < COUNT(begins); i++)
		if (str_starts(flag, begins[i]))
			return true;
	return false;
}

static int by_text(const void *a, const void *b)
{
	return strcmp(*(const char *const *)a, *(const char *const *)b);
}

/* The line "flags" of x86, "Features" of Arm; sorted, for kernels order them as they like. */
void cpu_flags(struct str cpuinfo, char out[CPU_FLAGS_CAP])
{
	AUTO_ARENA struct arena *a = arena_new();
	AUTO_BUF struct buf all = BUF_INIT(CPUINFO_MAX);
	const char **flag = ARENA_ARRAY(a, const char *, FLAGS_MAX);
	struct str line, key, one;
	char hex[HASH_HEX_CAP];
	struct digest d;
	size_t n = 0;

	while (n == 0 && str_cut(&cpuinfo, '\n', &line)) {
		bool x86 = str_starts(line, "flags"), arm = str_starts(line, "Features");

		if ((!x86 && !arm) || !str_cut(&line, ':', &key))
			continue;
		while (n < FLAGS_MAX && str_cut(&line, ' ', &one))
			if (one.n > 0 && (arm || is_for_compilers(one)))
				flag[n++] = arena_strz(a, one);
	}
	qsort(flag, n, sizeof(*flag), by_text);
	for (size_t i = 0; i < n; i++)
		buf_printf(&all, "%s\n", flag[i]);
	d = hash_sha256(all.p, all.n);
	digest_hex(&d, hex);
	fmt_fixed(out, CPU_FLAGS_CAP, "%.4s", hex);
}

/* Told by what each level has and the one below has not; not every compiler knows their names. */
static const char *cpu_level(void)
{
#if defined(__x86_64__)
	if (__builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
	    __builtin_cpu_supports("avx512cd") && __builtin_cpu_supports("avx512dq") &&
	    __builtin_cpu_supports("avx512vl"))
		return "x86-64-v4";
	if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("bmi") &&
	    __builtin_cpu_supports("bmi2") && __builtin_cpu_supports("fma"))
		return "x86-64-v3";
	return __builtin_cpu_supports("sse4.2") && __builtin_cpu_supports("popcnt") ? "x86-64-v2"
	                                                                            : "x86-64";
#elif defined(__aarch64__)
	return "aarch64";
#else
	return "cpu";
#endif
}

void cpu_kind(char out[CPU_KIND_CAP])
{
	AUTO_BUF struct buf text = BUF_INIT(CPUINFO_MAX);
	char flags[CPU_FLAGS_CAP] = "none";
	struct err ignored = {0};

	if (fs_read(AT_FDCWD, "/proc/cpuinfo", &text, &ignored) == 0)
		cpu_flags(buf_view(&text), flags);
	fmt_fixed(out, CPU_KIND_CAP, "%s-%s", cpu_level(), flags);
}
