/* penstock_first: loads libpenstock, opens a channel, makes one unary call and checks its reply.
 *
 *   penstock_first --target HOST:PORT [--dlopen PATH] [--split 1]
 *
 *   --dlopen  the library's path; without it, the loader looks for libpenstock.so.0
 *   --split   opens the libraries that libpenstock needs before it, to measure what libpenstock itself adds
 *
 * The program is linked with libc only, and binds symbols lazily, as a linked program does. Prints
 * {"dependencies_dlopen_us": A, "dlopen_us": B, "load_us": A + B, "connect_and_call_us": C, "total_us": D}. D is the time
 * since the start of the process; A is 0 without --split.
 */
#include "first_call.h"

#include <dlfcn.h>
#include <penstock/penstock.h>
#include <stdbool.h>

static void die(const char *why) {
  fprintf(stderr, "penstock_first: %s\n", why);
  exit(1);
}

static void *opened(const char *name) {
  void *library = dlopen(name, RTLD_LAZY | RTLD_LOCAL);
  if (!library) die(dlerror());
  return library;
}

static void *symbol(void *library, const char *name) {
  void *found = dlsym(library, name);
  if (!found) die(dlerror());
  return found;
}

#define FUNCTION(name) __typeof__(name) *name##_ = (__typeof__(name) *)(uintptr_t)symbol(library, #name)

int main(int argc, char **argv) {
  double executed = first_call_started_us(argv);
  const char *target = NULL, *path = "libpenstock.so.0";
  bool splits = false;
  for (int i = 1; i + 1 < argc; i += 2) {
    if (strcmp(argv[i], "--target") == 0)
      target = argv[i + 1];
    else if (strcmp(argv[i], "--dlopen") == 0)
      path = argv[i + 1];
    else if (strcmp(argv[i], "--split") == 0)
      splits = atoi(argv[i + 1]) != 0;
    else
      die(argv[i]);
  }
  if (!target) die("usage: penstock_first --target HOST:PORT [--dlopen PATH] [--split 1]");
  uint8_t request[FIRST_CALL_BYTES];
  first_call_pattern(request);

  double started = first_call_now_us();
  const char *const dependencies[] = {"libcrypto.so.3", "libssl.so.3", "libnghttp2.so.14", "libjansson.so.4",
                                      "libz.so.1"};
  for (size_t i = 0; splits && i < sizeof(dependencies) / sizeof(*dependencies); i++) opened(dependencies[i]);
  double dependencies_there = first_call_now_us();
  void *library = opened(path);
  double loaded = first_call_now_us();

  FUNCTION(penstock_channel_new);
  FUNCTION(penstock_channel_unary);
  FUNCTION(penstock_channel_release);
  FUNCTION(penstock_reply_bytes);
  FUNCTION(penstock_reply_code);
  FUNCTION(penstock_reply_release);
  penstock_channel *channel = NULL;
  penstock_reply *reply = NULL;
  if (penstock_channel_new_(target, "{\"tls\": false}", &channel, NULL) != PENSTOCK_OK) die("channel");
  if (penstock_channel_unary_(channel, "/penstock.Echo/Unary", request, sizeof(request), NULL, &reply, NULL) !=
      PENSTOCK_OK) {
    die("unary");
  }
  double ended = first_call_now_us();
  size_t length = 0;
  const void *data = penstock_reply_message_(reply, &length);
  if (penstock_reply_code_(reply) != 0 || length != sizeof(request) || memcmp(data, request, length) != 0) {
    die("wrong reply");
  }
  penstock_reply_release_(reply);
  penstock_channel_release_(channel);
  printf("{\"dependencies_dlopen_us\": %.1f, \"dlopen_us\": %.1f, \"load_us\": %.1f, \"connect_and_call_us\": %.1f, "
         "\"total_us\": %.1f}\n",
         dependencies_there - started, loaded - dependencies_there, loaded - started, ended - loaded, ended - executed);
  return 0;
}
