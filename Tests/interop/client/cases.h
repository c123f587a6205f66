/* The cases that the command line can name. */
#ifndef INTEROP_CASES_H
#define INTEROP_CASES_H

#include "rpc.h"

typedef struct test_case {
  const char *name;
  void (*run)(client *client);
  /* The features that the server must have beyond TestService; NULL: none. "expect": it checks expect_compressed.
   * "hold": it keeps a FullDuplexCall with x-hold until an EmptyCall with x-release, and counts the messages that it
   * writes. "echo": it has the service penstock.Echo. */
  const char *needs;
} test_case;

/* The cases of gRPC's interop-test-descriptions, and more of the kind. Each list ends with a case that has no name. */
extern const test_case described_cases[];
extern const test_case more_cases[];

#endif
