/* Shared by the tests that pass NULL for every pointer. */
#ifndef PENSTOCK_NULL_H
#define PENSTOCK_NULL_H

#include "test.h"

#define REFUSED(call) CHECK_RESULT((call), PENSTOCK_E_INVALID_ARGUMENT)
#define REFUSED_WITH_ERROR(call)                                                                                       \
  do {                                                                                                                 \
    penstock_error *error = NULL;                                                                                      \
    REFUSED(call);                                                                                                     \
    CHECK_HAS(penstock_error_json(error), "PENSTOCK_E_INVALID_ARGUMENT");                                              \
    penstock_error_release(error);                                                                                     \
  } while (0)

#endif
