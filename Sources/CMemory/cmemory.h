/* Memory and nothing else of libc: what the sans-IO modules may use. */
#ifndef PENSTOCK_CMEMORY_H
#define PENSTOCK_CMEMORY_H
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#endif
