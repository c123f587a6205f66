/* libc for the transport, with static-inline shims for the things that Swift cannot import: variadic functions, macros,
 * packed structs. A shim that wraps a system call returns the call's value, or -errno: Swift code must not read errno
 * itself, because Swift may release objects right after a call, which may change errno. No shim raises SIGPIPE. */
#ifndef PENSTOCK_CSYSTEM_H
#define PENSTOCK_CSYSTEM_H
/* _GNU_SOURCE is not defined: it changes fd_set, and full Swift compares this module's fd_set with the fd_set of its
 * own Glibc module. */
#include <errno.h>
#include <dirent.h>
#include <dlfcn.h>
#include <fcntl.h>
#include <limits.h>
#include <linux/futex.h>
#include <poll.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <pthread.h>
#include <signal.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/random.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/timerfd.h>
#include <sys/types.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

/* ---- errno ---- */

static inline int32_t cs_errno(void) { return (int32_t)errno; }
static inline void cs_forget_errno(void) { errno = 0; }
/* Writes the system's text for an errno to `text`, with a NUL at its end. */
static inline void cs_error_text(int32_t error, char *text, size_t size) {
  if (size == 0) return;
  text[0] = 0;
  (void)strerror_r(error, text, size); /* the POSIX strerror_r, which fills `text` */
  text[size - 1] = 0;
}

/* ---- time ---- */

