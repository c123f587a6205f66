/* Texts and messages of every small size, so that each buffer of a call gets every size that an allocator may round. */
#include "test.h"

#include <pthread.h>

enum { SHORTEST = 30, LONGEST = 320 };

/* The service and method are unknown to the server, so that a name of any length can be sent, and no message is parsed.
 */
static void call_by_name(penstock_channel *channel, int length, const char *request) {
  char method[LONGEST + 1];
  int start = snprintf(method, sizeof(method), "/sizes.Names/");
  memset(method + start, 'a' + length % 26, (size_t)(length - start));
  method[length] = 0;
  penstock_reply *reply = NULL;
  REQUIRE_OK(penstock_channel_unary(channel, method, request, (size_t)length, NULL, &reply, NULL));
  CHECK_INT(penstock_reply_code(reply), PENSTOCK_STATUS_UNIMPLEMENTED);
  penstock_reply_release(reply);
}

static void echo(penstock_channel *channel, const char *request, size_t length) {
  penstock_reply *reply = NULL;
  REQUIRE_OK(penstock_channel_unary(channel, UNARY, request, length, NULL, &reply, NULL));
  size_t found = 0;
  const void *message = penstock_reply_bytes(reply, &found);
  CHECK_INT(penstock_reply_code(reply), 0);
  CHECK(found == length && message && memcmp(message, request, length) == 0);
  penstock_reply_release(reply);
}

static void *calls_of_each_size(void *channel) {
  static const char request[LONGEST + 1] = "a request whose first letters are not all the same";
  for (int round = 0; round < test_rounds(20); round++) {
    for (int length = SHORTEST; length <= LONGEST; length++) {
      call_by_name(channel, length, request);
      echo(channel, request, (size_t)length);
    }
  }
  return NULL;
}

TEST(names_and_messages_of_each_small_size) {
  penstock_channel *channel = open_channel();
  pthread_t threads[2];
  for (int i = 0; i < 2; i++) CHECK_INT(pthread_create(&threads[i], NULL, calls_of_each_size, channel), 0);
  for (int i = 0; i < 2; i++) pthread_join(threads[i], NULL);
  penstock_channel_release(channel);
}
