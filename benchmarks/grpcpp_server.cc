/* grpcpp_server: /penstock.Echo on grpc++'s asynchronous generic service, for the benchmarks; no protobuf.
 *
 *   grpcpp_server [--listen HOST:PORT] [--tls CERT KEY] [--threads N] [--stream-window N]
 *
 *   --listen         the default is 127.0.0.1:0
 *   --tls            the certificate chain and its key, PEM files
 *   --threads        completion queues, each with a thread of its own. The default is 1: on 2 cores, which the client uses
 *                    too, 2 queues cost half as much again per call, and serve fewer calls of one connection
 *   --stream-window  the HTTP/2 window of each stream in bytes. The default is 4 MiB; with it 1 MiB messages both ways are
 *                    1.5 times as fast as with a window that grpc++ chooses by its own measuring
 *
 * Methods and metadata are as penstock-peer's: Unary, Bidi, ClientStream (x-mode: count), ServerStream (x-repeat: N).
 * When it listens it prints {"address": "HOST:PORT"}. It ends with standard input, or by SIGTERM or SIGINT.
 */
#include <grpcpp/generic/async_generic_service.h>
#include <grpcpp/grpcpp.h>

#include <poll.h>
#include <signal.h>
#include <sys/signalfd.h>
#include <unistd.h>

#include <charconv>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <fstream>
#include <memory>
#include <sstream>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

namespace {

using grpc::ByteBuffer;
using grpc::Slice;
using grpc::Status;
using grpc::StatusCode;

/* How many calls each queue has asked grpc++ for. If more come at once, they wait in grpc++ until the queue asks again. */
constexpr int kAwaited = 256;
/* A duplex stream reads on while fewer messages and bytes than these wait to be echoed. */
constexpr size_t kAheadMessages = 256, kAheadBytes = 1 << 20;

[[noreturn]] void die(const std::string &why) {
  std::fprintf(stderr, "grpcpp_server: %s\n", why.c_str());
  std::exit(1);
}

class Call;

/* The tag of an operation, which the completion queue gives back: the call, and its function for the operation's end. */
struct Tag {
  Call *call;
  void (Call::*done)(bool ok);
};

class Call {
public:
  Call(grpc::AsyncGenericService *service, grpc::ServerCompletionQueue *queue)
      : service_(service), queue_(queue), stream_(&context_) {
    service_->RequestCall(&context_, &stream_, queue_, queue_, begin(&arrived_));
  }

  void take(const Tag &tag, bool ok) {
    pending_--;
    (this->*tag.done)(ok);
    if (pending_ == 0) delete this;
  }

private:
  void *begin(Tag *tag) {
    pending_++;
    return tag;
  }

  void arrived(bool ok) {
    if (!ok) return;
    new Call(service_, queue_);
    const std::string &method = context_.method();
    if (method == "/penstock.Echo/Unary") {
      request_.done = &Call::unary_request;
    } else if (method == "/penstock.Echo/ServerStream") {
      request_.done = &Call::server_stream_request;
    } else if (method == "/penstock.Echo/ClientStream") {
      request_.done = &Call::client_stream_request;
      counts_ = metadata("x-mode") == "count";
    } else if (method == "/penstock.Echo/Bidi") {
      request_.done = &Call::bidi_request;
      stream_.SendInitialMetadata(begin(&finished_)); /* the headers do not wait for the first message */
    } else {
      return finish(Status(StatusCode::UNIMPLEMENTED, "no such method"));
    }
    read();
  }

  std::string_view metadata(const char *name) const {
    auto found = context_.client_metadata().find(name);
    return found == context_.client_metadata().end() ? std::string_view()
                                                     : std::string_view(found->second.data(), found->second.size());
  }

  void read() { stream_.Read(&message_, begin(&request_)); }
  void finish(const Status &status) { stream_.Finish(status, begin(&finished_)); }
  void finish_with(const ByteBuffer &reply) {
    stream_.WriteAndFinish(reply, grpc::WriteOptions(), Status::OK, begin(&finished_));
  }
  void finished(bool) {}

