/* The limit on a channel's connections to all its addresses together. */
#include "limits.h"

#include <pthread.h>

#define ONE "the channel has 1 connection already, as many as it may have (max_connections)"

static int connections(penstock_channel *channel) { return count_in_stats(channel, "\"peer\":"); }

/* A channel over cleartext whose options begin with `options`, and whose addresses are the `count` first ones, in this
 * order. */
static penstock_channel *open_over(const char *options, const char *policy, int count, const char *const *addresses) {
  char json[1000];
  snprintf(json, sizeof(json), "{\"tls\": false, %s}", options);
  penstock_channel *channel = open_at("pool.example:443", json);
  penstock_resolver *resolver = NULL;
  OK(penstock_channel_set_resolver(channel, NULL, &resolver, NULL));
  size_t length = (size_t)snprintf(json, sizeof(json), "{\"addresses\": [");
  for (int i = 0; i < count; i++) {
    length += (size_t)snprintf(json + length, sizeof(json) - length, "%s\"%s\"", i ? ", " : "", addresses[i]);
  }
  snprintf(json + length, sizeof(json) - length, "], \"service_config\": {\"loadBalancingConfig\": [{\"%s\": {}}]}}",
           policy);
  OK(penstock_resolver_push(resolver, json, NULL));
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

/* An address at which nobody listens. */
static void dead_address(char *name, size_t size) { close(silent_server(name, size)); }

TEST(connection_limit_of_a_pool) {
  enum { CALLS = 12 };
  char target[128];
  snprintf(target, sizeof(target), "http://%s", peer_address());
  penstock_channel *channel = open_at(target, "{\"protocol\": \"connect\", \"http\": \"1.1\", \"max_connections\": 2}");
  penstock_call *calls[CALLS];
  for (int i = 0; i < CALLS; i++) calls[i] = start_call(channel, CLIENT_STREAM, PENSTOCK_KIND_CLIENT_STREAM);
  for (int i = 0; i < CALLS; i++) OK(penstock_call_send(calls[i], "x", 1));
  EVENTUALLY(waiting_calls_are(channel, CALLS - 2));
  CHECK_INT(connections(channel), 2);
  FINISH(start_with(channel, CLIENT_STREAM, PENSTOCK_KIND_CLIENT_STREAM, "{\"deadline_ms\": 1}"),
         PENSTOCK_STATUS_DEADLINE_EXCEEDED, "one of the channel's 2 connections (max_connections)");
  for (int i = 0; i < CALLS; i++) {
    OK(penstock_call_half_close(calls[i]));
    FINISH(calls[i], PENSTOCK_STATUS_OK, NULL);
    CHECK(connections(channel) <= 2);
  }
  penstock_channel_release(channel);
}

/* Of two addresses that round_robin uses, one is beyond the limit. It says so, and gets no call. */
TEST(connection_limit_leaves_an_address_out) {
  start_other();
  const char *addresses[] = {peer_address(), other.address};
  penstock_channel *channel = open_over("\"max_connections\": 1, \"connect_timeout_ms\": 200, "
                                        "\"initial_backoff_ms\": 10, \"max_backoff_ms\": 20",
                                        "round_robin", 2, addresses);
  for (int i = 0; i < 20; i++) check_echo(channel);
  EVENTUALLY(count_in_stats(channel, ONE) == 1);
  EVENTUALLY(count_in_stats(channel, "\"failures\":1") == 1);
  for (int i = 0; i < 20; i++) check_echo(channel);
  CHECK_INT(connections(channel), 1);
  penstock_channel_release(channel);
  stop_other();
}

/* A connection of HTTP/1.1 that has no call is closed for the sake of another address. */
TEST(connection_limit_moves_between_addresses) {
  start_other();
  const char *addresses[] = {peer_address(), other.address};
  penstock_channel *channel =
      open_over("\"protocol\": \"connect\", \"http\": \"1.1\", \"max_connections\": 1", "round_robin", 2, addresses);
  check_echo(channel);
  for (int i = 0; i < 10; i++) {
    EVENTUALLY(count_in_stats(channel, "\"state\":\"READY\"") >= 2);
    check_echo(channel);
    CHECK(connections(channel) <= 1);
  }
  penstock_channel_release(channel);
  stop_other();
}

/* With pick_first the first address never answers. The second one needs no place of its own to be tried beside it. */
TEST(connection_limit_counts_a_race_as_one) {
  char silent[64];
  int listener = silent_server(silent, sizeof(silent));
  const char *addresses[] = {silent, peer_address()};
  penstock_channel *channel =
      open_over("\"max_connections\": 1, \"connect_timeout_ms\": 3600000", "pick_first", 2, addresses);
  check_echo(channel);
  CHECK_INT(connections(channel), 1);
  penstock_channel_release(channel);
  close(listener);
}

/* An attempt that fails gives its place back. */
TEST(connection_limit_forgets_failed_attempts) {
  char dead[64];
  dead_address(dead, sizeof(dead));
  const char *addresses[] = {dead, peer_address()};
  penstock_channel *channel =
      open_over("\"max_connections\": 1, \"initial_backoff_ms\": 1, \"max_backoff_ms\": 1", "round_robin", 2, addresses);
  for (int i = 0; i < 20; i++) check_echo(channel);
  penstock_channel_release(channel);
}

static void *echo_many(void *channel) {
  for (int i = 0; i < 50; i++) check_echo(channel);
  return NULL;
}

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

/* A connection that is replaced because of its age has its place until its last call has ended. */
TEST(connection_limit_counts_draining_connections) {
  penstock_channel *channel =
      open_at(peer_address(), "{\"tls\": false, \"max_connections\": 1, \"max_connection_age_ms\": 20}");
  penstock_call *old = start_call(channel, BIDI, PENSTOCK_KIND_BIDI);
  OK(penstock_call_send(old, "ping", 4));
  CHECK_MESSAGE(old, "ping");
  EVENTUALLY(count_in_stats(channel, "\"state\":\"DRAINING\"") == 1);
  FINISH(start_with(channel, UNARY, PENSTOCK_KIND_UNARY, "{\"deadline_ms\": 1}"), PENSTOCK_STATUS_DEADLINE_EXCEEDED, ONE);
  penstock_call *waits = start_numbered(channel, 1);
  OK(penstock_call_half_close(old));
  FINISH(old, PENSTOCK_STATUS_OK, NULL);
  FINISH(waits, PENSTOCK_STATUS_OK, NULL);
  penstock_channel_release(channel);
}
