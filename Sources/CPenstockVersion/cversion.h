/* The library's version as a C string, from include/penstock/version.h. */
#ifndef PENSTOCK_CVERSION_H
#define PENSTOCK_CVERSION_H
#include "../../include/penstock/version.h"
static inline const char *penstock_version_text(void) { return PENSTOCK_VERSION; }
#endif
