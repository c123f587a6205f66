/* What a program asks of the canary that is preloaded. */
#ifndef PENSTOCK_REFUSAL_H
#define PENSTOCK_REFUSAL_H
#include <stddef.h>

/* From now on the C side's `from`-th allocation is refused, and those behind it, `count` in all. Then counts from 1. */
void canary_refuse(long from, long count);
/* No more: how many were asked for since. */
long canary_asked(void);
/* The frames of the first that was refused. */
void canary_where(int descriptor);
/* How many blocks there are of the library's and of those below it. */
long canary_blocks(void);
/* Who has asked for the `count` youngest of them. */
void canary_younger(long count, int descriptor);

/* For the canary itself: whether this allocation fails, and whether the library or one below it has asked. */
__attribute__((visibility("hidden"))) int refuses(void *caller, size_t size);
__attribute__((visibility("hidden"))) int is_library(void *caller);
#endif