  /* ---- Unary ---- */

  void unary_request(bool ok) {
    if (!ok) return finish(Status(StatusCode::UNIMPLEMENTED, "no request message"));
    /* Waits for the request's END_STREAM before it answers; otherwise grpc++ would reset the stream. grpc-swift-2 sends
     * END_STREAM in a separate frame, and closes the connection after a few hundred such resets. */
    request_.done = &Call::unary_end;
    stream_.Read(&excess_, begin(&request_));
  }

  void unary_end(bool ok) {
    if (ok) return finish(Status(StatusCode::UNIMPLEMENTED, "more than one request message"));
    finish_with(message_);
  }

  /* ---- ServerStream: the request, x-repeat times ---- */

  void server_stream_request(bool ok) {
    if (!ok) return finish(Status(StatusCode::UNIMPLEMENTED, "no request message"));
    left_ = 1;
    if (auto text = metadata("x-repeat"); !text.empty()) {
      auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), left_);
      if (error != std::errc() || end != text.data() + text.size()) {
        return finish(Status(StatusCode::INVALID_ARGUMENT, "x-repeat is not a number"));
      }
    }
    written_.done = &Call::repeat;
    repeat(true);
  }

  void repeat(bool ok) {
    if (!ok || left_ == 0) return finish(Status::OK);
    if (--left_ == 0) return finish_with(message_);
    grpc::WriteOptions options;
    if (started_)
      options.set_buffer_hint(); /* not for the first message: buffered with the headers it would wait for ever */
    started_ = true;
    stream_.Write(message_, options, begin(&written_));
  }

  /* ---- ClientStream: answers with the number of messages, or with all of them as one message ---- */

  void client_stream_request(bool ok) {
    if (ok) {
      received_++;
      std::vector<Slice> slices;
      if (!counts_ && message_.Dump(&slices).ok()) gathered_.insert(gathered_.end(), slices.begin(), slices.end());
      return read();
    }
    if (counts_) gathered_.assign(1, Slice(std::to_string(received_)));
    finish_with(ByteBuffer(gathered_.data(), gathered_.size()));
  }

  /* ---- Bidi: echoes each message; the reader may be a little ahead of the writer ---- */

  void bidi_request(bool ok) {
    reading_ = false;
    if (!ok) {
      half_closed_ = true;
      if (!writing_) finish(Status::OK);
      return;
    }
    echoes_.push_back(message_);
    ahead_ += message_.Length();
    if (!writing_) write_echo();
    read_ahead();
  }

  void read_ahead() {
    if (reading_ || half_closed_ || echoes_.size() >= kAheadMessages || ahead_ >= kAheadBytes) return;
    reading_ = true;
    read();
  }

  void write_echo() {
    ByteBuffer echo = std::move(echoes_.front());
    echoes_.pop_front();
    ahead_ -= echo.Length();
    writing_ = true;
    grpc::WriteOptions options;
    if (!echoes_.empty()) options.set_buffer_hint();
    stream_.Write(echo, options, begin(&written_));
  }

  void echo_written(bool ok) {
    writing_ = false;
    if (ok && !echoes_.empty()) {
      write_echo();
    } else if (half_closed_ || (!ok && !reading_)) {
      finish(Status::OK);
    }
    if (ok) read_ahead();
  }

  grpc::AsyncGenericService *service_;
  grpc::ServerCompletionQueue *queue_;
  grpc::GenericServerContext context_;
  grpc::GenericServerAsyncReaderWriter stream_;
  Tag arrived_{this, &Call::arrived};
  Tag request_{this, nullptr};
  Tag written_{this, &Call::echo_written};
  Tag finished_{this, &Call::finished};
  int pending_ = 0;
  ByteBuffer message_, excess_;
  uint64_t left_ = 0, received_ = 0;
  bool counts_ = false, started_ = false, reading_ = true, writing_ = false, half_closed_ = false;
  std::vector<Slice> gathered_;
  std::deque<ByteBuffer> echoes_;
  size_t ahead_ = 0;
};

