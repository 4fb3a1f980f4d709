/* seccomp.c - the filter, written out for the kernel's classic BPF; see seccomp.h. */
#include "run/seccomp.h"

#include "base/fs.h"

#include <linux/audit.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <sched.h>
#include <stddef.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/syscall.h>

#if defined(__x86_64__)
#define ARCH AUDIT_ARCH_X86_64
#elif defined(__aarch64__)
#define ARCH AUDIT_ARCH_AARCH64
#else
#error "which AUDIT_ARCH is this machine?"
#endif

#define X32_BIT 0x40000000U /* the same calls by other numbers, which no row names */
#define NAMESPACES                                                                                 \
	(CLONE_NEWUSER | CLONE_NEWNS | CLONE_NEWPID | CLONE_NEWNET | CLONE_NEWIPC | CLONE_NEWUTS | \
	 CLONE_NEWCGROUP | 0x80 /* CLONE_NEWTIME */)

/* What makes a sandbox: nobody's who is in one. */
static const uint32_t making[] = {
	SYS_setns,       SYS_mount,         SYS_umount2, SYS_pivot_root, SYS_chroot,
	SYS_open_tree,   SYS_move_mount,    SYS_fsopen,  SYS_fsconfig,   SYS_fsmount,
	SYS_fspick,      SYS_mount_setattr, SYS_keyctl, /* a session keyring of its own */
	SYS_sethostname, SYS_setdomainname,             /* of a UTS namespace of its own */
};

static const uint32_t refused[] = {
	SYS_open_by_handle_at,
	SYS_swapon,
	SYS_swapoff,
	SYS_quotactl,
	SYS_quotactl_fd,
	/* the kernel itself */
	SYS_init_module,
	SYS_finit_module,
	SYS_delete_module,
	SYS_kexec_load,
	SYS_kexec_file_load,
	SYS_reboot,
	SYS_syslog,
	SYS_acct,
	SYS_settimeofday,
	SYS_clock_settime,
	SYS_vhangup,
	SYS_lookup_dcookie,
	SYS_nfsservctl,
#if defined(__x86_64__)
	SYS_iopl,
	SYS_ioperm,
	SYS_modify_ldt,
	SYS_uselib,
	SYS_ustat,
	SYS_sysfs,
	SYS__sysctl,
	SYS_create_module,
	SYS_get_kernel_syms,
	SYS_query_module,
#endif
	/* where its faults were */
	SYS_bpf,
	SYS_perf_event_open,
	SYS_userfaultfd,
	SYS_add_key,
	SYS_request_key,
	SYS_fanotify_init,
};

/* Programs ask for these and do without. */
static const uint32_t missing[] = {
	SYS_io_uring_setup,
	SYS_io_uring_enter,
	SYS_io_uring_register,
};

/* Its flags lie in memory, where no filter sees them: libc takes clone. */
static const uint32_t blind[] = {SYS_clone3};

/* Their first argument says what of. */
static const uint32_t by_flags[] = {SYS_clone, SYS_unshare};

#define FILTER_MAX                                                                                 \
	(3 * (COUNT(making) + COUNT(refused) + COUNT(missing) + COUNT(blind)) +                    \
	 8 * COUNT(by_flags) + 16)

struct filter {
	struct sock_filter op[FILTER_MAX];
	unsigned short n;
};

static void put(struct filter *f, uint16_t code, uint8_t yes, uint8_t no, uint32_t k)
{
	assert(f->n < FILTER_MAX);
	f->op[f->n++] = (struct sock_filter){code, yes, no, k};
}

static void load(struct filter *f, size_t offset)
{
	put(f, BPF_LD | BPF_W | BPF_ABS, 0, 0, (uint32_t)offset);
}

static void answer(struct filter *f, uint32_t errno_value)
{
	put(f, BPF_RET | BPF_K, 0, 0,
	    errno_value == 0 ? SECCOMP_RET_ALLOW : SECCOMP_RET_ERRNO | errno_value);
}

static void refuse(struct filter *f, const uint32_t *calls, size_t n, uint32_t errno_value)
{
	for (size_t i = 0; i < n; i++) {
		put(f, BPF_JMP | BPF_JEQ | BPF_K, 0, 1, calls[i]);
		answer(f, errno_value);
	}
}

static void refuse_making(struct filter *f)
{
	refuse(f, making, COUNT(making), EPERM);
	refuse(f, blind, COUNT(blind), ENOSYS);
	for (size_t i = 0; i < COUNT(by_flags); i++) {
		put(f, BPF_JMP | BPF_JEQ | BPF_K, 0, 4, by_flags[i]);
		load(f, offsetof(struct seccomp_data, args[0]));
		put(f, BPF_JMP | BPF_JSET | BPF_K, 0, 1, NAMESPACES);
		answer(f, EPERM);
		answer(f, 0);
	}
}

static void make(struct filter *f, enum seccomp_of of)
{
	f->n = 0;
	load(f, offsetof(struct seccomp_data, arch));
	put(f, BPF_JMP | BPF_JEQ | BPF_K, 1, 0, ARCH);
	answer(f, EPERM); /* programs of 32 bits have numbers of their own */
	load(f, offsetof(struct seccomp_data, nr));
#if defined(__x86_64__)
	put(f, BPF_JMP | BPF_JGE | BPF_K, 0, 1, X32_BIT);
	answer(f, ENOSYS);
#endif
	refuse(f, refused, COUNT(refused), EPERM);
	refuse(f, missing, COUNT(missing), ENOSYS);
	if (of == SECCOMP_JOB)
		refuse_making(f);
	answer(f, 0);
}

int seccomp_apply(enum seccomp_of of, struct err *err)
{
	struct filter f;
	struct sock_fprog prog = {.filter = f.op};

	make(&f, of);
	prog.len = f.n;
	if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) < 0 ||
	    prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &prog) < 0)
		return err_errno(err, errno, "filter of system calls");
	return 0;
}

int seccomp_file(struct err *err)
{
	AUTO_FD int fd = memfd_create("seccomp", MFD_CLOEXEC);
	struct filter f;

	make(&f, SECCOMP_JOB);
	if (fd < 0)
		return err_errno(err, errno, "out of memory for the system call filter");
	if (fs_write_all(fd, f.op, f.n * sizeof(f.op[0]), err) < 0)
		return -1;
	if (lseek(fd, 0, SEEK_SET) < 0)
		return err_errno(err, errno, "install the system call filter");
	return TAKE_FD(fd);
}
