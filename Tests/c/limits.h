/* Shared by the tests of a channel's limits. */
#ifndef PENSTOCK_LIMITS_H
#define PENSTOCK_LIMITS_H

#include "calls.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

static inline penstock_channel *open_at(const char *target, const char *options) {
  penstock_channel *channel = NULL;
  penstock_error *error = NULL;
  if (!OK(penstock_channel_new(target, options, &channel, &error))) printf("  %s\n", penstock_error_json(error));
  penstock_error_release(error);
  return channel;
}

/* A server that never says anything: the kernel connects, and no process accepts. */
static inline int silent_server(char *name, size_t size) {
  struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr = {htonl(INADDR_LOOPBACK)}};
  socklen_t length = sizeof(address);
  int listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  if (listener < 0 || bind(listener, (struct sockaddr *)&address, length) || listen(listener, 16) ||
      getsockname(listener, (struct sockaddr *)&address, &length)) {
    abort();
  }
  snprintf(name, size, "127.0.0.1:%d", ntohs(address.sin_port));
  return listener;
}

static inline int count_in_stats(penstock_channel *channel, const char *part) {
  char *json = NULL;
  OK(penstock_channel_stats_json(channel, 20000, &json));
  int count = 0;
  for (const char *at = json; at && (at = strstr(at, part)); at++) count++;
  penstock_free(json);
  return count;
}

static inline bool waiting_calls_are(penstock_channel *channel, int count) {
  char part[32];
  snprintf(part, sizeof(part), "\"waiting\":%d,", count);
  return count_in_stats(channel, part) == 1;
}

static inline void finish(int line, penstock_call *call, int32_t code, const char *words) {
  penstock_reply *reply = NULL;
  OK(penstock_call_wait(call, &reply));
  if (!check_int(__FILE__, line, "code", penstock_reply_code(reply), code)) {
    printf("  %s\n", penstock_reply_status_json(reply));
  }
  if (words) CHECK_HAS(penstock_reply_status_json(reply), words);
  penstock_reply_release(reply);
  penstock_call_release(call);
}
#define FINISH(call, code, words) finish(__LINE__, (call), (code), (words))

#endif
