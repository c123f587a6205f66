/* An interceptor that pauses a call before anything is sent; another thread lets the call go on. The callback itself
 * does not wait, so other calls go on during the pause.
 *
 *     defer [TARGET]
 */
#include <penstock/penstock.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

/* Runs on a thread of its own, so it may wait, read files or ask another server. */
static void *fetch_token(void *argument) {
  penstock_ticket ticket = *(penstock_ticket *)argument;
  free(argument);
  nanosleep(&(struct timespec){.tv_nsec = 100000000}, NULL);

  /* The ticket's event: here the start, with its metadata. It may be changed until the ticket is spent. */
  penstock_hop *bound;
  if (penstock_ticket_hop(ticket, &bound) != PENSTOCK_OK)
    return NULL; /* the call's deadline has passed, or it was cancelled */
  penstock_metadata_set(penstock_hop_metadata(bound), "authorization", "Bearer fetched");
  penstock_hop_release(bound);
  puts("a thread lets the call go on");
  penstock_ticket_resolve(ticket, PENSTOCK_NEXT); /* or penstock_ticket_end, which ends the call */
  return NULL;
}

static int32_t fetch_first(penstock_hop *hop, void *state) {
  pthread_t thread;
  (void)state;
  penstock_ticket *ticket = malloc(sizeof *ticket);
  if (ticket == NULL) return PENSTOCK_NEXT;
  *ticket = penstock_hop_ticket(hop);
  if (pthread_create(&thread, NULL, fetch_token, ticket) != 0) {
    free(ticket);
    penstock_hop_end(hop, PENSTOCK_STATUS_RESOURCE_EXHAUSTED, "no thread");
    return PENSTOCK_NEXT;
  }
  pthread_detach(thread);
  puts("the call is paused");
  return PENSTOCK_PAUSE;
}

int main(int argc, char **argv) {
  penstock_error *error = NULL;
  penstock_channel *channel;
  penstock_call_options *options;
  penstock_reply *reply;
  penstock_interceptor_id id;
  const void *seen = "";
  penstock_interceptor auth = PENSTOCK_INTERCEPTOR_INIT;
  auth.name = "auth";
  auth.on_start = fetch_first;

  /* The deadline counts from the call's creation, so it includes the pause. */
  if (penstock_channel_new(argc > 1 ? argv[1] : "localhost:50051", "{\"tls\": false}", &channel, &error) ||
      penstock_channel_add_interceptor(channel, &auth, 100, &id, &error) ||
      penstock_call_options_new("{\"deadline_ms\": 5000, \"metadata\": {\"x-echo-metadata\": \"1\"}}", &options,
                                &error) ||
      penstock_channel_unary(channel, "/penstock.Echo/Unary", "hi", 2, options, &reply, &error)) {
    fprintf(stderr, "%s\n", penstock_error_message(error));
    return 1;
  }
  penstock_metadata_get(penstock_reply_trailers(reply), "seen-authorization", 0, &seen, NULL);
  printf("%s; the server saw: authorization: %s\n", penstock_status_code_name(penstock_reply_code(reply)),
         (const char *)seen);
  int ok = strcmp(seen, "Bearer fetched") == 0;
  penstock_reply_release(reply);
  penstock_call_options_release(options);
  penstock_channel_release(channel);
  return ok ? 0 : 1;
}
