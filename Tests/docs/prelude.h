/* Precedes each C fragment of a document: defines the names that the fragments use. */
#ifndef PRELUDE_H
#define PRELUDE_H
#include <penstock/penstock.h>

#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* A fragment shows only the important parts, so some parameters of its callbacks are unused. */
#pragma GCC diagnostic ignored "-Wunused-parameter"

typedef struct number_of_messages {
  int seen;
} number_of_messages;

/* Objects that `state` may point to. The marker of a fragment names the one that the fragment uses. */
static number_of_messages counter;
static void *nothing;

static bool is_enough(penstock_hop *hop, void *state) { return false; }
static void forget(penstock_ticket ticket) {}

#endif