void serve(grpc::ServerCompletionQueue *queue) {
  void *tag;
  bool ok;
  while (queue->Next(&tag, &ok)) static_cast<Tag *>(tag)->call->take(*static_cast<Tag *>(tag), ok);
}

std::string contents(const char *path) {
  std::ifstream file(path, std::ios::binary);
  if (!file) die(std::string("cannot read ") + path);
  std::ostringstream text;
  text << file.rdbuf();
  return text.str();
}

/* Waits for a signal or for the end of standard input. */
void wait_for_end(const sigset_t &signals) {
  pollfd waits[2] = {{signalfd(-1, &signals, SFD_CLOEXEC), POLLIN, 0}, {STDIN_FILENO, POLLIN, 0}};
  for (;;) {
    if (poll(waits, 2, -1) < 0) continue;
    if (waits[0].revents) return;
    char byte[256];
    if (waits[1].revents && read(STDIN_FILENO, byte, sizeof(byte)) <= 0) return;
  }
}

} // namespace

int main(int argc, char **argv) {
  std::string listen = "127.0.0.1:0", certificate, key;
  int threads = 1, window = 4 << 20;
  for (int i = 1; i < argc; i++) {
    std::string name = argv[i];
    if (i + 1 >= argc) die("no value for " + name);
    if (name == "--listen") {
      listen = argv[++i];
    } else if (name == "--threads") {
      threads = std::atoi(argv[++i]);
    } else if (name == "--stream-window") {
      window = std::atoi(argv[++i]);
    } else if (name == "--tls" && i + 2 < argc) {
      certificate = contents(argv[++i]);
      key = contents(argv[++i]);
    } else {
      die("not an option: " + name);
    }
  }
  if (threads < 1 || window < 1) die("a number is too small");
  sigset_t signals;
  sigemptyset(&signals);
  sigaddset(&signals, SIGTERM);
  sigaddset(&signals, SIGINT);
  pthread_sigmask(SIG_BLOCK, &signals, nullptr);

  std::shared_ptr<grpc::ServerCredentials> credentials = grpc::InsecureServerCredentials();
  if (!key.empty()) {
    grpc::SslServerCredentialsOptions options;
    options.pem_key_cert_pairs.push_back({key, certificate});
    credentials = grpc::SslServerCredentials(options);
  }
  grpc::AsyncGenericService service;
  grpc::ServerBuilder builder;
  int port = 0;
  builder.AddListeningPort(listen, credentials, &port);
  builder.RegisterAsyncGenericService(&service);
  builder.SetMaxReceiveMessageSize(-1);
  builder.SetMaxSendMessageSize(-1);
  builder.AddChannelArgument(GRPC_ARG_HTTP2_MAX_PING_STRIKES, 0); /* allows any number of pings */
  builder.AddChannelArgument(GRPC_ARG_HTTP2_BDP_PROBE, 0);
  builder.AddChannelArgument(GRPC_ARG_HTTP2_STREAM_LOOKAHEAD_BYTES, window);
  std::vector<std::unique_ptr<grpc::ServerCompletionQueue>> queues;
  for (int i = 0; i < threads; i++) queues.push_back(builder.AddCompletionQueue());
  std::unique_ptr<grpc::Server> server = builder.BuildAndStart();
  if (!server || port == 0) die("cannot listen on " + listen);
  for (auto &queue : queues) {
    for (int i = 0; i < kAwaited; i++) new Call(&service, queue.get());
    std::thread(serve, queue.get()).detach();
  }
  std::printf("{\"address\": \"%s:%d\"}\n", listen.substr(0, listen.rfind(':')).c_str(), port);
  std::fflush(stdout);
  wait_for_end(signals);
  /* Exits at once, without waiting for calls that are still open. */
  std::_Exit(0);
}
