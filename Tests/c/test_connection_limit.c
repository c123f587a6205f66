/* The limit on a channel's connections to all its addresses together. */
#include "limits.h"

#include <pthread.h>

#define NO_ROOM(most) "no room for one more connection of the channel, which may have " most " (max_connections)"

static int connections(penstock_channel *channel) { return count_in_stats(channel, "\"peer\":"); }

static int connections_to(penstock_channel *channel, const char *address) {
  char part[100];
  snprintf(part, sizeof(part), "\"peer\":\"%s\"", address);
  return count_in_stats(channel, part);
}

/* Gives the channel these addresses, in this order. */
static void push(penstock_resolver *resolver, const char *policy, int count, const char *const *addresses) {
  char json[1000];
  size_t length = (size_t)snprintf(json, sizeof(json), "{\"addresses\": [");
  for (int i = 0; i < count; i++) {
    length +=
        (size_t)snprintf(json + length, sizeof(json) - length, "%s{\"address\": \"%s\"}", i ? ", " : "", addresses[i]);
  }
  snprintf(json + length, sizeof(json) - length, "], \"service_config\": {\"loadBalancingConfig\": [{\"%s\": {}}]}}",
           policy);
  penstock_error *error = NULL;
  if (!OK(penstock_resolver_push(resolver, json, &error))) printf("  %s\n", penstock_error_json(error));
  penstock_error_release(error);
}

/* A channel over cleartext with these options and addresses. */
static penstock_channel *open_over(const char *options, const char *policy, int count, const char *const *addresses) {
  char json[1000];
  snprintf(json, sizeof(json), "{\"tls\": false, %s}", options);
  penstock_channel *channel = open_at("pool.example:443", json);
  penstock_resolver *resolver = NULL;
  OK(penstock_channel_set_resolver(channel, NULL, &resolver, NULL));
  push(resolver, policy, count, addresses);
  penstock_resolver_release(resolver);
  return channel;
}

/* Another peer, which ends when stop_other is called. */
static struct {
  char address[64];
  int input, output;
} other;

static void start_other(void) {
  char *none[] = {NULL};
  other.output = start_peer(other.address, sizeof(other.address), none, &other.input);
}

static void stop_other(void) {
  close(other.input);
  close(other.output);
}

TEST(connection_limit_of_a_pool) {
  enum { CALLS = 12 };
  char target[128];
  snprintf(target, sizeof(target), "http://%s", peer_address());
  penstock_channel *channel = open_at(target, "{\"protocol\": \"connect\", \"http\": \"1.1\", \"max_connections\": 2}");
  penstock_call *calls[CALLS];
  for (int i = 0; i < CALLS; i++) calls[i] = start_call(channel, CLIENT_STREAM, PENSTOCK_KIND_CLIENT_STREAM);
  for (int i = 0; i < CALLS; i++) OK(penstock_call_send(calls[i], "x", 1));
  EVENTUALLY(connections(channel) == 2);
  FINISH(start_with(channel, CLIENT_STREAM, PENSTOCK_KIND_CLIENT_STREAM, "{\"deadline_ms\": 300}"),
         PENSTOCK_STATUS_DEADLINE_EXCEEDED, NO_ROOM("2"));
  for (int i = 0; i < CALLS; i++) {
    OK(penstock_call_half_close(calls[i]));
    FINISH(calls[i], PENSTOCK_STATUS_OK, NULL);
    CHECK(connections(channel) <= 2);
  }
  penstock_channel_release(channel);
}

#define HOUR "3600000"
#define SLOW "\"initial_backoff_ms\": " HOUR ", \"max_backoff_ms\": " HOUR

/* Of two addresses that round_robin uses, one is beyond the limit. It says so, and gets no call, until the other one is
 * gone: then its back-off of an hour ends. */
TEST(connection_limit_leaves_an_address_out) {
  start_other();
  const char *addresses[] = {other.address, peer_address()};
  penstock_channel *channel =
      open_over("\"max_connections\": 1, \"connect_timeout_ms\": 5000, " SLOW, "round_robin", 2, addresses);
  for (int i = 0; i < 20; i++) check_echo(channel);
  EVENTUALLY(count_in_stats(channel, "\"last_error\":\"" NO_ROOM("1") "\",\"failures\":1,") == 1);
  for (int i = 0; i < 20; i++) check_echo(channel);
  CHECK_INT(connections(channel), 1);
  CHECK_INT(connections_to(channel, other.address), 1);
  stop_other();
  EVENTUALLY(unary_code(channel, "x") == PENSTOCK_STATUS_OK && connections_to(channel, peer_address()) == 1);
  penstock_channel_release(channel);
}

