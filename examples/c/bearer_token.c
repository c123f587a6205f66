/* A ready-made interceptor for a bearer token: it fetches a token when a call needs one, keeps it, and fetches a new
 * one when the server refuses it. The refused call is sent again with the new token; its caller does not see the
 * refusal.
 *
 *     bearer_token [TARGET]
 */
#include <penstock/penstock.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>

static int asked = 0;

/* Gets a token. Runs on a thread of its own, so it may wait, read files or ask another server. */
static void *fetch(void *argument) {
  char token[32];
  snprintf(token, sizeof token, "token-%d", ++asked);
  printf("fetched %s\n", token);
  penstock_token_complete((uintptr_t)argument, token, 3600000); /* or penstock_token_fail */
  return NULL;
}

/* The source of tokens. It runs as a callback and must not wait, so a thread answers later. */
static void ask(penstock_token_request request, const char *refused, void *user_data) {
  pthread_t thread;
  (void)user_data;
  if (refused != NULL) printf("the server has refused %s; ", refused);
  if (pthread_create(&thread, NULL, fetch, (void *)(uintptr_t)request) != 0)
    penstock_token_fail(request, PENSTOCK_STATUS_UNAVAILABLE, "no thread to fetch a token");
  else
    pthread_detach(thread);
}

/* The peer does not check tokens. So this interceptor, below the ready-made one, makes the peer (by the header
 * x-status) refuse calls that have no token or the first token. */
static int32_t distrust(penstock_hop *hop, void *state) {
  const void *token = NULL;
  (void)state;
  penstock_metadata *metadata = penstock_hop_metadata(hop);
  if (penstock_metadata_get(metadata, "authorization", 0, &token, NULL) != PENSTOCK_OK ||
      strcmp(token, "Bearer token-1") == 0)
    penstock_metadata_set(metadata, "x-status", "16"); /* UNAUTHENTICATED */
  return PENSTOCK_NEXT;
}

int main(int argc, char **argv) {
  penstock_error *error = NULL;
  penstock_channel *channel;
  penstock_call_options *options;
  penstock_interceptor_id id;
  penstock_interceptor bearer = PENSTOCK_INTERCEPTOR_INIT, server = PENSTOCK_INTERCEPTOR_INIT;
  const char *text = "{\"deadline_ms\": 5000, \"metadata\": {\"x-echo-metadata\": \"1\"}}";
  int ok = 1;
  server.name = "server";
  server.on_start = distrust;

  /* The channel has no TLS, so sending the token in cleartext has to be allowed. */
  if (penstock_channel_new(argc > 1 ? argv[1] : "localhost:50051", "{\"tls\": false}", &channel, &error) ||
      penstock_ready_bearer_token("{\"allow_cleartext\": true}", ask, NULL, NULL, &bearer, &error) ||
      penstock_channel_add_interceptor(channel, &bearer, 100, &id, &error) ||
      penstock_channel_add_interceptor(channel, &server, -100, &id, &error) ||
      penstock_call_options_new(text, &options, &error)) {
    fprintf(stderr, "%s\n", penstock_error_message(error));
    return 1;
  }
  for (int i = 0; i < 2; i++) {
    penstock_reply *reply;
    const void *seen = "";
    if (penstock_channel_unary(channel, "/penstock.Echo/Unary", "hi", 2, options, &reply, NULL) != PENSTOCK_OK)
      return 1;
    penstock_metadata_get(penstock_reply_trailers(reply), "seen-authorization", 0, &seen, NULL);
    printf("%s; the server saw: authorization: %s\n", penstock_status_code_name(penstock_reply_code(reply)),
           (const char *)seen);
    ok = ok && strcmp(seen, "Bearer token-2") == 0;
    penstock_reply_release(reply);
  }
  penstock_call_options_release(options);
  penstock_channel_release(channel);
  return ok && asked == 2 ? 0 : 1;
}