/* CLOCK_MONOTONIC in nanoseconds; never 0. */
static inline uint64_t cs_monotonic(void) {
  struct timespec t = {0, 1};
  clock_gettime(CLOCK_MONOTONIC, &t);
  return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

/* CLOCK_MONOTONIC_COARSE in nanoseconds: the time of the kernel's last tick, at most 10 ms ago. */
static inline uint64_t cs_monotonic_coarse(void) {
  struct timespec t = {0, 0};
  clock_gettime(CLOCK_MONOTONIC_COARSE, &t);
  return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

/* 64 random bits. If the system has no random bits yet, they are made from the clock alone. Not for secrets. */
static inline uint64_t cs_random(void) {
  uint64_t bits = 0;
  if (getrandom(&bits, sizeof bits, GRND_NONBLOCK) != sizeof bits) bits = cs_monotonic() * 0x9e3779b97f4a7c15u;
  return bits;
}

/* CLOCK_REALTIME in nanoseconds since 1970. */
static inline uint64_t cs_wall_clock(void) {
  struct timespec t = {0, 0};
  clock_gettime(CLOCK_REALTIME, &t);
  return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

/* ---- futex: `word` is a 32-bit atomic of this process ---- */

/* Sleeps while *word == expected, until `deadline` (CLOCK_MONOTONIC in ns; UINT64_MAX: none). Returns 0 if the thread
 * was woken, -EAGAIN if *word had another value, -ETIMEDOUT or -EINTR. */
static inline int32_t cs_futex_wait(const void *word, uint32_t expected, uint64_t deadline) {
  struct timespec t;
  struct timespec *limit = NULL;
  if (deadline != UINT64_MAX) {
    t.tv_sec = (time_t)(deadline / 1000000000u);
    t.tv_nsec = (long)(deadline % 1000000000u);
    limit = &t;
  }
  long r =
      syscall(SYS_futex, word, FUTEX_WAIT_BITSET | FUTEX_PRIVATE_FLAG, expected, limit, NULL, FUTEX_BITSET_MATCH_ANY);
  return r < 0 ? -(int32_t)errno : 0;
}

static inline void cs_futex_wake(const void *word, int32_t count) {
  int saved = errno;
  syscall(SYS_futex, word, FUTEX_WAKE | FUTEX_PRIVATE_FLAG, count, NULL, NULL, 0);
  errno = saved;
}

/* ---- epoll: struct epoll_event is packed on x86-64, so Swift sees an array of them as raw memory ---- */

static inline size_t cs_epoll_event_size(void) { return sizeof(struct epoll_event); }
static inline uint32_t cs_epoll_bits(const void *events, int32_t index) {
  return ((const struct epoll_event *)events)[index].events;
}
static inline uint64_t cs_epoll_token(const void *events, int32_t index) {
  return ((const struct epoll_event *)events)[index].data.u64;
}
static inline int32_t cs_epoll_create(void) {
  int fd = epoll_create1(EPOLL_CLOEXEC);
  return fd < 0 ? -(int32_t)errno : fd;
}
static inline int32_t cs_epoll_ctl(int32_t epoll, int32_t operation, int32_t fd, uint32_t bits, uint64_t token) {
  struct epoll_event event;
  memset(&event, 0, sizeof event);
  event.events = bits;
  event.data.u64 = token;
  return epoll_ctl(epoll, operation, fd, &event) < 0 ? -(int32_t)errno : 0;
}
static inline int32_t cs_epoll_wait(int32_t epoll, void *events, int32_t count, int32_t milliseconds) {
  int n = epoll_wait(epoll, (struct epoll_event *)events, count, milliseconds);
  return n < 0 ? -(int32_t)errno : n;
}
static const uint32_t CS_EPOLLIN = 0x001, CS_EPOLLOUT = 0x004, CS_EPOLLERR = 0x008, CS_EPOLLHUP = 0x010;
static const uint32_t CS_EPOLLRDHUP = 0x2000;
static const uint32_t CS_EPOLL_EDGE = 1u << 31; /* EPOLLET */

/* ---- eventfd, timerfd ---- */

static inline int32_t cs_eventfd(void) {
  int fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
  return fd < 0 ? -(int32_t)errno : fd;
}
/* Adds 1 to the counter of an eventfd. Returns false if `fd` is no eventfd any more. If the counter is full already,
 * that counts as a success. */
static inline bool cs_eventfd_signal(int32_t fd) {
  int saved = errno;
  uint64_t one = 1;
  ssize_t n;
  do n = write(fd, &one, sizeof one);
  while (n < 0 && errno == EINTR);
  bool signalled = n == sizeof one || errno == EAGAIN;
  errno = saved;
  return signalled;
}
static inline void cs_eventfd_clear(int32_t fd) {
  int saved = errno;
  uint64_t count;
  ssize_t n;
  do n = read(fd, &count, sizeof count);
  while (n < 0 && errno == EINTR);
  errno = saved;
}
static inline int32_t cs_timerfd(void) {
  int fd = timerfd_create(CLOCK_MONOTONIC, TFD_CLOEXEC | TFD_NONBLOCK);
  return fd < 0 ? -(int32_t)errno : fd;
}
/* Sets a timerfd to fire at `at` (CLOCK_MONOTONIC in ns); 0 stops it. Returns false if `fd` is no timerfd any more. */
static inline bool cs_timerfd_set(int32_t fd, uint64_t at) {
  struct itimerspec t;
  memset(&t, 0, sizeof t);
  t.it_value.tv_sec = (time_t)(at / 1000000000u);
  t.it_value.tv_nsec = (long)(at % 1000000000u);
  return timerfd_settime(fd, TFD_TIMER_ABSTIME, &t, NULL) == 0;
}

/* Sleeps for `milliseconds`, or less if a signal interrupts the sleep. */
static inline void cs_sleep_milliseconds(int32_t milliseconds) {
  int saved = errno;
  struct timespec t = {milliseconds / 1000, milliseconds % 1000 * 1000000L};
  nanosleep(&t, NULL);
  errno = saved;
}

/* ---- threads ---- */

/* Threads are numbers here for any libc: pthread_t may be a pointer. */
static inline uint64_t cs_thread_self(void) { return (uint64_t)(uintptr_t)pthread_self(); }
static inline void cs_thread_join(uint64_t thread) { pthread_join((pthread_t)(uintptr_t)thread, NULL); }
static inline void cs_thread_detach(uint64_t thread) { pthread_detach((pthread_t)(uintptr_t)thread); }

/* Sets the name of the calling thread, at most 15 bytes, which debuggers and /proc show. */
static inline void cs_thread_name(const char *name) { prctl(PR_SET_NAME, name, 0, 0, 0); }

/* The least stack of the library's threads, which run the host's callbacks. musl gives a thread 128 KiB by default, and
 * Python runs out of these before it reaches its limit of recursion. */
enum { CS_LEAST_STACK = 1 << 20 };

/* Starts a thread that blocks all signals except those that its own faults raise. If those were blocked, a fault
 * would kill the process without calling the host's crash handler. Returns 0 or -errno. */
static inline int32_t cs_thread_start(uint64_t *thread, int32_t detached, void *(*body)(void *), void *argument) {
  sigset_t all, old;
  pthread_t id = (pthread_t)0;
  pthread_attr_t attributes;
  size_t stack = 0;
  sigfillset(&all);
  sigdelset(&all, SIGSEGV);
  sigdelset(&all, SIGBUS);
  sigdelset(&all, SIGFPE);
  sigdelset(&all, SIGILL);
  sigdelset(&all, SIGTRAP);
  sigdelset(&all, SIGABRT);
  sigdelset(&all, SIGSYS);
  int r = pthread_attr_init(&attributes);
  if (r != 0) return -r;
  if (detached) pthread_attr_setdetachstate(&attributes, PTHREAD_CREATE_DETACHED);
  if (pthread_attr_getstacksize(&attributes, &stack) == 0 && stack < CS_LEAST_STACK)
    pthread_attr_setstacksize(&attributes, CS_LEAST_STACK);
  r = pthread_sigmask(SIG_SETMASK, &all, &old);
  if (r == 0) {
    r = pthread_create(&id, &attributes, body, argument);
    *thread = (uint64_t)(uintptr_t)id;
    pthread_sigmask(SIG_SETMASK, &old, NULL);
  }
  pthread_attr_destroy(&attributes);
  return -r;
}

/* ---- fork ---- */

/* A page of zeros that fork sets to zeros again in the child. NULL: the kernel can't do this, or there is no memory. */
static inline void *cs_wiped_page(size_t size) {
  int saved = errno;
  void *page = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (page == MAP_FAILED) page = NULL;
  if (page && madvise(page, size, MADV_WIPEONFORK) != 0) {
    munmap(page, size);
    page = NULL;
  }
  errno = saved;
  return page;
}

/* A page of zeros that fork does not wipe, for kernels that can't wipe one. Only one function may call this one, and
 * it must not be inlined: each object file with a call has its own page. */
static inline void *cs_spare_page(void) {
  static uint64_t page[4096 / sizeof(uint64_t)];
  return page;
}

/* Gives the open file of descriptor `fresh` the number `known`, and closes the file that had this number. Returns
 * `known`, or `fresh` if that fails. */
static inline int32_t cs_replace_descriptor(int32_t fresh, int32_t known) {
  int32_t replaced = (int32_t)syscall(SYS_dup3, fresh, known, O_CLOEXEC);
  if (replaced < 0) return fresh;
  close(fresh);
  return replaced;
}

/* Calls fork, which Swift does not import; for tests. */
static inline int32_t cs_fork(void) { return (int32_t)fork(); }

static inline int32_t cs_open_to_read(const char *path) { return open(path, O_RDONLY | O_CLOEXEC); }

/* Reads a regular file from its beginning into `bytes`. Returns how many bytes it has, at most `most`, or -errno: EINVAL
 * for what is no regular file and might let the reader wait. */
static inline int64_t cs_read_file(const char *path, void *bytes, size_t most) {
  int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  if (fd < 0) return -(int64_t)errno;
  struct stat about;
  int64_t failure = fstat(fd, &about) < 0 ? errno : S_ISREG(about.st_mode) ? 0 : EINVAL;
  size_t count = 0;
  while (failure == 0 && count < most) {
    ssize_t n = read(fd, (char *)bytes + count, most - count);
    if (n > 0) count += (size_t)n;
    if (n == 0) break;
    if (n < 0 && errno != EINTR) failure = errno;
  }
  close(fd);
  return failure ? -failure : (int64_t)count;
}

/* The next three functions list the entries of a folder; for tests. */
static inline void *cs_open_folder(const char *path) { return opendir(path); }
static inline const char *cs_next_entry(void *folder) {
  struct dirent *entry = readdir((DIR *)folder);
  return entry ? entry->d_name : NULL;
}
static inline void cs_close_folder(void *folder) { closedir((DIR *)folder); }

/* ---- descriptors and sockets ---- */

static inline void cs_close(int32_t fd) {
  if (fd >= 0) close(fd);
}
/* The inode of a socket, which distinguishes it from a later socket with the same descriptor. 0: `fd` is no socket. */
static inline uint64_t cs_socket_identity(int32_t fd) {
  int saved = errno;
  struct stat about;
  uint64_t identity = fstat(fd, &about) == 0 && S_ISSOCK(about.st_mode) ? (uint64_t)about.st_ino : 0;
  errno = saved;
  return identity;
}
static inline int32_t cs_socket(int32_t family, int32_t type, int32_t protocol) {
  int fd = socket(family, type | SOCK_CLOEXEC | SOCK_NONBLOCK, protocol);
  return fd < 0 ? -(int32_t)errno : fd;
}
static inline int32_t cs_stream_socket(int32_t family) { return cs_socket(family, SOCK_STREAM, 0); }
static inline int32_t cs_connect(int32_t fd, const void *address, uint32_t length) {
  return connect(fd, (const struct sockaddr *)address, (socklen_t)length) < 0 ? -(int32_t)errno : 0;
}
static inline int32_t cs_bind(int32_t fd, const void *address, uint32_t length) {
  return bind(fd, (const struct sockaddr *)address, (socklen_t)length) < 0 ? -(int32_t)errno : 0;
}
static inline int32_t cs_listen(int32_t fd, int32_t backlog) { return listen(fd, backlog) < 0 ? -(int32_t)errno : 0; }
static inline int32_t cs_accept(int32_t fd) {
  long r = syscall(SYS_accept4, fd, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
  return r < 0 ? -(int32_t)errno : (int32_t)r;
}
/* The pending error of a socket (SO_ERROR): 0 or an errno. */
static inline int32_t cs_socket_error(int32_t fd) {
  int value = 0;
  socklen_t length = sizeof value;
  if (getsockopt(fd, SOL_SOCKET, SO_ERROR, &value, &length) < 0) return (int32_t)errno;
  return (int32_t)value;
}
/* The shortest round trip that TCP has seen, in microseconds; 0: not known. This is tcpi_min_rtt of linux/tcp.h,
 * which can't be included beside netinet/tcp.h. */
static inline uint32_t cs_round_trip(int32_t fd) {
  enum { MIN_RTT = 37 };
  uint32_t info[MIN_RTT + 1];
  socklen_t length = sizeof info;
  if (getsockopt(fd, IPPROTO_TCP, TCP_INFO, info, &length) < 0 || length < sizeof info) return 0;
  return info[MIN_RTT];
}
static inline int32_t cs_set_option(int32_t fd, int32_t level, int32_t option, int32_t value) {
  int v = value;
  return setsockopt(fd, level, option, &v, sizeof v) < 0 ? -(int32_t)errno : 0;
}
static inline int32_t cs_no_delay(int32_t fd) { return cs_set_option(fd, IPPROTO_TCP, TCP_NODELAY, 1); }
static inline int32_t cs_user_timeout(int32_t fd, int32_t milliseconds) {
  return cs_set_option(fd, IPPROTO_TCP, TCP_USER_TIMEOUT, milliseconds);
}
/* Makes the kernel look whether a silent peer is there: after `idle` seconds, once within `timeout` seconds. */
static inline void cs_keep_alive(int32_t fd, int32_t idle, int32_t timeout) {
  (void)cs_set_option(fd, IPPROTO_TCP, TCP_KEEPIDLE, idle);
  (void)cs_set_option(fd, IPPROTO_TCP, TCP_KEEPINTVL, timeout);
  (void)cs_set_option(fd, IPPROTO_TCP, TCP_KEEPCNT, 1);
  (void)cs_set_option(fd, SOL_SOCKET, SO_KEEPALIVE, 1);
}
static inline int32_t cs_reuse_address(int32_t fd) { return cs_set_option(fd, SOL_SOCKET, SO_REUSEADDR, 1); }
/* The next four functions send and receive without waiting. They return the number of bytes, or -errno. If cs_recv or
 * cs_recvv returns 0, the stream has ended. */
static inline int64_t cs_send(int32_t fd, const void *bytes, size_t count) {
  ssize_t n = send(fd, bytes, count, MSG_NOSIGNAL | MSG_DONTWAIT);
  return n < 0 ? -(int64_t)errno : (int64_t)n;
}
static inline int64_t cs_sendv(int32_t fd, const struct iovec *vectors, size_t count) {
  struct msghdr message;
  memset(&message, 0, sizeof message);
  message.msg_iov = (struct iovec *)vectors;
  message.msg_iovlen = count;
  ssize_t n = sendmsg(fd, &message, MSG_NOSIGNAL | MSG_DONTWAIT);
  return n < 0 ? -(int64_t)errno : (int64_t)n;
}
static inline int64_t cs_recv(int32_t fd, void *bytes, size_t count) {
  ssize_t n = recv(fd, bytes, count, MSG_DONTWAIT);
  return n < 0 ? -(int64_t)errno : (int64_t)n;
}
/* Like cs_recv, of one byte, which stays. */
static inline int64_t cs_peek(int32_t fd) {
  char byte;
  ssize_t n = recv(fd, &byte, 1, MSG_DONTWAIT | MSG_PEEK);
  return n < 0 ? -(int64_t)errno : (int64_t)n;
}
static inline int64_t cs_recvv(int32_t fd, struct iovec *vectors, size_t count) {
  struct msghdr message;
  memset(&message, 0, sizeof message);
  message.msg_iov = vectors;
  message.msg_iovlen = count;
  ssize_t n = recvmsg(fd, &message, MSG_DONTWAIT);
  return n < 0 ? -(int64_t)errno : (int64_t)n;
}
static inline int32_t cs_shutdown(int32_t fd) { return shutdown(fd, SHUT_RDWR) < 0 ? -(int32_t)errno : 0; }
static inline int32_t cs_local_name(int32_t fd, void *address, uint32_t *length) {
  socklen_t n = (socklen_t)*length;
  if (getsockname(fd, (struct sockaddr *)address, &n) < 0) return -(int32_t)errno;
  *length = (uint32_t)n;
  return 0;
}

/* Lets a socket's packets leave and arrive by one network interface only. Returns 0 or -errno. */
static inline int32_t cs_bind_device(int32_t fd, const void *name, uint32_t length) {
  return setsockopt(fd, SOL_SOCKET, SO_BINDTODEVICE, name, (socklen_t)length) < 0 ? -(int32_t)errno : 0;
}
/* Gives a socket its own address. The port is chosen when it connects, so that sockets to several servers can have the
 * same. Returns 0 or -errno. */
static inline int32_t cs_bind_local(int32_t fd, const void *address, uint32_t length) {
  (void)cs_set_option(fd, IPPROTO_IP, IP_BIND_ADDRESS_NO_PORT, 1);
  return cs_bind(fd, address, length);
}
/* The levels of socket options: in Swift, an enum's constants are of another type. */
static const int32_t CS_LEVEL_SOCKET = SOL_SOCKET, CS_LEVEL_TCP = IPPROTO_TCP, CS_LEVEL_IP = IPPROTO_IP,
                     CS_LEVEL_IPV6 = IPPROTO_IPV6;

/* Tells why a descriptor is no connected stream socket: an errno, or 0 if it is one. */
static inline int32_t cs_stream_fault(int32_t fd) {
  int kind = 0;
  struct sockaddr_storage peer;
  socklen_t length = sizeof kind;
  if (getsockopt(fd, SOL_SOCKET, SO_TYPE, &kind, &length) < 0) return (int32_t)errno;
  if (kind != SOCK_STREAM) return EPROTOTYPE;
  length = sizeof peer;
  return getpeername(fd, (struct sockaddr *)&peer, &length) < 0 ? (int32_t)errno : 0;
}
static inline void cs_close_on_exec(int32_t fd) { (void)fcntl(fd, F_SETFD, FD_CLOEXEC); }

#include "csystem_addresses.h"
#endif
