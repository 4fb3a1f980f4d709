/* cppcheck.h - what cppcheck has to know of <sys/queue.h>, which it does not read; see `make lint`. */
#define LIST_HEAD(name, type) struct name { struct type *lh_first; }
#define LIST_ENTRY(type) struct { struct type *le_next, **le_prev; }
#define LIST_INIT(head) ((head)->lh_first = NULL)
#define LIST_EMPTY(head) ((head)->lh_first == NULL)
#define LIST_FIRST(head) ((head)->lh_first)
#define LIST_FOREACH(v, head, f) for ((v) = (head)->lh_first; (v) != NULL; (v) = (v)->f.le_next)
#define TAILQ_HEAD(name, type) struct name { struct type *tqh_first, **tqh_last; }
#define TAILQ_ENTRY(type) struct { struct type *tqe_next, **tqe_prev; }
#define TAILQ_FOREACH(v, head, f) for ((v) = (head)->tqh_first; (v) != NULL; (v) = (v)->f.tqe_next)
/* ... and of <uthash.h> */
#define HASH_ITER(hh, head, e, next) for ((e) = (head), (next) = NULL; (e) != NULL; (e) = (next))
