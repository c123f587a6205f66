/* The contents of messages: the caller's messages come back once and in order, with messages of hops between them. */
#include "laws.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

atomic_int echoes, words;

static bool skip(const char **at, const char *end, const char *word) {
  size_t length = strlen(word);
  if ((size_t)(end - *at) < length || memcmp(*at, word, length) != 0) return false;
  *at += length;
  return true;
}

static bool skip_word(const char **at, const char *end) {
  static const char *const known[] = {"injected", "taken", "answer", "changed"};
  for (size_t i = 0; i < sizeof(known) / sizeof(*known); i++) {
    if (!skip(at, end, known[i])) continue;
    atomic_fetch_add(&words, 1);
    return true;
  }
  return false;
}

void read_content(trial *trial, const char *where, int *next, const void *data, size_t length) {
  const char *at = data, *end = at + length;
  while (at < end) {
    if (skip_word(&at, end)) continue;
    int number = 0;
    if (skip(&at, end, "message ")) {
      while (at < end && *at >= '0' && *at <= '9') number = number * 10 + *at++ - '0';
    } else if (!skip(&at, end, trial->side ? "side" : "hello")) {
      broken(trial, "contents", "%s: \"%.*s\"", where, (int)length, (const char *)data);
      return;
    }
    if (number < *next)
      broken(trial, "law 1", "%s: message %d once more, or after message %d", where, number, *next - 1);
    *next = number + 1;
    atomic_fetch_add(&echoes, 1);
  }
}

void read_event(penstock_hop *hop, hop_record *self, int lane) {
  size_t length = 0;
  const void *data = penstock_message_bytes(penstock_hop_message(hop), &length);
  if (data) {
    read_content(self->trial, lane == outbound ? "on_send" : "on_receive", &self->next[lane], data, length);
  } else if (!runs_elsewhere(self)) {
    broken(self->trial, "contents", "no message in its callback");
  }
}
