/* ready.h: the token that stands in a file. */
#include "bearer.h"

#include <sys/stat.h>
#include <unistd.h>

static char folder[] = "/tmp/penstock-token-XXXXXX";

/* Puts `text` in the place of the file in one step, as Kubernetes does. */
static void put(const char *path, const char *text, size_t length) {
  char fresh[64];
  snprintf(fresh, sizeof(fresh), "%s.new", path);
  FILE *file = fopen(fresh, "we");
  REQUIRE(file);
  CHECK_INT(fwrite(text, 1, length, file), length);
  CHECK_INT(fclose(file), 0);
  CHECK_INT(rename(fresh, path), 0);
}

static void put_text(const char *path, const char *text) { put(path, text, strlen(text)); }

static void open_folder(char path[64]) {
  strcpy(folder + sizeof(folder) - 7, "XXXXXX");
  REQUIRE(mkdtemp(folder));
  snprintf(path, 64, "%s/token", folder);
}

static void remove_folder(const char *path) {
  unlink(path);
  CHECK_INT(rmdir(folder), 0);
}

/* A channel whose calls have the token of the file. `more` is a further option, with a comma before it. */
static penstock_channel *channel_with(const char *path, const char *more) {
  penstock_channel *channel = open_channel();
  penstock_interceptor table = PENSTOCK_INTERCEPTOR_INIT;
  char json[256];
  snprintf(json, sizeof(json), "{\"file\": \"%s\", \"allow_cleartext\": true%s}", path, more);
  OK(penstock_ready_token_file(json, &table, NULL));
  ready_add(channel, &table, 10);
  return channel;
}

static void check_sent(penstock_channel *channel, const char *expected) {
  penstock_reply *reply = ready_unary(channel, "x", "\"x-echo-metadata\": \"1\"");
  CHECK_STR(ready_value(penstock_reply_trailers(reply), "seen-authorization"), expected);
  CHECK_INT(ready_code(reply), 0);
}

static void check_fails(penstock_channel *channel, const char *path, const char *reason) {
  char words[256];
  snprintf(words, sizeof(words), "the token file %s %s", path, reason);
  penstock_reply *reply = ready_unary(channel, "x", NULL);
  CHECK_STR(ready_message(reply), words);
  CHECK_INT(ready_code(reply), PENSTOCK_STATUS_UNAVAILABLE);
}

TEST(token_file_is_read_and_sent) {
  char path[64];
  open_folder(path);
  put_text(path, " token-1\r\n");
  penstock_channel *channel = channel_with(path, "");
  check_sent(channel, "Bearer token-1");
  put_text(path, "token-2");
  check_sent(channel, "Bearer token-1"); /* not read again yet */
  penstock_channel_release(channel);
  channel = channel_with(path, ", \"scheme\": \"\"");
  check_sent(channel, "token-2");
  penstock_channel_release(channel);
  remove_folder(path);
}

TEST(token_file_is_read_again_when_the_token_is_old) {
  char path[64];
  open_folder(path);
  put_text(path, "token-1");
  penstock_channel *channel = channel_with(path, ", \"reread_ms\": 1");
  CHECK_INT(unary_code(channel, "x"), 0);
  put_text(path, "token-2");
  penstock_reply *reply = NULL;
  const char *seen = "";
  EVENTUALLY((penstock_reply_release(reply), reply = ready_unary(channel, "x", "\"x-echo-metadata\": \"1\""),
              seen = ready_value(penstock_reply_trailers(reply), "seen-authorization"),
              strcmp(seen, "Bearer token-2") == 0));
  penstock_reply_release(reply);
  penstock_channel_release(channel);
  remove_folder(path);
}

/* The server refuses the token: the file, which has another by now, is read again, and the call is sent again. */
TEST(token_file_is_read_again_when_the_token_is_refused) {
  char path[64];
  open_folder(path);
  put_text(path, "token-1");
  penstock_channel *channel = channel_with(path, "");
  guard guard;
  guard_add(&guard, channel, 0);
  check_sent(channel, "Bearer token-1");
  guard.refused_up_to = 1;
  put_text(path, "token-2");
  check_sent(channel, "Bearer token-2");
  guard.refused_up_to = 2;
  CHECK_INT(unary_code(channel, "x"), PENSTOCK_STATUS_UNAUTHENTICATED); /* the file has no other */
  penstock_channel_release(channel);
  probe_wait_finalized(&guard.probe);
  remove_folder(path);
}

TEST(token_file_that_has_no_token_is_named) {
  char path[64];
  open_folder(path);
  penstock_channel *channel = channel_with(path, "");
  check_fails(channel, path, "can't be read: No such file or directory");
  static const char none[] = "has no token: expected visible ASCII of at most 65536 bytes";
  put_text(path, "");
  check_fails(channel, path, none);
  put_text(path, " \n");
  check_fails(channel, path, none);
  put_text(path, "two\nlines");
  check_fails(channel, path, none);
  char *large = malloc(65537);
  memset(large, 'x', 65537);
  put(path, large, 65537);
  check_fails(channel, path, none);
  free(large);
  CHECK_INT(unlink(path), 0);
  CHECK_INT(mkfifo(path, 0600), 0);
  check_fails(channel, path, "can't be read: Invalid argument");
  put_text(path, "token-1");
  check_sent(channel, "Bearer token-1");
  penstock_channel_release(channel);
  remove_folder(path);
}

/* A token that was read serves on for a while if the file goes away. */
TEST(token_file_that_goes_away_leaves_its_token) {
  char path[64];
  open_folder(path);
  put_text(path, "token-1");
  penstock_channel *channel = channel_with(path, ", \"reread_ms\": 400");
  int64_t begun = test_now_ms();
  check_sent(channel, "Bearer token-1");
  CHECK_INT(unlink(path), 0);
  penstock_reply *reply = NULL;
  EVENTUALLY((penstock_reply_release(reply), reply = ready_unary(channel, "x", NULL), penstock_reply_code(reply) != 0));
  CHECK(test_now_ms() - begun >= 800);
  CHECK_HAS(ready_message(reply), "can't be read: No such file or directory");
  penstock_reply_release(reply);
  penstock_channel_release(channel);
  remove_folder(path);
}

TEST(token_file_options_are_checked) {
  check_refused(penstock_ready_token_file, NULL, "$");
  check_refused(penstock_ready_token_file, "{\"file\": \"\"}", "$");
  check_refused(penstock_ready_token_file, "{\"file\": 1}", "$.file");
  check_refused(penstock_ready_token_file, "{\"file\": \"/x\", \"reread_ms\": 0}", "$.reread_ms");
  check_refused(penstock_ready_token_file, "{\"file\": \"/x\", \"refresh_early_ms\": 1}", "$.refresh_early_ms");
}
