/* Fork: how channels, with their interceptors, go on in a child of this process.
 *
 * Without these functions a child gets E_FORKED for the handles of its parent. If the handles are to work in the child
 * as well, the program makes this call once, before it makes threads:
 *
 *   pthread_atfork(penstock_fork_prepare, penstock_fork_parent, penstock_fork_child);
 *
 * The child then makes connections and threads of its own when it needs them. The calls that were under way end there
 * with CANCELLED. The parent's connections and calls go on untouched. docs/fork.md has the details.
 */
#ifndef PENSTOCK_FORK_H
#define PENSTOCK_FORK_H

#include "base.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Stops the library in a consistent state, just before a fork: waits up to one second for the threads that drive
 * runtimes, and for those that hold a lock. After that second, in a callback, or on a system without membarrier nothing
 * is stopped, and the child gets E_FORKED for its parent's handles. Until penstock_fork_parent, other threads that call
 * the library wait.
 * memory: none.
 * threads: the one that forks. */
PENSTOCK_API void penstock_fork_prepare(void);
/* Lets the threads of the parent go on after the fork, even if the fork failed.
 * memory: none.
 * threads: the one that has forked. */
PENSTOCK_API void penstock_fork_parent(void);
/* Takes over the parent's runtimes in the child. Call it after the fork, before the child uses any other function of
 * the library. No callback runs within it.
 * memory: none.
 * threads: the child's only thread. */
PENSTOCK_API void penstock_fork_child(void);

#ifdef __cplusplus
}
#endif
#endif
