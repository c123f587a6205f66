/* The functions of the preloaded canary (canary.c) that a program can call. */
#ifndef PENSTOCK_REFUSAL_H
#define PENSTOCK_REFUSAL_H
#include <stddef.h>

/* From now on refuses the C side's `from`-th allocation and those after it, `count` in all. The count begins with 1. */
void canary_refuse(long from, long count);
/* Stops refusing; returns the number of requests since canary_refuse. */
long canary_asked(void);
/* Writes the stack of the first refused allocation. */
void canary_where(int descriptor);
/* The number of blocks that libpenstock and the libraries below it have allocated and not freed. */
long canary_blocks(void);
/* Writes to `descriptor` the functions that allocated the newest blocks that canary_blocks counts: `count` of them, at
 * most 32. */
void canary_younger(long count, int descriptor);

/* For the canary itself. `refuses`: whether this allocation fails. `is_library`: whether the caller is a function of
 * libpenstock or of a library below it. */
__attribute__((visibility("hidden"))) int refuses(void *caller, size_t size);
__attribute__((visibility("hidden"))) int is_library(void *caller);
#endif