/* An address that the resolver gives no more makes room for the one that it gives now. */
TEST(connection_limit_follows_the_resolver) {
  start_other();
  penstock_channel *channel =
      open_at("pool.example:443", "{\"tls\": false, \"max_connections\": 1, \"connect_timeout_ms\": " HOUR "}");
  penstock_resolver *resolver = NULL;
  OK(penstock_channel_set_resolver(channel, NULL, &resolver, NULL));
  for (int i = 0; i < 10; i++) {
    const char *address = i % 2 ? peer_address() : other.address;
    push(resolver, "round_robin", 1, &address);
    check_echo(channel);
    CHECK_INT(connections_to(channel, address), 1);
  }
  penstock_resolver_release(resolver);
  penstock_channel_release(channel);
  stop_other();
}

TEST(connection_limit_lets_a_channel_end) {
  start_other();
  const char *addresses[] = {peer_address(), other.address};
  penstock_channel *channel = open_over("\"max_connections\": 1", "round_robin", 2, addresses);
  check_echo(channel);
  EVENTUALLY(count_in_stats(channel, NO_ROOM("1")) == 1);
  penstock_channel_release(channel);
  stop_other();
}

/* Makes a call, and tells whether there is a connection to the address then. */
static bool calls(penstock_channel *channel, const char *address) {
  check_echo(channel);
  CHECK(connections(channel) <= 1);
  return connections_to(channel, address) == 1;
}

/* A connection of HTTP/1.1 that has no call is closed for the sake of another address. */
TEST(connection_limit_moves_between_addresses) {
  start_other();
  const char *addresses[] = {peer_address(), other.address};
  penstock_channel *channel =
      open_over("\"protocol\": \"connect\", \"http\": \"1.1\", \"max_connections\": 1, \"connect_timeout_ms\": " HOUR,
                "round_robin", 2, addresses);
  for (int i = 0; i < 5; i++) {
    EVENTUALLY(calls(channel, peer_address()));
    EVENTUALLY(calls(channel, other.address));
  }
  penstock_channel_release(channel);
  stop_other();
}

/* Calls to one address leave a place for another one, which could not be connected to at first. */
TEST(connection_limit_leaves_each_address_a_place) {
  enum { CALLS = 4 };
  start_other();
  penstock_channel *channel = open_at(
      "pool.example:443", "{\"tls\": false, \"protocol\": \"connect\", \"http\": \"1.1\", \"max_connections\": 2, "
                          "\"connect_timeout_ms\": " HOUR ", " SLOW "}");
  penstock_resolver *resolver = NULL;
  OK(penstock_channel_set_resolver(channel, NULL, &resolver, NULL));
  const char *before[] = {peer_address(), dead_address()}, *after[] = {peer_address(), other.address};
  push(resolver, "round_robin", 2, before);
  check_echo(channel);
  EVENTUALLY(count_in_stats(channel, "\"failures\":1,") == 1);
  penstock_call *all[CALLS];
  for (int i = 0; i < CALLS; i++) {
    all[i] = start_call(channel, CLIENT_STREAM, PENSTOCK_KIND_CLIENT_STREAM);
    OK(penstock_call_send(all[i], "x", 1));
  }
  FINISH(start_with(channel, CLIENT_STREAM, PENSTOCK_KIND_CLIENT_STREAM, "{\"deadline_ms\": 300}"),
         PENSTOCK_STATUS_DEADLINE_EXCEEDED, NO_ROOM("2"));
  CHECK_INT(connections(channel), 1);
  push(resolver, "round_robin", 2, after);
  EVENTUALLY(connections_to(channel, other.address) == 1);
  CHECK_INT(connections_to(channel, peer_address()), 1);
  for (int i = 0; i < CALLS; i++) OK(penstock_call_half_close(all[i]));
  for (int i = 0; i < CALLS; i++) FINISH(all[i], PENSTOCK_STATUS_OK, NULL);
  penstock_resolver_release(resolver);
  penstock_channel_release(channel);
  stop_other();
}

/* A place that is kept for an address that is down is no free place: of the connections without a call that another address
 * has, one is closed for an address that waits. */
