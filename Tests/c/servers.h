/* Shared by the tests of pickers and of on_pick: a channel with several servers, each with a zone. */
#ifndef PENSTOCK_SERVERS_H
#define PENSTOCK_SERVERS_H

#include "calls.h"

#include <unistd.h>

enum { SERVERS = 3 };

typedef struct servers {
  char address[SERVERS][64];
  int input[SERVERS], output[SERVERS];
  penstock_channel *channel;
  penstock_resolver *resolver;
} servers;

/* Pushes a snapshot of all addresses: server i has the weight i + 1 and a zone, "a" for the first and "b" for the
 * others. */
static inline void push_servers(servers *all, const char *policy) {
  char text[1024], *end = text;
  end += sprintf(end, "{\"addresses\": [");
  for (int i = 0; i < SERVERS; i++)
    end += sprintf(end, "%s{\"address\": \"%s\", \"weight\": %d, \"attributes\": {\"zone\": \"%s\"}}", i ? ", " : "",
                   all->address[i], i + 1, i ? "b" : "a");
  sprintf(end, "], \"service_config\": {\"loadBalancingConfig\": [%s]}}", policy);
  OK(penstock_resolver_push(all->resolver, text, NULL));
}

static inline void start_servers(servers *all, char *const *arguments) {
  char *const none[] = {NULL};
  for (int i = 0; i < SERVERS; i++)
    all->output[i] = start_peer(all->address[i], sizeof(all->address[i]), arguments ? arguments : none, &all->input[i]);
  all->channel = NULL;
  all->resolver = NULL;
}

/* Opens a channel to the servers, with this policy of a service config. */
static inline void open_servers(servers *all, const char *policy, const char *options) {
  OK(penstock_channel_new("pool.example:443", options ? options : "{\"tls\": false}", &all->channel, NULL));
  OK(penstock_channel_set_resolver(all->channel, NULL, &all->resolver, NULL));
  push_servers(all, policy);
}

#define PICK_FIRST  "{\"pick_first\": {}}"
#define ROUND_ROBIN "{\"round_robin\": {}}"
#define WEIGHTED    "{\"static_weighted_round_robin\": {}}"

/* Ends a server, and waits until it has ended. */
static inline void stop_server(servers *all, int i) {
  char rest[256];
  if (all->input[i] < 0) return;
  close(all->input[i]);
  while (read(all->output[i], rest, sizeof(rest)) > 0) continue;
  close(all->output[i]);
  all->input[i] = -1;
}

static inline void end_servers(servers *all) {
  penstock_channel_release(all->channel);
  penstock_resolver_release(all->resolver);
  for (int i = 0; i < SERVERS; i++) stop_server(all, i);
}

/* The end of a call: its code, the index of its server (-1: none), and its status as JSON. */
typedef struct outcome {
  int32_t code;
  int server;
  char words[512];
} outcome;

static inline outcome outcome_of(servers *all, penstock_reply *reply) {
  outcome found = {-1, -1, ""};
  if (!reply) return found;
  const char *stats = penstock_reply_stats_json(reply);
  found.code = penstock_reply_code(reply);
  snprintf(found.words, sizeof(found.words), "%s", penstock_reply_status_json(reply));
  for (int i = 0; i < SERVERS; i++) {
    char quoted[80];
    snprintf(quoted, sizeof(quoted), "\"peer\":\"%s\"", all->address[i]);
    if (strstr(stats, quoted)) found.server = i;
  }
  penstock_reply_release(reply);
  return found;
}

/* Makes a unary call. `user` is the metadata "x-user", and `json` the call options; NULL: none. */
static inline outcome ask(servers *all, const char *user, const char *json) {
  penstock_call_options *options = NULL;
  penstock_reply *reply = NULL;
  OK(penstock_call_options_new(json ? json : "{}", &options, NULL));
  if (user)
    OK(penstock_metadata_set(penstock_request_metadata(penstock_call_options_request(options)), "x-user", user));
  OK(penstock_channel_unary(all->channel, UNARY, "x", 1, options, &reply, NULL));
  penstock_call_options_release(options);
  return outcome_of(all, reply);
}

/* Makes calls until each server has answered one. Then the channel is connected to all servers. */
static inline void connect_all(servers *all) {
  bool seen[SERVERS] = {false};
  int missing = SERVERS;
  int64_t until = test_now_ms() + test_patience_ms();
  while (missing > 0 && test_now_ms() < until) {
    outcome found = ask(all, NULL, "{\"wait_for_ready\": true}");
    if (found.server >= 0 && !seen[found.server]) {
      seen[found.server] = true;
      missing--;
    }
  }
  CHECK_INT(missing, 0);
}

#endif