TEST(connection_limit_gives_idle_connections_on) {
  enum { CALLS = 4 };
  start_other();
  const char *addresses[] = {peer_address(), other.address, dead_address()};
  penstock_channel *channel = open_over(
      "\"protocol\": \"connect\", \"http\": \"1.1\", \"max_connections\": 4, \"connect_timeout_ms\": " HOUR ", " SLOW,
      "round_robin", 3, addresses);
  /* The channel, two addresses and two connections. */
  EVENTUALLY(count_in_stats(channel, "\"state\":\"ready\"") == 5 || (check_echo(channel), false));
  EVENTUALLY(count_in_stats(channel, "\"failures\":1,") == 1);
  penstock_call *all[CALLS];
  for (int i = 0; i < CALLS; i++) {
    all[i] = start_call(channel, CLIENT_STREAM, PENSTOCK_KIND_CLIENT_STREAM);
    OK(penstock_call_send(all[i], "x", 1));
  }
  /* The third call is on the same address as the first, and has a connection; the fourth waits for one. */
  EVENTUALLY(connections(channel) == 3);
  const char *waits = connections_to(channel, other.address) == 1 ? other.address : peer_address();
  for (int i = 0; i < CALLS; i += 2) OK(penstock_call_half_close(all[i]));
  for (int i = 0; i < CALLS; i += 2) FINISH(all[i], PENSTOCK_STATUS_OK, NULL);
  EVENTUALLY(connections_to(channel, waits) == 2);
  for (int i = 1; i < CALLS; i += 2) OK(penstock_call_half_close(all[i]));
  for (int i = 1; i < CALLS; i += 2) FINISH(all[i], PENSTOCK_STATUS_OK, NULL);
  penstock_channel_release(channel);
  stop_other();
}

/* With pick_first the first address never answers. The second one needs no place of its own to be tried beside it; and the
 * loser gives its part back. */
TEST(connection_limit_counts_a_race_as_one) {
  char silent[64];
  int listener = silent_server(silent, sizeof(silent));
  const char *addresses[] = {silent, peer_address()};
  penstock_channel *channel =
      open_over("\"max_connections\": 1, \"max_connection_age_ms\": 20, \"connect_timeout_ms\": " HOUR, "pick_first", 2,
                addresses);
  for (int i = 0; i < 2; i++) {
    check_echo(channel);
    EVENTUALLY(connections(channel) == 0);
  }
  penstock_channel_release(channel);
  close(listener);
}

/* An attempt that fails gives its place back. */
TEST(connection_limit_forgets_failed_attempts) {
  const char *addresses[] = {dead_address(), peer_address()};
  penstock_channel *channel = open_over("\"max_connections\": 1, \"initial_backoff_ms\": 1, \"max_backoff_ms\": 1",
                                        "round_robin", 2, addresses);
  for (int i = 0; i < 20; i++) check_echo(channel);
  penstock_channel_release(channel);
}

static void *echo_many(void *channel) {
  for (int i = 0; i < 50; i++) check_echo(channel);
  return NULL;
}

/* Threads that make calls over fewer connections than they could use. */
TEST(connection_limit_loses_no_call) {
  start_other();
  enum { THREADS = 8 };
  const char *addresses[] = {peer_address(), other.address};
  penstock_channel *channel =
      open_over("\"protocol\": \"connect\", \"http\": \"1.1\", \"max_connections\": 3", "round_robin", 2, addresses);
  pthread_t threads[THREADS];
  for (int i = 0; i < THREADS; i++) CHECK_INT(pthread_create(&threads[i], NULL, echo_many, channel), 0);
  for (int i = 0; i < 100; i++) CHECK(connections(channel) <= 3);
  for (int i = 0; i < THREADS; i++) pthread_join(threads[i], NULL);
  penstock_channel_release(channel);
  stop_other();
}

/* On a channel with one place whose connections soon get too old: a call waits until the draining one has closed. */
static void check_place_of_draining(penstock_channel *channel) {
  penstock_call *old = start_call(channel, BIDI, PENSTOCK_KIND_BIDI);
  OK(penstock_call_send(old, "ping", 4));
  CHECK_MESSAGE(old, "ping");
  EVENTUALLY(count_in_stats(channel, "\"state\":\"draining\"") == 1);
  FINISH(start_with(channel, BIDI, PENSTOCK_KIND_BIDI, "{\"deadline_ms\": 300}"), PENSTOCK_STATUS_DEADLINE_EXCEEDED,
         NO_ROOM("1"));
  penstock_call *waits = start_numbered(channel, 1);
  OK(penstock_call_half_close(old));
  FINISH(old, PENSTOCK_STATUS_OK, NULL);
  FINISH(waits, PENSTOCK_STATUS_OK, NULL);
}

/* A connection that is replaced because of its age has its place until its last call has ended. */
TEST(connection_limit_counts_draining_connections) {
  penstock_channel *channel =
      open_at(peer_address(), "{\"tls\": false, \"max_connections\": 1, \"max_connection_age_ms\": 20}");
  check_place_of_draining(channel);
  penstock_channel_release(channel);
}

/* The connection that has won a race is no part of the next one: as long as it drains it has its place. */
TEST(connection_limit_counts_the_winner_of_a_race) {
  char silent[64];
  int listener = silent_server(silent, sizeof(silent));
  const char *addresses[] = {silent, peer_address()};
  penstock_channel *channel =
      open_over("\"max_connections\": 1, \"max_connection_age_ms\": 20, \"connect_timeout_ms\": " HOUR, "pick_first", 2,
                addresses);
  check_place_of_draining(channel);
  penstock_channel_release(channel);
  close(listener);
}
